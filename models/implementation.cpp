#include "models/implementation.h"

#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "core/embedded.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"
#include "models/implementation_fields.h"

namespace orrery {
std::span<const EmbeddedFile> implementation_files();
}

namespace orrery::models {
namespace {

constexpr const char* kImplementationSchema = "orrery.implementation/1";

bool shares_rates(const JsonReader& reader) {
    return reader.boolean_or("shares_rates", false);
}

/// By name: what each implementation is based on. Callers ask often, so that the files are read once.
std::map<std::string, Base, std::less<>> nearest_bases() {
    std::map<std::string, Base, std::less<>> nearest;
    for (const EmbeddedFile& file : implementation_files()) {
        const std::string name(file.name);
        const JsonReader reader =
            JsonReader::parse(std::string(file.content), "implementation " + name, JsonPolicy::lenient);
        if (!reader.has("based_on")) continue;
        nearest[name] = {.name = reader.string("based_on"), .shares_rates = shares_rates(reader)};
    }
    return nearest;
}

}  // namespace

const std::vector<std::string>& figure_kinds() {
    static const std::vector<std::string> kinds{"published", "fitted", "fallback"};
    return kinds;
}

void read_field(const JsonReader& reader, const std::string& key, MemoryFigure& figure, NumberRange range) {
    const JsonReader object = reader.object(key);
    figure = {object.number("value", range), object.choice("kind", figure_kinds()), object.string("source")};
    object.finish();
}

JsonValue field_json(const MemoryFigure& figure) {
    if (figure.source.empty()) return {};
    return JsonValue::object()
        .set("value", JsonValue(figure.value))
        .set("kind", JsonValue(figure.kind))
        .set("source", JsonValue(figure.source));
}

JsonValue field_json(const Support& support) {
    if (support.source.empty()) return {};
    JsonValue json = JsonValue::object();
    write_fields(json, support);
    return json;
}

std::vector<std::string> implementation_names() {
    std::vector<std::string> names;
    for (const EmbeddedFile& file : implementation_files()) names.emplace_back(file.name);
    std::sort(names.begin(), names.end());  // the files are sorted with their extension
    return names;
}

std::vector<Base> bases_of(const std::string& name) {
    static const std::map<std::string, Base, std::less<>> nearest = nearest_bases();
    std::vector<Base> bases;
    for (auto base = nearest.find(name); base != nearest.end(); base = nearest.find(base->second.name)) {
        bases.push_back(base->second);
    }
    return bases;
}

Implementation load_implementation(const std::string& name) {
    for (const EmbeddedFile& file : implementation_files()) {
        if (file.name == name)
            return implementation_from_json_text(std::string(file.content), "implementation " + name);
    }
    const std::vector<std::string> names = implementation_names();
    std::string list;
    for (const std::string& known : names) list += (list.empty() ? "" : ", ") + known;
    const std::string nearest = nearest_name(name, names);
    throw InputError("implementation \"" + name + "\": no implementation has this name" +
                     (nearest.empty() ? ";" : "; did you mean \"" + nearest + "\"?") + " allowed: " + list);
}

std::string to_json_text(const Implementation& implementation) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kImplementationSchema))
        .set("name", JsonValue(implementation.name))
        .set("version", JsonValue(implementation.version))
        .set("source", JsonValue(implementation.source));
    write_fields(json, implementation);
    return json.text(2) + "\n";
}

std::vector<std::string> differences(const Implementation& a, const Implementation& b) {
    const auto behaviour = [](const Implementation& implementation) {
        nlohmann::json json = nlohmann::json::parse(to_json_text(implementation));
        for (const char* key : {"name", "version", "source", "executable", "memory", "supports"}) json.erase(key);
        return json.flatten();
    };
    const nlohmann::json one = behaviour(a), other = behaviour(b);
    std::vector<std::string> keys;
    for (const auto& [key, value] : one.items()) {
        if (!other.contains(key) || other.at(key) != value) keys.push_back(key.substr(1));
    }
    return keys;
}

Implementation implementation_from_json(const JsonReader& reader) {
    reader.expect_schema(kImplementationSchema);
    Implementation result;
    if (reader.has("based_on")) {
        const std::string base = reader.string("based_on");
        if (base == reader.string("name")) reader.fail("based_on", "the name of another implementation");
        result = load_implementation(base);
        result.executable = false;
    }
    if (shares_rates(reader) && !reader.has("based_on")) {
        reader.fail("shares_rates", "false, or \"based_on\" with the implementation that has the rates");
    }
    result.name = reader.string("name");
    result.version = reader.string("version");
    result.source = reader.string("source");
    read_fields(reader, result);
    if (reader.has("supports") && result.supports.source.empty()) {
        reader.object("supports").fail("source", "a text that names where these facts were read");
    }
    reader.finish();
    return result;
}

Implementation implementation_from_json_text(const std::string& text, const std::string& file) {
    return implementation_from_json(JsonReader::parse(text, file));
}

}  // namespace orrery::models
