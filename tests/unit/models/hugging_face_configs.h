// Hugging Face configurations that tests change and read.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "models/model_spec.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::models {

inline ModelSpec read_config(const nlohmann::ordered_json& config, ModelParts parts = ModelParts::whole) {
    const TestFolder folder;
    std::ofstream(folder.file("config.json")) << config.dump();
    return read_hugging_face_config(folder.file("config.json"), parts);
}
inline nlohmann::ordered_json with(nlohmann::ordered_json config, const std::string& key,
                                   const nlohmann::ordered_json& value) {
    config[key] = value;
    return config;
}
inline nlohmann::ordered_json without(nlohmann::ordered_json config, const std::string& key) {
    config.erase(key);
    return config;
}

}  // namespace orrery::models
