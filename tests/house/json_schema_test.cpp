// Tests the validator on small schemas, then checks docs/schema and our data files with it.
#include "tests/house/json_schema.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>

namespace orrery::house {
namespace {

using nlohmann::json;

/// Whether `document` conforms to `schema`, with "other.schema.json" as a sibling file.
bool conforms(const char* schema, const char* document) {
    SchemaSet set;
    set.add("one.schema.json", json::parse(schema));
    set.add("other.schema.json", json::parse(R"({"$defs": {"even": {"enum": [0, 2, 4]}}, "type": "string"})"));
    EXPECT_EQ(set.check_schema("one.schema.json"), "") << schema;
    return set.check_against(json::parse(document), "one.schema.json").empty();
}

TEST(JsonSchema, Types) {
    EXPECT_TRUE(conforms(R"({"type": "integer"})", "3"));
    EXPECT_TRUE(conforms(R"({"type": "integer"})", "3.0"));
    EXPECT_FALSE(conforms(R"({"type": "integer"})", "3.5"));
    EXPECT_FALSE(conforms(R"({"type": "integer"})", "\"3\""));
    EXPECT_TRUE(conforms(R"({"type": "number"})", "3"));
    EXPECT_TRUE(conforms(R"({"type": ["number", "null"]})", "null"));
    EXPECT_FALSE(conforms(R"({"type": ["number", "null"]})", "true"));
    EXPECT_FALSE(conforms(R"({"type": "object"})", "[]"));
}

TEST(JsonSchema, Objects) {
    const char* schema = R"({"type": "object", "required": ["a"], "additionalProperties": false,
                             "properties": {"a": {"type": "string"}, "b": {"type": "number"}}})";
    EXPECT_TRUE(conforms(schema, R"({"a": "x", "b": 1})"));
    EXPECT_FALSE(conforms(schema, R"({"b": 1})"));
    EXPECT_FALSE(conforms(schema, R"({"a": 1})"));
    EXPECT_FALSE(conforms(schema, R"({"a": "x", "c": 1})"));
    EXPECT_FALSE(conforms(R"({"additionalProperties": {"type": "string"}})", R"({"any": 1})"));
    EXPECT_TRUE(conforms(R"({"additionalProperties": {"type": "string"}})", R"({"any": "x"})"));
}

TEST(JsonSchema, ArraysAndBounds) {
    const char* schema = R"({"type": "array", "minItems": 1, "items": {"type": "number", "exclusiveMinimum": 0}})";
    EXPECT_TRUE(conforms(schema, "[1, 0.5]"));
    EXPECT_FALSE(conforms(schema, "[]"));
    EXPECT_FALSE(conforms(schema, "[1, 0]"));
    EXPECT_TRUE(conforms(R"({"minimum": 0})", "0"));
    EXPECT_FALSE(conforms(R"({"minimum": 0})", "-1"));
    EXPECT_FALSE(conforms(R"({"maximum": 1})", "1.5"));
    EXPECT_FALSE(conforms(R"({"uniqueItems": true})", "[1, 2, 1]"));
    EXPECT_FALSE(conforms(R"({"pattern": "^a+$"})", "\"ab\""));
}

TEST(JsonSchema, References) {
    const char* schema = R"({"$defs": {"name": {"type": "string"}}, "properties": {
        "here": {"$ref": "#/$defs/name"}, "there": {"$ref": "other.schema.json"},
        "deep": {"$ref": "other.schema.json#/$defs/even"}}})";
    EXPECT_TRUE(conforms(schema, R"({"here": "x", "there": "y", "deep": 2})"));
    EXPECT_FALSE(conforms(schema, R"({"here": 1})"));
    EXPECT_FALSE(conforms(schema, R"({"there": 1})"));
    EXPECT_FALSE(conforms(schema, R"({"deep": 1})"));
}

