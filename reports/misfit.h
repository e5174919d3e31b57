// A plan that does not fit its devices: by how much, where, and what would.
#pragma once

#include <span>
#include <string>

#include "sim/program/plan_result.h"

namespace orrery::reports {

/// Lines that end in a newline; `remedies` are listed where there are any.
[[nodiscard]] std::string misfit_text(const program::Plan& plan, const program::MemoryFit& fit,
                                      std::span<const program::Remedy> remedies);

}  // namespace orrery::reports
