// What of the plans that can be simulated the executor runs.
#pragma once

#include <string>

#include "sim/program/plan.h"

namespace orrery::exec {

/// Throws InputError naming `source`, the plan's key and what the executor runs when the plan asks for what is
/// simulated only.
void check_executable(const program::Plan& plan, const std::string& source);

}  // namespace orrery::exec
