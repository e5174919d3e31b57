// Which plans the executor can run. It runs fewer than the simulator.
#pragma once

#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::exec {

/// Throws InputError if the plan uses a feature that is only simulated. The error names `source`, the plan's key and
/// what the executor runs.
void check_executable(const program::Plan& plan, const std::string& source);

/// The plan as the executor runs it. If the plan is of another implementation, the executor's takes its place and the
/// plan is named after both; `differs` gets the keys in which the two implementations differ.
[[nodiscard]] program::Plan for_executor(program::Plan plan, std::vector<std::string>& differs);

}  // namespace orrery::exec
