#include "tests/house/json_schema.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <regex>
#include <stdexcept>
#include <string_view>
#include <utility>
#include <vector>

namespace orrery::house {
namespace {

using json = nlohmann::json;
using Errors = std::vector<std::string>;

constexpr std::string_view kSuffix = ".schema.json";

std::string joined(const Errors& errors) {
    std::string text;
    for (const std::string& error : errors) text += (text.empty() ? "" : "\n") + error;
    return text;
}

std::string below_of(std::string at, const std::string& key) {
    return at.append("/").append(key);
}

std::string place_in(std::string file, const std::string& at) {
    return file.append("#").append(at);
}

class Checker {
  public:
    explicit Checker(const std::map<std::string, json>& files) : files_(files) {}

    /// Violations by the value at the path `at` of a schema in `file`.
    [[nodiscard]] Errors errors_of(const json& value, const json& schema, const std::string& file,
                                   const std::string& at) const {
        Errors errors;
        if (schema.is_boolean()) {
            if (!schema.get<bool>()) errors.push_back(at + ": nothing is allowed here");
            return errors;
        }
        if (schema.contains("$ref")) {
            const Target target = resolve(schema.at("$ref").get<std::string>(), file);
            if (target.schema == nullptr) {
                errors.push_back(at + ": dangling $ref " + shortened(schema.at("$ref")) + " in " + file);
            } else {
                append(errors, errors_of(value, *target.schema, target.file, at));
            }
        }
        check_value(value, schema, at, errors);
        check_combinations(value, schema, file, at, errors);
        if (value.is_object()) check_object(value, schema, file, at, errors);
        if (value.is_array()) check_array(value, schema, file, at, errors);
        return errors;
    }

    /// Appends errors in the schema itself.
    void walk_schema(const json& schema, const std::string& file, const std::string& at, Errors& errors) const {
        static constexpr std::array kPlain = {"$schema",
                                              "$id",
                                              "$comment",
                                              "title",
                                              "description",
                                              "examples",
                                              "default",
                                              "type",
                                              "required",
                                              "enum",
                                              "const",
                                              "minimum",
                                              "maximum",
                                              "exclusiveMinimum",
                                              "exclusiveMaximum",
                                              "minLength",
                                              "pattern",
                                              "minItems",
                                              "maxItems",
                                              "uniqueItems",
                                              "minProperties"};
        static constexpr std::array kSchemas = {"items", "additionalProperties", "propertyNames", "not", "if", "then",
                                                "else"};
        if (schema.is_boolean()) return;
        if (!schema.is_object()) {
            errors.push_back(place_in(file, at) + ": a schema is an object or a boolean");
            return;
        }
        for (const auto& [keyword, value] : schema.items()) {
            const std::string below = below_of(at, keyword);
            if (keyword == "$ref") {
                if (!value.is_string() || resolve(value.get<std::string>(), file).schema == nullptr) {
                    errors.push_back(place_in(file, below) + ": dangling reference " + value.dump());
                }
            } else if (keyword == "properties" || keyword == "$defs") {
                for (const auto& [name, one] : value.items()) walk_schema(one, file, below_of(below, name), errors);
            } else if (std::find(kSchemas.begin(), kSchemas.end(), keyword) != kSchemas.end()) {
                walk_schema(value, file, below, errors);
            } else if (keyword == "oneOf" || keyword == "anyOf" || keyword == "allOf") {
                for (const json& one : value) walk_schema(one, file, below, errors);
            } else if (std::find(kPlain.begin(), kPlain.end(), keyword) == kPlain.end()) {
                errors.push_back(place_in(file, below) + ": keyword not supported by tests/house/json_schema.cpp");
            }
        }
    }

  private:
    static std::string shortened(const json& value) {
        const std::string text = value.dump();
        return text.size() > 80 ? text.substr(0, 77) + "..." : text;
    }

    struct Target {
        const json* schema = nullptr;
        std::string file;
    };
    /// Resolves "#/$defs/x" in the same file, or a sibling file with or without such a pointer.
    [[nodiscard]] Target resolve(const std::string& reference, const std::string& file) const {
        const std::size_t hash = reference.find('#');
        const std::string name = hash == 0 ? file : reference.substr(0, hash);
        const auto found = files_.find(name);
        if (found == files_.end()) return {};
        if (hash == std::string::npos || hash + 1 == reference.size()) return {&found->second, name};
        const json::json_pointer pointer(reference.substr(hash + 1));
        return found->second.contains(pointer) ? Target{&found->second.at(pointer), name} : Target{};
    }

