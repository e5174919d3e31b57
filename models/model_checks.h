// Private to models/: shared by the readers of model descriptions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "models/model_spec.h"

namespace orrery::models {

/// Like check_model in model_spec.h; `pointer_of` maps a ModelSpec key ("layers", "rope_scaling/factor") to the JSON
/// pointer in the file, so that errors about a Hugging Face file name Hugging Face's keys.
void check_model(const ModelSpec& model, const std::string& source,
                 const std::function<std::string(const std::string&)>& pointer_of);

/// Like read_hugging_face_config in model_spec.h, for the given text of the file.
[[nodiscard]] ModelSpec hugging_face_from_text(const std::string& text, const std::string& path,
                                               ModelParts parts = ModelParts::whole);

/// The supported architectures, by their Hugging Face model_type.
[[nodiscard]] const std::vector<std::string>& family_names();

}  // namespace orrery::models
