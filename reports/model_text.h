// A model as text: its parameters, its layers, and the parts of its file that are left out.
#pragma once

#include <string>

#include "models/model_spec.h"

namespace orrery::reports {

/// "8.03 B parameters", "671 B parameters, 37.6 B of them active"
[[nodiscard]] std::string parameters_text(const models::ModelSpec& model);

/// A line for each of ModelSpec::left_out, indented by `indent` spaces; empty if there are none.
[[nodiscard]] std::string left_out_text(const models::ModelSpec& model, int indent = 0);

/// The whole output of `orrery models NAME`.
[[nodiscard]] std::string model_text(const models::ModelSpec& model);

}  // namespace orrery::reports
