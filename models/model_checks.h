// What the readers of model descriptions share. Not for other rooms.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/model_spec.h"

namespace orrery::models {

/// As check_model in model_spec.h; `pointer_of` turns our key ("layers", "rope_scaling/factor") into the JSON pointer
/// that the user wrote, so that a Hugging Face file's errors name Hugging Face's keys.
void check_model(const ModelSpec& model, const std::string& source,
                 const std::function<std::string(const std::string&)>& pointer_of);

/// As read_hugging_face_config in model_spec.h, of a file whose text is already at hand.
[[nodiscard]] ModelSpec hugging_face_from_text(const std::string& text, const std::string& path,
                                               ModelParts parts = ModelParts::whole);

/// The architectures we know, by their Hugging Face model_type.
[[nodiscard]] const std::vector<std::string>& family_names();

}  // namespace orrery::models
