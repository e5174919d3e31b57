// What of the plans that can be simulated the executor runs.
#pragma once

#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::exec {

/// Throws InputError naming `source`, the plan's key and what the executor runs when the plan asks for what is
/// simulated only.
void check_executable(const program::Plan& plan, const std::string& source);

/// The plan as the executor runs it: of another implementation, with the executor's in its place, and named after both.
/// `differs` gets the keys in which the two differ.
[[nodiscard]] program::Plan for_executor(program::Plan plan, std::vector<std::string>& differs);

}  // namespace orrery::exec
