// Runs that tell the same: what is learnt from one of them is not tested by another.
#pragma once

#include <cstdint>
#include <string>

#include "sim/published/published_run.h"

namespace orrery::published {

/// Titles of one team's publications go by one name.
[[nodiscard]] std::string source_family(const std::string& title);

/// Equal for runs that share source family, GPU and their number, layers, hidden width, heads, sequence length, the
/// degrees tp, pp, chunks, cp and ep, both batch sizes and recomputation. ZeRO stage, kernels, precision and date are
/// passed over.
[[nodiscard]] std::string group_of(const PublishedRun& run);

inline constexpr std::uint32_t kFolds = 5;
/// By the group (FNV-1a of it, modulo kFolds).
[[nodiscard]] std::uint32_t fold_of(const PublishedRun& run);

}  // namespace orrery::published
