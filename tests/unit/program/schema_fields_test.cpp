// The properties that docs/schema lists are those of the field lists by which files are read and written: the same keys
// in the same order, of the same types, with limits that are no wider, and the same ones required. ORRERY_RECORD=1
// writes the schemas again; what is there stays, such as descriptions and narrower limits.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

#include "core/file.h"
#include "models/implementation_fields.h"
#include "models/model_fields.h"
#include "sim/program/capacity_fields.h"
#include "sim/program/crossover_fields.h"
#include "sim/program/diff_fields.h"
#include "sim/program/plan_fields.h"
#include "sim/program/rate_fields.h"
#include "sim/program/run_record_fields.h"
#include "sim/program/scaling_fields.h"
#include "sim/program/sweep_fields.h"
#include "sim/program/technique_fields.h"
#include "sim/program/tornado_fields.h"
#include "tests/unit/program/sample_plans.h"
#include "topologies/cluster_fields.h"

namespace orrery::program {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson number_schema(const char* type, double low, bool low_open, double high, bool high_open) {
    OrderedJson schema{{"type", type}};
    const auto limit = [&](const char* key, double value) {
        const auto whole = static_cast<std::int64_t>(value);
        schema[key] = static_cast<double>(whole) == value ? OrderedJson(whole) : OrderedJson(value);
    };
    if (low > -kLargestNumber) limit(low_open ? "exclusiveMinimum" : "minimum", low);
    if (high < kLargestNumber) limit(high_open ? "exclusiveMaximum" : "maximum", high);
    return schema;
}
OrderedJson schema_of(IntegerRange range) {
    const IntegerRange all;
    return number_schema("integer", range.low == all.low ? -kLargestNumber : static_cast<double>(range.low), false,
                         range.high == all.high ? kLargestNumber : static_cast<double>(range.high), false);
}
OrderedJson schema_of(NumberRange range) {
    if (range.low == kSmallestNumber) return number_schema("number", 0, true, range.high, range.high_open);
    return number_schema("number", range.low, range.low_open, range.high, range.high_open);
}

OrderedJson schema_of(DependentRange range) {
    return schema_of(range.widest);
}
OrderedJson schema_of(TimeUnit unit) {
    return schema_of(unit.range);
}
OrderedJson schema_of(OrNotKnown) {
    return schema_of(kPositive);
}
OrderedJson schema_of(IfKnown) {
    return schema_of(kShares);
}
OrderedJson schema_of(topologies::FractionOrFailed) {
    return schema_of(NumberRange{0, 1, true});
}
OrderedJson reference(const std::string& definition) {
    return {{"$ref", "#/$defs/" + definition}};
}
OrderedJson list_of(OrderedJson items) {
    return {{"type", "array"}, {"items", std::move(items)}};
}

template <HasFields Object>
OrderedJson schema_of_object(const Object& object);

template <typename T>
inline constexpr bool kIsObjects = false;
template <HasFields T>
inline constexpr bool kIsObjects<std::vector<T>> = true;
template <HasFields T>
inline constexpr bool kIsObjects<std::optional<T>> = true;

/// Empty for what has its own way of reading, of which a schema says more than a list of fields.
template <typename Field, typename... Limits>
OrderedJson schema_of_field(const Field& field, const Limits&... limits) {
    if constexpr (std::same_as<Field, bool>) {
        return {{"type", "boolean"}};
    } else if constexpr (std::integral<Field> || std::floating_point<Field>) {
        return schema_of(limits...);
    } else if constexpr (std::same_as<Field, DType> && sizeof...(limits) > 0) {
        if constexpr ((std::same_as<Limits, topologies::Arithmetic> && ...)) return OrderedJson::object();
        if constexpr ((std::same_as<Limits, OneOf> && ...)) return {{"enum", (limits.names, ...)}};
    } else if constexpr (std::same_as<Field, std::string>) {
        if constexpr (sizeof...(limits) > 0) return {{"enum", (limits.names, ...)}};
        return {{"type", "string"}};
    } else if constexpr (std::same_as<Field, std::vector<std::string>>) {
        return list_of({{"type", "string"}});
    } else if constexpr (std::same_as<Field, std::vector<std::int64_t>> || std::same_as<Field, std::vector<double>>) {
        return list_of(schema_of(limits...));
    } else if constexpr (std::same_as<Field, std::optional<double>>) {
        return schema_of(limits...);
    } else if constexpr (std::same_as<Field, MeshOrder>) {
        return list_of({{"enum", names_of<MeshAxis>()}});
    } else if constexpr (std::same_as<Field, models::MemoryFigure>) {
        return reference("figure");
    } else if constexpr (std::same_as<Field, topologies::Figure>) {
        const NumberRange range{limits...};
        return reference(range.high == 1 ? "share_figure" : range.low > 0 ? "positive_figure" : "count_figure");
    } else if constexpr (std::same_as<Field, topologies::LinkProfile>) {
        return reference("link_or_name");
    } else if constexpr (std::same_as<Field, topologies::DeviceProfile>) {
        return reference("device");
    } else if constexpr (std::same_as<Field, topologies::OverridesOf<const topologies::ClusterSpec>>) {
        return list_of(schema_of_object(topologies::LinkChange{}));
    } else if constexpr (std::same_as<Field, models::ModelSpec::RopeScaling>) {
        return OrderedJson::object();
    } else if constexpr (kIsObjects<Field>) {
        const OrderedJson item = schema_of_object(typename Field::value_type{});
        return std::same_as<Field, std::optional<typename Field::value_type>> ? item : list_of(item);
    } else if constexpr (HasFields<Field>) {
        return schema_of_object(field);
    } else if constexpr (NamedEnum<Field>) {
        return {{"enum", names_of<Field>()}};
    } else {
        return OrderedJson::object();
    }
}
template <typename T, typename... Limits>
OrderedJson schema_of_field(const Derived<T>& field, const Limits&... limits) {
    return schema_of_field(field.value, limits...);
}

template <typename T, typename Range>
OrderedJson schema_of_field(const Pair<T>&, const Range& range) {
    return list_of(schema_of(range));
}

/// As `schema_of_field` of a field of an object, without its Presence.
template <typename Field, typename... Limits>
OrderedJson schema_of_listed(OrderedJson& /*required*/, const char* /*key*/, const Field& field,
                             const Limits&... limits) {
    return schema_of_field(field, limits...);
}
template <typename Field, typename... Limits>
OrderedJson schema_of_listed(OrderedJson& required, const char* key, const Field& field, const Presence& presence,
                             const Limits&... limits) {
    if (presence.required) required.push_back(key);
    return presence.exists ? schema_of_field(field, limits...) : OrderedJson();
}

template <HasFields Object>
OrderedJson schema_of_object(const Object& object) {
    OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
    visit_fields(object, [&](const char* key, const auto& field, const auto&... limits) {
        OrderedJson schema = schema_of_listed(required, key, field, limits...);
        if (!schema.is_null()) properties[key] = std::move(schema);
    });
    return {{"type", "object"},
            {"required", required},
            {"additionalProperties", false},
            {"properties", std::move(properties)}};
}

/// The node of `schema` that describes the value itself, where several forms are allowed: the last of them.
OrderedJson& described(OrderedJson& schema) {
    return schema.contains("oneOf") ? described(schema["oneOf"].back()) : schema;
}

double limit_of(const OrderedJson& schema, const char* closed, const char* open, double none) {
    return schema.contains(closed) ? schema[closed].get<double>()
           : schema.contains(open) ? schema[open].get<double>()
                                   : none;
}

/// Whether what `schema` says is allowed by `code` too; what it refers to is not looked at.
bool agrees(const OrderedJson& schema, const OrderedJson& code) {
    if (code.empty()) return true;
    if (schema.contains("$ref")) return !code.contains("$ref") || schema["$ref"] == code["$ref"];
    if (schema.contains("enum")) {
        if (!code.contains("enum"))
            return code.value("type", "") == (schema["enum"][0].is_string() ? "string" : "integer");
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

/// What only the schema knows of an object.
struct Besides {
    std::string leading;      // keys that come first
    std::string conditional;  // keys that are required, or not, by rules of its own
};

bool names(const std::string& keys, const std::string& key) {
    return keys.find(" " + key + " ") != std::string::npos;
}

OrderedJson updated(OrderedJson schema, const OrderedJson& code, const Besides& besides);

/// A property as the code has it, with what is already said of it.
void update_property(OrderedJson& schema, const OrderedJson& code) {
    if (code.contains("properties") && schema.contains("properties")) {
        schema = updated(schema, code, {});
    } else if (code.contains("items") && schema.contains("items") && code["items"].contains("properties")) {
        update_property(schema["items"], code["items"]);
    } else if (!agrees(schema, code)) {
        for (const auto& [name, what] : code.items()) {
            const bool is_narrower = name == "minimum" && schema.contains(name) && schema[name] >= what;
            if (!is_narrower) schema[name] = what;
        }
    }
}

/// The schema of an object as the code has it, with what is already said of it.
OrderedJson updated(OrderedJson schema, const OrderedJson& code, const Besides& besides) {
    OrderedJson result = OrderedJson::object();
    OrderedJson& properties = schema["properties"];
    for (auto& [key, property] : properties.items()) {
        if (names(besides.leading, key)) result[key] = property;
    }
    for (const auto& [key, expected] : code["properties"].items()) {
        OrderedJson property = properties.contains(key) ? properties[key] : expected;
        update_property(described(property), expected);
        result[key] = std::move(property);
    }
    properties = std::move(result);
    OrderedJson required = OrderedJson::array();
    for (const OrderedJson& key : schema.value("required", OrderedJson::array())) {
        if (names(besides.leading, key) || names(besides.conditional, key)) required.push_back(key);
    }
    for (const OrderedJson& key : code.value("required", OrderedJson::array())) {
        if (!names(besides.conditional, key)) required.push_back(key);
    }
    const OrderedJson& now = schema.value("required", OrderedJson::array());
    if (std::set<OrderedJson>(now.begin(), now.end()) != std::set<OrderedJson>(required.begin(), required.end())) {
        schema["required"] = required;
    }
    return schema;
}

/// `pointer`: of the schema's object in the file.
void expect_schema(const std::string& kind, const std::string& pointer, const OrderedJson& code,
                   const Besides& besides = {}) {
    const std::string file = "orrery." + kind + ".1.schema.json";
    const std::string path = (std::filesystem::path(ORRERY_SOURCE_DIR) / "docs" / "schema" / file).string();
    OrderedJson schema = OrderedJson::parse(read_text_file(path));
    OrderedJson& object = schema.at(OrderedJson::json_pointer(pointer));
    const OrderedJson now = updated(object, code, besides);
    const bool same = now.dump() == object.dump();
    if (!same && std::getenv("ORRERY_RECORD") != nullptr) {
        object = now;
        write_file_atomically(path, schema.dump(2) + "\n");
        return;
    }
    EXPECT_TRUE(same) << file << pointer << ": ORRERY_RECORD=1 writes it\n" << OrderedJson::diff(object, now).dump(1);
}

TEST(SchemaFields, OfAPlanAreThoseThatAreRead) {
    expect_schema("plan", "/properties/parallelism", schema_of_object(Parallelism{}));
    expect_schema("plan", "/properties/training", schema_of_object(Training{}));
}

TEST(SchemaFields, OfAnImplementationAreThoseThatAreRead) {
    expect_schema("implementation", "", schema_of_object(models::Implementation{}),
                  {.leading = " schema name version source based_on shares_rates ", .conditional = ""});
}

TEST(SchemaFields, OfAModelAreThoseThatAreRead) {
    expect_schema("model", "", schema_of_object(models::ModelSpec{}),
                  {.leading = " schema source ", .conditional = " rope_theta rope_scaling "});
    for (std::size_t i = 0; i < models::kRopeScalings.names.size(); ++i) {
        models::ModelSpec::RopeScaling scaling;
        scaling.type = models::kRopeScalings.names[i];
        OrderedJson code = schema_of_object(scaling);
        code["properties"]["type"] = OrderedJson::object();
        expect_schema("model", "/properties/rope_scaling/oneOf/" + std::to_string(i), code);
    }
}

TEST(SchemaFields, OfAClusterAreThoseThatAreRead) {
    expect_schema("cluster", "/$defs/nccl", schema_of_object(topologies::NcclProfile{}));
    expect_schema("cluster", "/$defs/device", schema_of_object(topologies::DeviceProfile{}));
    expect_schema("cluster", "/$defs/link", schema_of_object(topologies::LinkProfile{}));
    topologies::ClusterSpec cluster;
    expect_schema("cluster", "", schema_of_object(cluster),
                  {.leading = " schema node ",
                   .conditional = " devices_per_node device intra_node node_switches nics_per_node "
                                  "low_latency_gb_per_s "});
}

TEST(SchemaFields, OfRatesAreThoseThatAreRead) {
    expect_schema("rates", "/properties/rates/additionalProperties", schema_of_object(Rate{}));
}

TEST(SchemaFields, OfARunRecordAreThoseThatAreRead) {
    const Program program = samples::make_program({});
    const Recorded recorded(program);
    RunRecord record;
    expect_schema("run_record", "", schema_of_object(fields_of(record, recorded)),
                  {.leading = " schema ", .conditional = " idle_fraction "});
    RankRecord rank;
    const OrderedJson ranks = schema_of_object(fields_of(rank, recorded));
    expect_schema("run_record", "/$defs/rank", ranks);
    expect_schema("run_record", "/$defs/rank/properties/streams", ranks["properties"]["streams"]);
    expect_schema("run_record", "/$defs/stream", ranks["properties"]["streams"]["properties"]["tp"]);
    expect_schema("run_record", "/$defs/span", schema_of_object(SpanEntry{}),
                  {.leading = "", .conditional = " stream "});
    DeviceMemory memory;
    expect_schema("run_record", "/$defs/rank/properties/device_memory",
                  schema_of_object(fields_of(memory, *program.plan)));
    OrderedJson collective = schema_of_object(KindBytes{});
    collective["properties"]["stream"] = OrderedJson::object();  // only those that communicate
    expect_schema("run_record", "/$defs/collective", collective);
}

TEST(SchemaFields, OfAScalingCurveAreThoseThatAreRead) {
    expect_schema("scaling", "", schema_of_object(ScalingCurve{}), {.leading = " schema ", .conditional = ""});
    expect_schema("scaling", "/$defs/figures", schema_of_object(CostFigures{}));
    ScalingPoint found;
    OrderedJson point = schema_of_object(found);
    OrderedJson always = OrderedJson::array({"devices", "global_batch_size"});
    point["required"] = always;
    expect_schema("scaling", "/$defs/point", point);
    expect_schema("catalogue", "/$defs/dated_figure", schema_of_object(DatedFigure{}));
}

TEST(SchemaFields, OfTechniquesCurvesAreThoseThatAreRead) {
    TechniqueCurves curves;
    OrderedJson code = schema_of_object(curves);
    const OrderedJson always = code["required"];
    curves.base_devices = 1;
    code = schema_of_object(curves);
    code["required"] = always;
    expect_schema("techniques", "", code, {.leading = " schema ", .conditional = ""});
    expect_schema("techniques", "/$defs/technique", schema_of_object(TechniqueCurve{}));
    const TechniquePoint missing{.point = {.reason = "none"}, .obstacle = Obstacle::memory, .losses = {}};
    OrderedJson point = schema_of_object(TechniquePoint{});
    point["properties"].update(schema_of_object(missing)["properties"]);
    point["required"] = OrderedJson::array({"point"});
    expect_schema("techniques", "/$defs/point", point);
}

TEST(SchemaFields, OfACapacityAnswerAreThoseThatAreRead) {
    expect_schema("capacity", "", schema_of_object(Capacity{}), {.leading = " schema ", .conditional = ""});
    expect_schema("capacity", "/$defs/goal", schema_of_object(CapacityGoal{}));
    expect_schema("capacity", "/$defs/answer", schema_of_object(CapacityAnswer{}));
    OrderedJson size = schema_of_object(CapacitySize{});
    size["required"] = OrderedJson::array({"devices", "spare_devices"});
    expect_schema("capacity", "/$defs/size", size);
    expect_schema("catalogue", "/properties/faults", schema_of_object(FaultFigures{}));
}

TEST(SchemaFields, OfAnInputSweepAreThoseThatAreRead) {
    expect_schema("whatif", "", schema_of_object(InputSweep{}), {.leading = " schema ", .conditional = ""});
    expect_schema("whatif", "/$defs/point", schema_of_object(SweepPoint{}));
}

TEST(SchemaFields, OfATornadoAreThoseThatAreRead) {
    expect_schema("tornado", "", schema_of_object(Tornado{}), {.leading = " schema ", .conditional = ""});
    expect_schema("tornado", "/$defs/bar", schema_of_object(TornadoBar{}));
}

TEST(SchemaFields, OfACrossoverAreThoseThatAreRead) {
    expect_schema("crossover", "", schema_of_object(Crossover{}), {.leading = " schema ", .conditional = ""});
    expect_schema("crossover", "/$defs/range", schema_of_object(CrossoverRange{}));
}

TEST(SchemaFields, OfADiffAreThoseThatAreRead) {
    expect_schema("diff", "", schema_of_object(PlanDiff{}), {.leading = " schema ", .conditional = ""});
    expect_schema("diff", "/$defs/row", schema_of_object(DiffRow{}));
    expect_schema("diff", "/$defs/input", schema_of_object(ChangedInput{}));
}

TEST(SchemaFields, AWiderLimitAndAnotherTypeDisagree) {
    const OrderedJson code = schema_of(IntegerRange{1, 8});
    EXPECT_TRUE(agrees({{"type", "integer"}, {"minimum", 2}, {"maximum", 8}}, code));
    EXPECT_FALSE(agrees({{"type", "integer"}, {"minimum", 0}, {"maximum", 8}}, code));
    EXPECT_FALSE(agrees({{"type", "integer"}, {"minimum", 1}}, code));
    EXPECT_FALSE(agrees({{"type", "number"}, {"minimum", 1}, {"maximum", 8}}, code));
    const OrderedJson more{{"properties", {{"tp", code}, {"pp", code}}}};
    const OrderedJson old{
        {"properties", {{"old", code}, {"tp", {{"type", "integer"}, {"minimum", 1}, {"maximum", 2}}}}}};
    EXPECT_EQ(updated(old, more, {})["properties"].dump(),
              R"({"tp":{"type":"integer","minimum":1,"maximum":2},"pp":{"type":"integer","minimum":1,"maximum":8}})");
}

}  // namespace
}  // namespace orrery::program
