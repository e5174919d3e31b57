// Plans as text, and back.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"
#include "sim/program/plan.h"
#include "sim/program/plan_fields.h"
#include "sim/program/rate_fields.h"

namespace orrery::program {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kPlanSchema = "orrery.plan/1";

using Origins = std::map<std::string, std::string>;

/// Every field of an object, and no other key. A field whose key is absent keeps its value, and its origin is noted
/// unless the key is written only where the value is not the default.
template <HasFields Object>
void read_object(const JsonReader& reader, Object& object, Origins& origins,
                 const models::Implementation& implementation) {
    visit_fields(object, [&](const char* key, auto& field, const auto&... limits) {
        using Field = std::remove_reference_t<decltype(field)>;
        const Presence presence = presence_of(limits...);
        if (!presence.required && !reader.has(key)) {
            if (!presence.only_if_changed) origins.emplace(reader.pointer() + "/" + key, "default");
        } else if constexpr (std::is_same_v<Field, Precision>) {
            if (reader.kind(key) == JsonKind::string) {
                field = precision_named(reader.choice(key, precision_names()), implementation);
                return;
            }
            const JsonReader parts = reader.object(key);
            field = {};
            read_object(parts, field, origins, implementation);
            if (!parts.has("reduction")) field.reduction = field.gradient;
            if (!parts.has("compute")) field.compute = field.activation;
        } else if constexpr (HasFields<Field>) {
            read_object(reader.object(key), field, origins, implementation);
        } else {
            read_listed(reader, key, field, limits...);
        }
    });
    reader.finish();
}

Parallelism read_parallelism(const JsonReader& json, Plan& plan) {
    Parallelism result;
    read_object(json, result, plan.origins, plan.implementation);
    if (!json.has("chunks")) result.chunks = row_of(result.schedule).fewest_chunks();
    // Shards have no room for whole gradients: without a word they are reduced as they come.
    if (!json.has("reduces_every_micro_batch")) result.reduces_every_micro_batch = result.shards_gradients();
    if (!json.has("etp") && plan.model.has_experts()) result.etp = result.tp;  // as in Megatron-Core
    if (!json.has("stage_layers") && result.virtual_stages() <= plan.model.layers) {
        result.stage_layers = even_stages(plan.model.layers, result.virtual_stages());
    }
    return result;
}

Training read_training(const JsonReader& json, Plan& plan) {
    Training result;
    result.dropout = plan.implementation.default_dropout;
    if (!json.has("dropout")) {
        plan.origins.emplace(json.pointer() + "/dropout", "implementation " + plan.implementation.name);
    }
    read_object(json, result, plan.origins, plan.implementation);
    if (json.has("expert_load")) {
        const JsonReader load = json.object("expert_load");
        const bool derives = load.has("shares") && !load.has("imbalance");
        if (derives) result.expert_load.imbalance = result.expert_load.imbalance_over(plan.parallelism.ep);
    }
    return result;
}

Origins read_origins(const JsonReader& reader) {
    Origins result;
    for (const std::string& pointer : reader.keys()) {
        if (!pointer.starts_with('/')) reader.fail(pointer, "keys that are JSON pointers, such as \"/parallelism/tp\"");
        result[pointer] = reader.string(pointer);
    }
    return result;
}

/// The name under `key` when it is a string, noting it as the origin; "" when it is an object.
std::string name_under(const JsonReader& reader, const std::string& key, Origins& origins) {
    const JsonKind kind = reader.kind(key);
    if (kind == JsonKind::object) return "";
    std::string name = kind == JsonKind::string ? reader.string(key) : "";
    if (name.empty()) reader.fail(key, "a name, a path, or an object");
    origins.emplace("/" + key, "name: " + name);
    return name;
}

/// A path in a plan counts from the plan's own folder, wherever the command runs. Names have no slash and no .json.
std::string from_folder_of(const std::string& plan_file, const std::string& name_or_path) {
    const bool is_path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
    if (!is_path) return name_or_path;
    const std::filesystem::path folder = std::filesystem::path(plan_file).parent_path();
    std::error_code unknown;
    // A plan that comes through a pipe lies in no folder.
    if (!std::filesystem::is_regular_file(plan_file, unknown)) return name_or_path;
    return (folder / name_or_path).string();  // of an absolute path: that path
}

}  // namespace

void read_field(const JsonReader& reader, const std::string& key, MeshOrder& order) {
    std::string found;
    if (reader.kind(key) == JsonKind::string) {
        found = reader.string(key);
    } else {
        for (const std::string& axis : reader.strings(key)) found += (found.empty() ? "" : ",") + axis;
    }
    try {
        order = mesh_order_named(found);
    } catch (const InputError&) {
        throw InputError(reader.file(), reader.pointer() + "/" + key, "\"" + found + "\"", kMeshOrderRule);
    }
}

JsonValue field_json(const MeshOrder& order) {
    std::vector<std::string> axes;
    for (const MeshAxis axis : order) axes.push_back(name_of(axis));
    return JsonValue(axes);
}

Plan plan_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kPlanSchema);
    Plan plan;
    plan.name = reader.string("name");
    if (plan.name.empty()) reader.fail("name", "a name");
    if (reader.has("origins")) plan.origins = read_origins(reader.object("origins"));

    const std::string model = name_under(reader, "model", plan.origins);
    plan.model = model.empty() ? models::model_from_json(reader.object("model"))
                               : models::load_model(from_folder_of(file, model));

    std::string implementation = "orrery";
    if (reader.has("implementation")) {
        implementation = name_under(reader, "implementation", plan.origins);
    } else {
        plan.origins.emplace("/implementation", "default");
    }
    plan.implementation = implementation.empty() ? models::implementation_from_json(reader.object("implementation"))
                                                 : models::load_implementation(implementation);

    plan.parallelism = read_parallelism(reader.object("parallelism"), plan);
    plan.training = read_training(reader.object("training"), plan);

    // Last, because a cluster that is named is sized for the world.
    check_rank_count(plan.parallelism, file);
    const std::string cluster = name_under(reader, "cluster", plan.origins);
    plan.cluster = cluster.empty()
                       ? topologies::cluster_from_json_text(Json::parse(text).at("cluster").dump(), file + ": /cluster")
                       : topologies::load_cluster(from_folder_of(file, cluster), plan.parallelism.world_size());
    if (reader.has("rates")) {
        orrery::read_field(reader, "rates", plan.rates);
    } else {
        plan.rates = resolve_rates(plan.implementation, plan.cluster);
    }
    reader.finish();
    check_plan(plan, file);
    return plan;
}

Plan read_plan(const std::string& path) {
    return plan_from_json_text(read_text_file(path), path);
}

std::string to_json_text(const Plan& plan) {
    Json json;
    json["schema"] = kPlanSchema;
    json["name"] = plan.name;
    json["model"] = Json::parse(models::to_json_text(plan.model));
    json["cluster"] = Json::parse(topologies::to_json_text(plan.cluster));
    json["implementation"] = Json::parse(models::to_json_text(plan.implementation));
    json["rates"] = Json::parse(orrery::field_json(plan.rates).text());
    json["parallelism"] = Json::parse(orrery::field_json(plan.parallelism).text());
    json["training"] = Json::parse(orrery::field_json(plan.training).text());
    json["origins"] = plan.origins.empty() ? Json::object() : Json(plan.origins);
    return json.dump(2) + "\n";
}

}  // namespace orrery::program
