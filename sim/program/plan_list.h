// Many plans in one file: what they share once, and of each what is different.
#pragma once

#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::program {

/// The plans of a file, in its order: of a plan file that plan, of an `orrery.plan_list/1` each of its plans, which is
/// `base` with the plan's own keys merged in (RFC 7396: objects key by key, other values whole, null takes a key away)
/// and named by its key. Throws InputError naming the file, the plan and what is wrong.
[[nodiscard]] std::vector<Plan> read_plans(const std::string& path);

}  // namespace orrery::program
