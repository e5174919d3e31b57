// --strict: refuses predictions that rest on figures that were not measured, fitted or stated, or that lack a part of
// the model.
#pragma once

#include <string>

#include "sim/program/program.h"

namespace orrery::cli {

/// Throws InputError if the model lacks a part of its file (ModelSpec::left_out). `source`: where the model is from.
void refuse_left_out(const models::ModelSpec& model, const std::string& source);
/// Throws InputError naming each rate and each figure of the cluster that is an assumption and matters: a reduction by
/// a tenth would change the step by a thousandth or more, or change whether the plan fits. `source`: the plan's file or
/// another description of its origin.
void refuse_assumptions(const program::Program& program, const std::string& source);

}  // namespace orrery::cli
