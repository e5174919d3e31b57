// Many plans in one file: a common base, and for each plan its differences from the base.
#pragma once

#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::program {

/// Reads the plans of a file, in file order. A plan file has one plan. In an `orrery.plan_list/1` each plan is `base`
/// with the plan's own keys merged in (RFC 7396: objects are merged key by key, other values are replaced, null removes
/// a key), and its key is its name. Throws InputError with the file, the plan and what is wrong.
[[nodiscard]] std::vector<Plan> read_plans(const std::string& path);

}  // namespace orrery::program
