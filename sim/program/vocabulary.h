// Private to the lowerings: vocabulary parallelism over the stages of a pipeline (Yeung et al. 2024, arXiv 2411.05288).
// Embedding and output weights are sharded over all pipeline ranks.
//
// Output: the last stage broadcasts its normed hidden state X. In pass S every rank computes its part of the logits
// with a local maximum and sum. The ranks gather these statistics (first barrier). In pass T every rank combines them
// and computes its part of the gradients, and dX is reduced to the last stage (second barrier). With one barrier, S
// computes dX from the local exponentials while the statistics are gathered, and then corrects dX by them; T computes
// only dW. Interlaced: S, T and both barriers form one pass.
//
// Input: every rank looks up its part of the embedding, and the sum is reduced to the first stage, which later
// broadcasts the gradient.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/lowered_layer.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"

namespace orrery::program {

enum class VocabularyPart : std::uint8_t {
    final_norm,  // the head's norm, which stays on the last stage
    output,      // S is the forward pass, T the backward pass
    input,       // the embedding
};

/// Builds the layer of one part. `root`: the layer is for the last stage (output: it sends X and receives dX) or for
/// the first stage (input).
[[nodiscard]] models::Layer vocabulary_layer(const Plan& plan, const models::LayerContext& context, VocabularyPart part,
                                             bool root);

/// The chunks of the vocabulary; chunk 0 has the blocks.
inline constexpr ChunkIndex kOutputChunk = 1;
inline constexpr ChunkIndex kInputChunk = 2;

/// 1F1B with additional warm-up forwards, one for each barrier, and the vocabulary's passes between those of the
/// blocks. All ranks issue the vocabulary's passes in the same order, so that their communication matches.
/// Interlaced: 1.5 p warm-up forwards on the first of p ranks, and between two S each rank runs one forward and one
/// backward.
[[nodiscard]] std::vector<std::vector<ComputeTask>> vocabulary_orders(VocabularyParallel kind, std::int64_t ranks,
                                                                      std::int64_t micro_batches);

}  // namespace orrery::program