    static bool has_type(const json& value, const std::string& type) {
        if (type == "object") return value.is_object();
        if (type == "array") return value.is_array();
        if (type == "string") return value.is_string();
        if (type == "boolean") return value.is_boolean();
        if (type == "null") return value.is_null();
        if (type == "number") return value.is_number();
        if (type == "integer") {
            return value.is_number_integer() ||
                   (value.is_number_float() && std::floor(value.get<double>()) == value.get<double>());
        }
        return false;
    }

    static void append(Errors& errors, const Errors& more) { errors.insert(errors.end(), more.begin(), more.end()); }

    static void check_value(const json& value, const json& schema, const std::string& at, Errors& errors) {
        if (schema.contains("type")) {
            const json& type = schema.at("type");
            const bool fits = type.is_array() ? std::any_of(type.begin(), type.end(),
                                                            [&](const json& one) { return has_type(value, one); })
                                              : has_type(value, type);
            if (!fits) errors.push_back(at + ": got " + shortened(value) + ", want type " + type.dump());
        }
        if (schema.contains("const") && value != schema.at("const")) {
            errors.push_back(at + ": got " + shortened(value) + ", want " + schema.at("const").dump());
        }
        if (schema.contains("enum")) {
            const json& all = schema.at("enum");
            if (std::find(all.begin(), all.end(), value) == all.end()) {
                errors.push_back(at + ": got " + shortened(value) + ", want one of " + all.dump());
            }
        }
        if (value.is_number()) check_bounds(value.get<double>(), schema, at, errors);
        if (value.is_string()) {
            const std::string text = value.get<std::string>();
            if (schema.contains("minLength") && text.size() < schema.at("minLength").get<std::size_t>()) {
                errors.push_back(at + ": the string is too short");
            }
            if (schema.contains("pattern") &&
                !std::regex_search(text, std::regex(schema.at("pattern").get<std::string>()))) {
                errors.push_back(at + ": got " + shortened(value) + ", want pattern " + schema.at("pattern").dump());
            }
        }
    }

    static void check_bounds(double number, const json& schema, const std::string& at, Errors& errors) {
        const auto breaks = [&](const char* keyword, auto allowed) {
            if (schema.contains(keyword) && !allowed(number, schema.at(keyword).get<double>())) {
                errors.push_back(at + ": got " + std::to_string(number) + ", want " + keyword + " " +
                                 schema.at(keyword).dump());
            }
        };
        breaks("minimum", [](double a, double b) { return a >= b; });
        breaks("maximum", [](double a, double b) { return a <= b; });
        breaks("exclusiveMinimum", [](double a, double b) { return a > b; });
        breaks("exclusiveMaximum", [](double a, double b) { return a < b; });
    }

    void check_combinations(const json& value, const json& schema, const std::string& file, const std::string& at,
                            Errors& errors) const {
        const auto passing = [&](const char* keyword, Errors& nearest) {
            std::size_t count = 0;
            for (const json& one : schema.at(keyword)) {
                Errors found = errors_of(value, one, file, at);
                count += found.empty() ? 1 : 0;
                // Report the errors of the branch whose type matches.
                if (nearest.empty() || (!found.empty() && found.front().find(", want type ") == std::string::npos))
                    nearest = found;
            }
            return count;
        };
        Errors nearest;
        if (schema.contains("allOf")) {
            for (const json& one : schema.at("allOf")) append(errors, errors_of(value, one, file, at));
        }
        for (const char* keyword : {"anyOf", "oneOf"}) {
            if (!schema.contains(keyword)) continue;
            const std::size_t count = passing(keyword, nearest);
            if (count == 1 || (count > 1 && keyword == std::string("anyOf"))) continue;
            errors.push_back(at + ": got " + shortened(value) + ", which fits " + std::to_string(count) + " of " +
                             keyword);
            if (count == 0) append(errors, nearest);
        }
        if (schema.contains("if")) {
            const char* branch = errors_of(value, schema.at("if"), file, at).empty() ? "then" : "else";
            if (schema.contains(branch)) append(errors, errors_of(value, schema.at(branch), file, at));
        }
        if (schema.contains("not") && errors_of(value, schema.at("not"), file, at).empty()) {
            errors.push_back(at + ": got " + shortened(value) + ", which \"not\" excludes");
        }
    }

