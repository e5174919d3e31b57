// What a model is, in words: its parameters, its layers, and what of its file it leaves out.
#pragma once

#include <string>

#include "models/model_spec.h"

namespace orrery::reports {

/// "8.03 B parameters", "671 B parameters, 37.6 B of them active"
[[nodiscard]] std::string parameters_text(const models::ModelSpec& model);

/// A line for each of ModelSpec::left_out, behind so many spaces; empty where nothing was.
[[nodiscard]] std::string left_out_text(const models::ModelSpec& model, int indent = 0);

/// All of it, as `orrery models NAME` prints it.
[[nodiscard]] std::string model_text(const models::ModelSpec& model);

}  // namespace orrery::reports
