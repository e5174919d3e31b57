// Private to the lowerings: vocabulary parallelism over the stages of a pipeline (Yeung et al. 2024, arXiv 2411.05288).
// Embedding and output weights are cut over all pipeline ranks. The last stage broadcasts its normed hidden state,
// every rank computes its part of the logits with their own maximum and sum (S), the ranks gather these statistics
// (first barrier), every rank puts them together and computes its part of the gradients (T), and dX is reduced to the
// last stage (second barrier). With one barrier, S computes dX from the exponentials as they are, corrects it by the
// statistics, which have come beside that product, and T computes only dW. Interlaced: S, T and both barriers in one
// piece, nothing between them. The embedding is looked up everywhere and reduced to the first stage, whose gradient is
// broadcast.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/layer_form.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"

namespace orrery::program {

enum class VocabularyPart : std::uint8_t {
    final_norm,  // the head's norm, which the last stage keeps
    output,      // S is its forward pass, T its backward pass
    input,
};

/// `root`: on the last stage for the output (it sends X and receives dX), on the first for the input.
[[nodiscard]] models::Layer vocabulary_layer(const Plan& plan, const models::LayerContext& context, VocabularyPart part,
                                             bool root);
/// The context of the layers above: the vocabulary is cut over pp.
[[nodiscard]] models::LayerContext vocabulary_context(const Plan& plan, models::LayerContext context);

/// Chunks of a rank's tasks beside chunk 0, the blocks.
inline constexpr std::int32_t kOutputChunk = 1;
inline constexpr std::int32_t kInputChunk = 2;

/// 1F1B with as many more warm-up forwards as there are barriers, and the passes of the vocabulary between, in rounds:
/// the same order of their communications on every rank, but not between the same passes of its blocks. Interlaced:
/// half as many forwards again as there are ranks, and one forward and one backward of each rank between two S.
[[nodiscard]] std::vector<std::vector<ComputeTask>> vocabulary_orders(VocabularyParallel kind, std::int64_t ranks,
                                                                      std::int64_t micro_batches);

}  // namespace orrery::program