TEST(JsonSchema, Combinations) {
    const char* one_of = R"({"oneOf": [{"type": "number"}, {"minimum": 5}]})";
    EXPECT_TRUE(conforms(one_of, "1"));
    EXPECT_FALSE(conforms(one_of, "6"));
    EXPECT_TRUE(conforms(R"({"anyOf": [{"const": 1}, {"const": "a"}]})", "\"a\""));
    EXPECT_FALSE(conforms(R"({"anyOf": [{"const": 1}, {"const": "a"}]})", "2"));
    EXPECT_FALSE(conforms(R"({"enum": ["x", "y"]})", "\"z\""));
    EXPECT_FALSE(conforms(R"({"allOf": [{"type": "number"}, {"minimum": 5}]})", "4"));
    EXPECT_FALSE(conforms(R"({"not": {"type": "null"}})", "null"));
}

TEST(JsonSchema, ConditionsAndPropertyNames) {
    const char* schema = R"({"if": {"properties": {"kind": {"const": "a"}}, "required": ["kind"]},
                             "then": {"required": ["x"]}, "else": {"required": ["y"]}})";
    EXPECT_TRUE(conforms(schema, R"({"kind": "a", "x": 1})"));
    EXPECT_FALSE(conforms(schema, R"({"kind": "a", "y": 1})"));
    EXPECT_TRUE(conforms(schema, R"({"y": 1})"));
    EXPECT_FALSE(conforms(schema, R"({"x": 1})"));
    EXPECT_TRUE(conforms(R"({"propertyNames": {"pattern": "^/"}})", R"({"/a": 1})"));
    EXPECT_FALSE(conforms(R"({"propertyNames": {"pattern": "^/"}})", R"({"a": 1})"));
}

