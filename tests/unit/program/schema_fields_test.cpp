// The properties that docs/schema lists for a plan and an implementation are those of the field lists by which their
// files are read and written: the same keys in the same order, of the same types, with limits that are no wider.
// ORRERY_RECORD=1 writes the schemas again; what is there stays, such as descriptions and narrower limits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "core/file.h"
#include "models/implementation_fields.h"
#include "sim/program/plan_fields.h"

namespace orrery::program {
namespace {

using Json = nlohmann::ordered_json;

Json number_schema(const char* type, double low, bool low_open, double high, bool high_open) {
    Json schema{{"type", type}};
    const auto limit = [&](const char* key, double value) {
        const auto whole = static_cast<std::int64_t>(value);
        schema[key] = static_cast<double>(whole) == value ? Json(whole) : Json(value);
    };
    if (low > -kLargestNumber) limit(low_open ? "exclusiveMinimum" : "minimum", low);
    if (high < kLargestNumber) limit(high_open ? "exclusiveMaximum" : "maximum", high);
    return schema;
}
Json schema_of(IntegerRange range) {
    const IntegerRange all;
    return number_schema("integer", range.low == all.low ? -kLargestNumber : static_cast<double>(range.low), false,
                         range.high == all.high ? kLargestNumber : static_cast<double>(range.high), false);
}
Json schema_of(NumberRange range) {
    if (range.low == kSmallestNumber) return number_schema("number", 0, true, range.high, range.high_open);
    return number_schema("number", range.low, range.low_open, range.high, range.high_open);
}

template <HasFields Object>
Json properties_of();

template <typename Field, typename... Limits>
Json schema_of_field(const Limits&... limits) {
    if constexpr (std::same_as<Field, bool>) {
        return {{"type", "boolean"}};
    } else if constexpr (std::integral<Field> || std::floating_point<Field>) {
        return schema_of(limits...);
    } else if constexpr (std::same_as<Field, std::string>) {
        return {{"type", "string"}};
    } else if constexpr (std::same_as<Field, std::vector<std::string>>) {
        return {{"type", "array"}, {"items", {{"type", "string"}}}};
    } else if constexpr (std::same_as<Field, std::vector<std::int64_t>> || std::same_as<Field, std::vector<double>>) {
        return {{"type", "array"}, {"items", schema_of(limits...)}};
    } else if constexpr (std::same_as<Field, DType>) {
        return {{"enum", (limits.names, ...)}};
    } else if constexpr (std::same_as<Field, MeshOrder>) {
        return {{"type", "array"}, {"items", {{"enum", names_of<MeshAxis>()}}}};
    } else if constexpr (std::same_as<Field, models::MemoryFigure>) {
        return {{"$ref", "#/$defs/figure"}};
    } else if constexpr (HasFields<Field>) {
        return {{"type", "object"}, {"additionalProperties", false}, {"properties", properties_of<Field>()}};
    } else {
        return {{"enum", names_of<Field>()}};
    }
}

template <HasFields Object>
Json properties_of() {
    Json properties = Json::object();
    Object object;
    visit_fields(object, [&properties](const char* key, const auto& field, const auto&... limits) {
        properties[key] = schema_of_field<std::remove_cvref_t<decltype(field)>>(limits...);
    });
    return properties;
}

/// The node of `schema` that describes the value itself, where several forms are allowed: the last of them.
Json& described(Json& schema) {
    return schema.contains("oneOf") ? described(schema["oneOf"].back()) : schema;
}

double limit_of(const Json& schema, const char* closed, const char* open, double none) {
    return schema.contains(closed) ? schema[closed].get<double>()
           : schema.contains(open) ? schema[open].get<double>()
                                   : none;
}

/// Whether what `schema` says is allowed by `code` too; what it refers to is not looked at.
bool agrees(const Json& schema, const Json& code) {
    if (schema.contains("$ref")) return true;
    if (schema.contains("enum")) {
        if (!code.contains("enum")) return code.value("type", "") == "string";
        return schema["enum"] == code["enum"];
    }
    if (schema.value("type", "") != code.value("type", "")) return false;
    if (code.contains("items")) return agrees(schema["items"], code["items"]);
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    return limit_of(schema, "minimum", "exclusiveMinimum", -kInfinity) >=
               limit_of(code, "minimum", "exclusiveMinimum", -kInfinity) &&
           limit_of(schema, "maximum", "exclusiveMaximum", kInfinity) <=
               limit_of(code, "maximum", "exclusiveMaximum", kInfinity);
}

/// `properties` of a schema as the code has them, with what is already said of each.
Json updated(Json properties, const Json& code, const std::string& leading_keys) {
    Json result = Json::object();
    for (auto& [key, property] : properties.items()) {
        if (leading_keys.find(" " + key + " ") != std::string::npos) result[key] = property;
    }
    for (const auto& [key, expected] : code.items()) {
        Json property = properties.contains(key) ? properties[key] : expected;
        Json& value = described(property);
        if (expected.contains("properties") && value.contains("properties")) {
            value["properties"] = updated(value["properties"], expected["properties"], "");
        } else if (!agrees(value, expected)) {
            for (const auto& [name, what] : expected.items()) value[name] = what;
        }
        result[key] = std::move(property);
    }
    return result;
}

void expect_schema(const std::string& file, const std::string& pointer, const Json& code,
                   const std::string& leading_keys = "") {
    const std::string path = (std::filesystem::path(ORRERY_SOURCE_DIR) / "docs" / "schema" / file).string();
    Json schema = Json::parse(read_text_file(path));
    Json& properties = schema.at(Json::json_pointer(pointer));
    const Json now = updated(properties, code, leading_keys);
    const bool same = now.dump() == properties.dump();
    if (!same && std::getenv("ORRERY_RECORD") != nullptr) {
        properties = now;
        write_file_atomically(path, schema.dump(2) + "\n");
        return;
    }
    EXPECT_TRUE(same) << file << pointer << ": ORRERY_RECORD=1 writes it\n" << Json::diff(properties, now).dump(1);
}

TEST(SchemaFields, OfAPlanAreThoseThatAreRead) {
    const char* file = "orrery.plan.1.schema.json";
    expect_schema(file, "/properties/parallelism/properties", properties_of<Parallelism>());
    expect_schema(file, "/properties/training/properties", properties_of<Training>());
}

TEST(SchemaFields, OfAnImplementationAreThoseThatAreRead) {
    expect_schema("orrery.implementation.1.schema.json", "/properties", properties_of<models::Implementation>(),
                  " schema name version source based_on ");
}

TEST(SchemaFields, AWiderLimitAndAnotherTypeDisagree) {
    const Json code = schema_of(IntegerRange{1, 8});
    EXPECT_TRUE(agrees({{"type", "integer"}, {"minimum", 2}, {"maximum", 8}}, code));
    EXPECT_FALSE(agrees({{"type", "integer"}, {"minimum", 0}, {"maximum", 8}}, code));
    EXPECT_FALSE(agrees({{"type", "integer"}, {"minimum", 1}}, code));
    EXPECT_FALSE(agrees({{"type", "number"}, {"minimum", 1}, {"maximum", 8}}, code));
    const Json more{{"tp", code}, {"pp", code}};
    EXPECT_EQ(updated({{"old", code}, {"tp", {{"type", "integer"}, {"minimum", 1}, {"maximum", 2}}}}, more, "").dump(),
              R"({"tp":{"type":"integer","minimum":1,"maximum":2},"pp":{"type":"integer","minimum":1,"maximum":8}})");
}

}  // namespace
}  // namespace orrery::program
