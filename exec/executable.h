// Which plans the executor can run. It runs fewer than the simulator.
#pragma once

#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::exec {

/// A key of the plan of which a backend runs only some values.
struct RunLimit {
    std::string key;      // a JSON pointer into the plan
    std::string allowed;  // the values that it runs
    std::string reason;   // "the executor runs …", or what of the hardware sets the limit
};

/// What check_executable() refuses, on every backend.
[[nodiscard]] std::vector<RunLimit> executor_limits();

/// Throws InputError if the plan uses a feature that is only simulated. The error names `source`, the plan's key and
/// what the executor runs.
void check_executable(const program::Plan& plan, const std::string& source);

/// The plan as the executor runs it. If the plan is of another implementation, the executor's takes its place and the
/// plan is named after both; `differs` gets the keys in which the two implementations differ.
[[nodiscard]] program::Plan for_executor(program::Plan plan, std::vector<std::string>& differs);

}  // namespace orrery::exec