TEST(JsonSchema, FaultySchemasAreReported) {
    SchemaSet set;
    set.add("a.schema.json", json::parse(R"({"properties": {"x": {"patternProperties": {}}}})"));
    set.add("b.schema.json", json::parse(R"({"$ref": "#/$defs/none"})"));
    EXPECT_NE(set.check_schema("a.schema.json"), "");
    EXPECT_NE(set.check_schema("b.schema.json"), "");
    EXPECT_NE(set.check_against(json::parse("1"), "b.schema.json"), "");
    EXPECT_NE(set.check("{}"), "");
    EXPECT_NE(set.check("{"), "");
    EXPECT_NE(set.check(R"({"schema": "orrery.unheard-of/1"})"), "");
}

TEST(DocsSchema, EveryFileIsASchemaOfOneKind) {
    const SchemaSet schemas = repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_FALSE(schemas.files().empty());
    const std::regex kind_pattern(R"(^orrery\.[a-z_]+/[0-9]+$)");
    std::map<std::string, std::string> kinds;
    for (const auto& [name, schema] : schemas.files()) {
        SCOPED_TRACE(name);
        ASSERT_TRUE(schema.is_object());
        EXPECT_EQ(schema.value("$schema", ""), "https://json-schema.org/draft/2020-12/schema");
        EXPECT_TRUE(schema.contains("title") && schema.at("title").is_string());
        EXPECT_EQ(schemas.check_schema(name), "");
        const json::json_pointer pointer("/properties/schema/const");
        ASSERT_TRUE(schema.contains(pointer));
        const std::string kind = schema.at(pointer).get<std::string>();
        EXPECT_TRUE(std::regex_match(kind, kind_pattern)) << kind;
        std::string file_name = kind + ".schema.json";
        std::replace(file_name.begin(), file_name.end(), '/', '.');
        EXPECT_EQ(name, file_name);
        const std::string id = schema.value("$id", "");
        EXPECT_EQ(id, file_name) << "references between schemas are file names";
        EXPECT_TRUE(kinds.emplace(kind, name).second) << kind << " is also described by " << kinds.at(kind);
        const json required = schema.value("required", json::array());
        EXPECT_NE(std::find(required.begin(), required.end(), "schema"), required.end()) << "schema is not required";
    }
}

/// The `orrery.<kind>/<n>` in string literals of the sources.
std::set<std::string> kinds_in_sources() {
    static const std::regex literal(R"re("(orrery\.[a-z_]+/[0-9]+)")re");
    std::set<std::string> kinds;
    for (const char* room : {"core", "models", "topologies", "sim", "exec", "kernels", "reports", "cli"}) {
        const std::filesystem::path folder = std::filesystem::path(ORRERY_SOURCE_DIR) / room;
        for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
            if (entry.path().extension() != ".cpp" && entry.path().extension() != ".h") continue;
            std::ifstream stream(entry.path());
            for (std::string line; std::getline(stream, line);) {
                for (auto it = std::sregex_iterator(line.begin(), line.end(), literal); it != std::sregex_iterator();
                     ++it) {
                    kinds.insert((*it)[1]);
                }
            }
        }
    }
    return kinds;
}

TEST(DocsSchema, EveryKindNamedInTheSourcesHasASchema) {
    const SchemaSet schemas = repository_schemas(ORRERY_SOURCE_DIR);
    std::set<std::string> described;
    for (const auto& [name, schema] : schemas.files()) {
        described.insert(schema.at(json::json_pointer("/properties/schema/const")).get<std::string>());
    }
    EXPECT_EQ(kinds_in_sources(), described);
}

TEST(DocsSchema, ListsAndHeaders) {
    const SchemaSet schemas = repository_schemas(ORRERY_SOURCE_DIR);
    const char* model = R"({"schema": "orrery.models/1", "models":
        [{"name": "gpt2", "family": "gpt2", "parameters": 124439808}]})";
    EXPECT_EQ(schemas.check(model), "");
    EXPECT_NE(schemas.check(R"({"schema": "orrery.models/1", "models": [{"name": "x", "family": "t5",
        "parameters": 1}]})"),
              "");
    EXPECT_EQ(schemas.check(R"({"schema": "orrery.clusters/1", "clusters":
        [{"name": "dgx-h100", "device": "h100-sxm-80gb", "devices_per_node": 8}]})"),
              "");
    EXPECT_NE(schemas.check(R"({"schema": "orrery.clusters/1", "clusters": [{"name": "dgx-h100"}]})"), "");
    EXPECT_EQ(schemas.check(R"({"schema": "orrery.gradients/1", "tensors": [{"name": "a", "rows": 2, "cols": 1}]})"),
              "");
    EXPECT_NE(schemas.check(R"({"schema": "orrery.gradients/1", "tensors": [{"name": "a", "rows": 0, "cols": 1}]})"),
              "");
}

/// Checks that all data files in a folder conform to the schemas they name.
void check_documents(const std::string& folder) {
    const SchemaSet schemas = repository_schemas(ORRERY_SOURCE_DIR);
    const std::filesystem::path path = std::filesystem::path(ORRERY_SOURCE_DIR) / folder;
    int documents = 0;
    for (const auto& entry : std::filesystem::directory_iterator(path)) {
        if (entry.path().extension() != ".json") continue;
        SCOPED_TRACE(entry.path().string());
        std::ifstream stream(entry.path());
        std::ostringstream text;
        text << stream.rdbuf();
        EXPECT_EQ(schemas.check(text.str()), "");
        ++documents;
    }
    EXPECT_GT(documents, 0) << folder;
}

TEST(DocsSchema, ZooModelsConform) {
    check_documents("models/zoo");
}
TEST(DocsSchema, ImplementationsConform) {
    check_documents("models/implementations");
}
TEST(DocsSchema, ClusterPresetsConform) {
    check_documents("topologies/presets");
}
TEST(DocsSchema, DevicesAndLinksConform) {
    check_documents("topologies/devices");
    check_documents("topologies/links");
}

TEST(DocsSchema, ExamplePlansConform) {
    check_documents("examples");
}

}  // namespace
}  // namespace orrery::house
