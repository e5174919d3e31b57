#include "cli/plan_edit.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string_view>

#include "core/error.h"

namespace orrery::cli {
namespace {

using Json = nlohmann::ordered_json;

[[noreturn]] void refuse(const std::string& path, const std::string& value, const std::string& allowed) {
    throw InputError("command line", path, value, allowed);
}

std::vector<std::string> parts_of(const std::string& path) {
    std::vector<std::string> parts(1);
    for (const char letter : path) {
        if (letter == '.') {
            parts.emplace_back();
        } else {
            parts.back() += letter;
        }
    }
    return parts;
}

std::string keys_of(const Json& node) {
    if (node.is_array()) return node.empty() ? "an empty list" : "0 to " + std::to_string(node.size() - 1);
    std::string keys;
    for (const auto& [key, value] : node.items()) keys += (keys.empty() ? "" : ", ") + key;
    return keys.empty() ? "nothing: this is a value" : keys;
}

/// Of a key that the file does not have, and that may be added.
constexpr const char* kAbsent = "absent";
bool is_addition(const std::string& text) {
    return text.starts_with('[') || text.starts_with('{') || text == kAbsent;
}

/// The node at the path, or of a figure its value. Null for the last key of the path if it may be added and is absent.
Json& node_at(Json& plan, const std::string& path, bool may_add) {
    Json* node = &plan;
    std::string before = "the plan";
    const std::vector<std::string> parts = parts_of(path);
    for (const std::string& part : parts) {
        std::size_t place = 0;
        const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), place);
        const bool is_place = error == std::errc() && end == part.data() + part.size();
        const bool adds = may_add && &part == &parts.back() && !part.empty();
        if (node->is_object() && (node->contains(part) || adds)) {
            node = &(*node)[part];
        } else if (node->is_array() && is_place && place < node->size()) {
            node = &(*node)[place];
        } else {
            refuse(path, part.empty() ? "an empty key" : part, "of " + before + ": " + keys_of(*node));
        }
        before = part;
    }
    if (node->is_object() && node->contains("value") && node->contains("source")) {
        (*node)["source"] = "what if";
        return (*node)["value"];
    }
    return *node;
}

std::optional<double> number_in(std::string_view text) {
    double number = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(number)) return {};
    return number;
}

void set(Json& node, const std::string& path, const std::string& text) {
    if (node.is_null()) {
        node = Json::parse(text, nullptr, false);
        if (node.is_discarded()) refuse(path, text, "JSON, since the plan does not have this key");
    } else if (node.is_number()) {
        const bool is_factor = text.ends_with('x');
        const std::optional<double> number =
            number_in(std::string_view(text).substr(0, text.size() - (is_factor ? 1 : 0)));
        if (!number) refuse(path, text, "a number, or a factor such as 0.75x");
        const double value = is_factor ? node.get<double>() * *number : *number;
        // The file's integers stay integers, so that they are read as such.
        if (node.is_number_integer()) {
            if (value != std::floor(value) || std::abs(value) > 1e15) refuse(path, text, "a value that is an integer");
            node = static_cast<std::int64_t>(value);
        } else {
            node = value;
        }
    } else if (node.is_boolean()) {
        if (text != "true" && text != "false") refuse(path, text, "true or false");
        node = text == "true";
    } else if (node.is_string()) {
        node = text;
    } else {
        node = Json::parse(text, nullptr, false);
        if (node.is_discarded()) refuse(path, text, "JSON");
    }
}

}  // namespace

InputValues input_values(const std::string& text) {
    const std::size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == text.size()) {
        throw InputError("command line", "--set", text, "PATH=VALUE or PATH=VALUE,VALUE,...");
    }
    InputValues parsed{.path = text.substr(0, equals), .values = {""}};
    int depth = 0;
    for (const char letter : text.substr(equals + 1)) {
        if (letter == '[' || letter == '{') ++depth;
        if (letter == ']' || letter == '}') --depth;
        if (letter == ',' && depth == 0) {
            parsed.values.emplace_back();
        } else {
            parsed.values.back() += letter;
        }
    }
    if (std::count(parsed.values.begin(), parsed.values.end(), "") > 0) {
        throw InputError("command line", "--set", text, "no empty value");
    }
    return parsed;
}

EditablePlan::EditablePlan(const program::Plan& plan) : text_(program::to_json_text(plan)) {}

std::string EditablePlan::value(const std::string& path, const std::vector<std::string>& values) const {
    Json plan = Json::parse(text_);
    const Json& node = node_at(plan, path, std::all_of(values.begin(), values.end(), is_addition));
    if (node.is_null()) return kAbsent;
    return node.is_string() ? node.get<std::string>() : node.dump();
}

std::string EditablePlan::value_in_file(const std::string& path) const {
    Json plan = Json::parse(text_);
    const Json& node = node_at(plan, path, true);
    return node.is_null() ? kAbsent : node.dump();
}

std::vector<std::string> EditablePlan::numbers_below(const std::string& path) const {
    Json plan = Json::parse(text_);
    std::vector<std::string> paths;
    const auto visit = [&](const auto& self, const std::string& here) -> void {
        Json& node = node_at(plan, here, false);
        if (node.is_number_float() && node.get<double>() > 0) paths.push_back(here);
        if (node.is_object()) {
            for (const auto& [key, value] : node.items()) self(self, here + "." + key);
        }
        for (std::size_t i = 0; node.is_array() && i < node.size(); ++i) self(self, here + "." + std::to_string(i));
    };
    visit(visit, path);
    return paths;
}

EditablePlan::Edited EditablePlan::edited(const std::vector<std::string>& paths,
                                          const std::vector<std::string>& values) const {
    Json plan = Json::parse(text_);
    Edited edited;
    std::string name = "the plan with";
    bool adds = false;
    for (std::size_t i = 0; i < paths.size(); ++i) {
        if (values[i] == kAbsent && value(paths[i], {kAbsent}) == kAbsent) {
            edited.values.emplace_back(kAbsent);
            continue;
        }
        Json& node = node_at(plan, paths[i], is_addition(values[i]));
        adds = adds || node.is_null();
        set(node, paths[i], values[i]);
        edited.values.push_back(node.dump());
        name += " " + paths[i] + "=" + values[i];
    }
    edited.text = plan.dump();
    edited.name = std::move(name);
    edited.adds_keys = adds;
    return edited;
}

std::vector<std::string> EditablePlan::values_in_file(const std::vector<std::string>& paths,
                                                      const std::vector<std::string>& values) const {
    Edited edited = this->edited(paths, values);
    // Whether there is such a key, only the reader knows.
    if (edited.adds_keys) (void)program::plan_from_json_text(edited.text, edited.name);
    return std::move(edited.values);
}

program::Plan EditablePlan::with(const std::vector<std::string>& paths, const std::vector<std::string>& values) const {
    const Edited edited = this->edited(paths, values);
    return program::plan_from_json_text(edited.text, edited.name);
}

}  // namespace orrery::cli
