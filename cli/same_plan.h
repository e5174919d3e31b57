// Checks that all ranks have the same plan: each rank reads its own file, and machines may have different files of the
// same name.
#pragma once

#include <string>

#include "exec/transport/transport.h"

namespace orrery::cli {

/// Collective over all ranks. Each passes its plan's canonical text (program::to_json_text), or "" if it has none. Rank
/// 0 gets an error for the first rank whose plan differs from its own, with file, rank, machine, key, value and rank
/// 0's value, or "" if none differs. The other ranks get "".
[[nodiscard]] std::string why_plans_differ(exec::Transport& transport, const std::string& plan_path,
                                           const std::string& plan_text);

}  // namespace orrery::cli
