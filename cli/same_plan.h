// The ranks of a job read their plan each for itself, on machines that may have different files of one name.
#pragma once

#include <string>

#include "exec/transport/transport.h"

namespace orrery::cli {

/// Collective over all ranks, each with its plan's canonical text (program::to_json_text), or "" where it has none. On
/// rank 0 an error that names file, rank, machine, key, value and rank 0's value for the first rank whose plan differs
/// from rank 0's; "" when none does, and on the other ranks.
[[nodiscard]] std::string why_plans_differ(exec::Transport& transport, const std::string& plan_path,
                                           const std::string& plan_text);

}  // namespace orrery::cli
