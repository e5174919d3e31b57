// A model as text: its parameters, its layers, and the parts of its file that are left out.
#pragma once

#include <cstdint>
#include <string>

#include "models/model_spec.h"

namespace orrery::reports {

/// "8.03 B parameters", "671 B parameters, 37.6 B of them active"
[[nodiscard]] std::string parameters_text(const models::ModelSpec& model);

/// What share of the model the layers of ModelSpec::left_out_prediction_layers would add.
struct LeftOutShares {
    double parameters = 0;  // of the model's parameters
    double flops = 0;       // of the model FLOPs of a sequence of the given length
};
[[nodiscard]] LeftOutShares left_out_shares(const models::ModelSpec& model, std::int64_t sequence_length);

/// A line for each of ModelSpec::left_out, and one with the size of prediction layers that are left out, each indented
/// by `indent` spaces; empty if there are none. The share of the FLOPs is that of a sequence of `sequence_length`
/// tokens; 0: it is not shown.
[[nodiscard]] std::string left_out_text(const models::ModelSpec& model, std::int64_t sequence_length, int indent = 0);

/// The whole output of `orrery models NAME`.
[[nodiscard]] std::string model_text(const models::ModelSpec& model);

}  // namespace orrery::reports
