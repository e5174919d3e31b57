// The output of nccl-tests as measured collectives. Private to the reading of published collectives.
#pragma once

#include <string>
#include <vector>

#include "sim/published/published_collectives.h"

namespace orrery::published {

/// By the heads of its columns.
[[nodiscard]] bool is_nccl_tests_log(const std::string& text);

/// Of any of its programs and types; two rows for each message size where it measured in place too. Ranks, hosts and
/// GPUs are those of its lines "# Rank"; NCCL's version and the network those of NCCL_DEBUG's lines, where it has some.
/// Throws InputError naming file and line.
[[nodiscard]] std::vector<PublishedCollective> collectives_of_nccl_tests(const std::string& text,
                                                                         const std::string& file);

}  // namespace orrery::published
