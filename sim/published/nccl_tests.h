// Reads the output of nccl-tests as measured collectives. Private to the reader of published collectives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/published/published_collectives.h"

namespace orrery::published {

/// Of one published collective; more is a wrong input.
inline constexpr std::int64_t kMostCollectiveBytes = std::int64_t{1} << 50;

/// Whether the text has nccl-tests' column headers.
[[nodiscard]] bool is_nccl_tests_log(const std::string& text);

/// Accepts the output of any of its programs and types. Each message size gives one row, or two if it was also measured
/// in place. Ranks, hosts and GPUs come from the lines "# Rank"; NCCL's version and the network from lines of
/// NCCL_DEBUG, if there are any. Throws InputError naming file and line.
[[nodiscard]] std::vector<PublishedCollective> collectives_of_nccl_tests(const std::string& text,
                                                                         const std::string& file);

}  // namespace orrery::published
