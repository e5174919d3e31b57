// Which blocks each virtual stage of a pipeline holds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/schedule.h"

namespace orrery::program {

/// How many blocks the embedding and the head count for when stages are balanced.
struct EndWeights {
    std::int64_t embedding = 0, head = 0;
    auto operator<=>(const EndWeights&) const = default;
};

/// Blocks of each virtual stage such that the largest load of a rank is as small as possible, where a block, the
/// embedding and the head count as `ends` says. A remainder goes to the last stages, which keep the fewest
/// micro-batches in flight. Only the first and the last stage may have no blocks. Empty if there are more stages than
/// blocks allow. Every block counts the same, also in models that mix dense and expert blocks.
[[nodiscard]] std::vector<std::int64_t> balanced_stages(std::int64_t layers, const ScheduleShape& shape,
                                                        EndWeights ends);

/// The layout in the notation of Megatron's --pipeline-model-parallel-layout: stages are separated by "|", E is the
/// embedding, t a block, L the head with the loss, and x*n and (…)*n repeat. {0, 1, 1, 0} is "E|(t|)*2L"; without any
/// repetition it is "E|t|t|L".
[[nodiscard]] std::string stage_layout_text(const std::vector<std::int64_t>& stage_layers);
/// The blocks of each stage. Throws InputError with `source`, `key` and what is allowed if there is an unknown letter,
/// a parenthesis without its partner, an E that is not the first item or an L that is not the last. The number of
/// blocks is not checked.
[[nodiscard]] std::vector<std::int64_t> stage_layout_named(const std::string& text, const std::string& source,
                                                           const std::string& key);

}  // namespace orrery::program
