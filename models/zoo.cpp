// Models by name or path.
#include <algorithm>
#include <filesystem>
#include <map>

#include "core/embedded.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"
#include "models/model_checks.h"
#include "models/model_spec.h"

namespace orrery {
std::span<const EmbeddedFile> zoo_files();
}

namespace orrery::models {
namespace {

/// Keyed by the "name" in each file, since names may contain dots, which are cut off from the embedded file name.
const std::map<std::string, std::string_view>& zoo() {
    static const std::map<std::string, std::string_view> models = [] {
        std::map<std::string, std::string_view> found;
        for (const EmbeddedFile& file : zoo_files()) {
            const std::string text(file.content);
            const std::string name = JsonReader::parse(text, "zoo/" + std::string(file.name)).string("name");
            ORRERY_CHECK(found.emplace(name, file.content).second, "two models of the zoo are named " + name);
        }
        return found;
    }();
    return models;
}

/// Reads the file only once, since it may be a pipe.
ModelSpec read_model_file(const std::string& path, ModelParts parts) {
    const std::string text = read_text_file(path);
    // Hugging Face files may contain Infinity and NaN, so the text cannot be parsed before the format is known.
    const bool has_schema = text.find("\"orrery.") != std::string::npos;
    return has_schema ? model_from_json_text(text, path) : hugging_face_from_text(text, path, parts);
}

}  // namespace

std::vector<std::string> zoo_names() {
    std::vector<std::string> names;
    for (const auto& [name, content] : zoo()) names.push_back(name);
    return names;
}

ModelSpec load_model(const std::string& name_or_path, ModelParts parts) {
    const std::map<std::string, std::string_view>& known = zoo();
    if (const auto found = known.find(name_or_path); found != known.end()) {
        return model_from_json_text(std::string(found->second), "zoo/" + name_or_path);
    }
    std::error_code error;
    const std::filesystem::path path(name_or_path);
    if (std::filesystem::is_directory(path, error)) {
        return read_hugging_face_config((path / "config.json").string(), parts);
    }
    if (std::filesystem::exists(path, error)) return read_model_file(name_or_path, parts);
    std::string list;
    for (const auto& [name, content] : known) list += (list.empty() ? "" : ", ") + name;
    const std::string nearest = nearest_name(name_or_path, zoo_names());
    throw InputError(
        "model \"" + name_or_path + "\": no model of the zoo and no file or folder has this name" +
        (nearest.empty() ? ";" : "; did you mean \"" + nearest + "\"?") +
        " allowed: the path of a config.json, of a folder with one, of an orrery.model/1 file, or one of " + list);
}

}  // namespace orrery::models