    void check_object(const json& value, const json& schema, const std::string& file, const std::string& at,
                      Errors& errors) const {
        if (schema.contains("required")) {
            for (const json& key : schema.at("required")) {
                if (!value.contains(key.get<std::string>())) errors.push_back(at + ": missing " + key.dump());
            }
        }
        if (schema.contains("minProperties") && value.size() < schema.at("minProperties").get<std::size_t>()) {
            errors.push_back(at + ": too few properties");
        }
        const json properties = schema.value("properties", json::object());
        for (const auto& [key, member] : value.items()) {
            const std::string below = below_of(at, key);
            if (schema.contains("propertyNames")) {
                append(errors, errors_of(json(key), schema.at("propertyNames"), file, below));
            }
            if (properties.contains(key)) {
                append(errors, errors_of(member, properties.at(key), file, below));
            } else if (schema.contains("additionalProperties")) {
                const json& rest = schema.at("additionalProperties");
                if (rest == false) {
                    errors.push_back(below + ": unknown property");
                } else {
                    append(errors, errors_of(member, rest, file, below));
                }
            }
        }
    }

    void check_array(const json& value, const json& schema, const std::string& file, const std::string& at,
                     Errors& errors) const {
        if (schema.contains("minItems") && value.size() < schema.at("minItems").get<std::size_t>()) {
            errors.push_back(at + ": too few items");
        }
        if (schema.contains("maxItems") && value.size() > schema.at("maxItems").get<std::size_t>()) {
            errors.push_back(at + ": too many items");
        }
        if (schema.value("uniqueItems", false)) {
            for (std::size_t i = 0; i < value.size(); ++i) {
                const auto begin = value.begin() + static_cast<std::ptrdiff_t>(i);
                if (std::find(begin + 1, value.end(), *begin) != value.end()) errors.push_back(at + ": repeated item");
            }
        }
        if (!schema.contains("items")) return;
        for (std::size_t i = 0; i < value.size(); ++i) {
            append(errors, errors_of(value[i], schema.at("items"), file, below_of(at, std::to_string(i))));
        }
    }

    const std::map<std::string, json>& files_;
};

}  // namespace

SchemaSet SchemaSet::load(const std::string& folder) {
    SchemaSet set;
    if (!std::filesystem::is_directory(folder)) return set;
    for (const auto& entry : std::filesystem::directory_iterator(folder)) {
        const std::string name = entry.path().filename().string();
        if (name.size() < kSuffix.size() || name.substr(name.size() - kSuffix.size()) != kSuffix) continue;
        std::ifstream stream(entry.path());
        json schema = json::parse(stream, nullptr, false);
        if (schema.is_discarded()) throw std::runtime_error(entry.path().string() + ": not JSON");
        set.add(name, std::move(schema));
    }
    return set;
}

std::string SchemaSet::file_for(const std::string& kind) const {
    for (const auto& [name, schema] : files_) {
        const json::json_pointer pointer("/properties/schema/const");
        if (schema.contains(pointer) && schema.at(pointer) == kind) return name;
    }
    return "";
}

std::string SchemaSet::check(const std::string& document_text) const {
    const json document = json::parse(document_text, nullptr, false);
    if (document.is_discarded()) return "the document is not JSON";
    if (!document.is_object() || !document.contains("schema") || !document.at("schema").is_string()) {
        return "the document has no \"schema\"";
    }
    const std::string kind = document.at("schema").get<std::string>();
    const std::string file = file_for(kind);
    return file.empty() ? "no schema file for " + kind : check_against(document, file);
}

std::string SchemaSet::check_against(const json& document, const std::string& file) const {
    if (files_.count(file) == 0) return "no schema file " + file;
    return joined(Checker(files_).errors_of(document, files_.at(file), file, ""));
}

std::string SchemaSet::check_schema(const std::string& file) const {
    Errors errors;
    Checker(files_).walk_schema(files_.at(file), file, "", errors);
    return joined(errors);
}

SchemaSet repository_schemas(const std::string& source_dir) {
    return SchemaSet::load(source_dir + "/docs/schema");
}

}  // namespace orrery::house
