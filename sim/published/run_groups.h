// Groups of nearly identical runs. A fit to one run of a group must not be tested on another.
#pragma once

#include <cstdint>
#include <string>

#include "sim/published/published_run.h"

namespace orrery::published {

/// One name for the titles of one team's publications.
[[nodiscard]] std::string source_family(const std::string& title);

/// Equal for runs with the same source family, GPU, number of GPUs, layers, hidden width, heads, sequence length,
/// degrees tp, pp, chunks, cp and ep, batch sizes and recomputation. ZeRO stage, kernels, precision and date do not
/// count.
[[nodiscard]] std::string group_of(const PublishedRun& run);

/// Equal for the runs of a sweep: one job under several layouts. Equal are the source, the model, the sequence length,
/// the GPU, the number of GPUs and the global batch.
[[nodiscard]] std::string sweep_of(const PublishedRun& run);

inline constexpr std::uint32_t kFolds = 5;
/// The cross-validation fold: FNV-1a hash of the group, modulo kFolds.
[[nodiscard]] std::uint32_t fold_of(const PublishedRun& run);

}  // namespace orrery::published
