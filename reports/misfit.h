// A plan that does not fit into device memory: by how much, where, and which changes would make it fit.
#pragma once

#include <span>
#include <string>

#include "sim/program/plan_result.h"

namespace orrery::reports {

/// Ends in a newline; lists `remedies` if there are any.
[[nodiscard]] std::string misfit_text(const program::Plan& plan, const program::MemoryFit& fit,
                                      std::span<const program::Remedy> remedies);

}  // namespace orrery::reports
