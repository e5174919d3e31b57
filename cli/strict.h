// --strict: predictions that rest on what nobody measured, fitted or stated are refused.
#pragma once

#include <string>

#include "sim/program/program.h"

namespace orrery::cli {

/// Throws InputError naming each rate and each figure of the cluster that is an assumption and that matters: were it a
/// tenth smaller, the step would change by a thousandth or more, or the plan would fit where it did not, or the other
/// way around. `source`: the plan's file, or what else the plan is from.
void refuse_assumptions(const program::Program& program, const std::string& source);

}  // namespace orrery::cli
