// Reads and writes plans as JSON.
#include <filesystem>
#include <nlohmann/json.hpp>
#include <type_traits>

#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"
#include "sim/program/plan.h"
#include "sim/program/plan_limits.h"
#include "sim/program/plan_names.h"

namespace orrery::program {
namespace {

using Json = nlohmann::ordered_json;
using MeshOrder = std::array<MeshAxis, kMeshAxes>;

constexpr const char* kSchema = "orrery.plan/1";
// The product of two such numbers cannot overflow. check_plan applies narrower limits.
constexpr IntegerRange kNumber{0, 1 << 20};
constexpr IntegerRange kNumberOrAll{-1, 1 << 20};
constexpr IntegerRange kSeed{0, std::numeric_limits<std::int64_t>::max()};

/// The types in which values may be stored, and those of arithmetic.
const std::vector<std::string>& stored_types() {
    static const std::vector<std::string> names{"fp32", "bf16", "fp16"};
    return names;
}
const std::vector<std::string>& compute_types() {
    static const std::vector<std::string> names{"fp32", "tf32", "bf16", "fp16"};
    return names;
}

/// The fields of each object: calls `visit(key, field, range)` for each. Reading and writing both use this list.
template <typename Object, typename Visit>
void visit_fields(Object& t, Visit&& visit) requires std::is_same_v<std::remove_const_t<Object>, ScheduleTimes> {
    visit("forward_ms", t.forward_ms, kNotNegative);
    visit("input_ms", t.input_ms, kNotNegative);
    visit("weight_ms", t.weight_ms, kNotNegative);
    visit("transfer_ms", t.transfer_ms, kNotNegative);
}

template <typename Object, typename Visit>
void visit_fields(Object& p, Visit&& visit) requires std::is_same_v<std::remove_const_t<Object>, Parallelism> {
    visit_degrees(p, visit);
    visit("sequence_parallel", p.sequence_parallel);
    visit("context_parallel", p.context_parallel);
    visit("schedule", p.schedule);
    visit("chunks", p.chunks, kDegreeLimits);
    visit("interleave_group", p.interleave_group, kNumber);
    visit("vocabulary_parallel", p.vocabulary_parallel);
    visit("schedule_times", p.schedule_times);
    visit("stage_layers", p.stage_layers, kStageLayerLimits);
    visit("data_parallel", p.data_parallel);
    visit("dp_shard", p.dp_shard, kNumber);
    visit("reshard_after_forward", p.reshard_after_forward);
    visit("reduces_every_micro_batch", p.reduces_every_micro_batch);
    visit("order", p.order);
    visit("placement", p.placement, kNumber);
}

template <typename Object, typename Visit>
void visit_fields(Object& o, Visit&& visit) requires std::is_same_v<std::remove_const_t<Object>, Optimizer> {
    visit("kind", o.kind);
    visit("learning_rate", o.learning_rate, kNotNegative);
    visit("beta1", o.beta1, kFraction);
    visit("beta2", o.beta2, kFraction);
    visit("epsilon", o.epsilon, kPositive);
    visit("momentum", o.momentum, kFraction);
    visit("weight_decay", o.weight_decay, kNotNegative);
    visit("clip_norm", o.clip_norm, kNotNegative);
}

template <typename Object, typename Visit>
void visit_fields(Object& m, Visit&& visit) requires std::is_same_v<std::remove_const_t<Object>, MemorySavings> {
    visit("recompute", m.recompute);
    visit("recompute_layers", m.recompute_layers, kNumberOrAll);
    visit("recompute_parts", m.recompute_parts);
    visit("shards_checkpoints", m.shards_checkpoints);
    visit("offload_layers", m.offload_layers, kNumber);
    visit("offload_optimizer", m.offload_optimizer);
    visit("offload_parameters", m.offload_parameters);
}

template <typename Object, typename Visit>
void visit_fields(Object& l, Visit&& visit) requires std::is_same_v<std::remove_const_t<Object>, ExpertLoad> {
    visit("shares", l.shares, kNotNegative);
    visit("imbalance", l.imbalance, kNotNegative);
    visit("capacity_factor", l.capacity_factor, kNotNegative);
    visit("pads_to_capacity", l.pads_to_capacity);
    visit("largest", l.largest, kNotNegative);
}

MeshOrder read_order(const JsonReader& reader) {
    if (reader.kind("order") == JsonKind::string) {
        try {
            return mesh_order_named(reader.string("order"));
        } catch (const InputError&) {
            reader.fail("order", kMeshOrderRule);
        }
    }
    const std::vector<std::string> axes = reader.strings("order");
    const auto order = mesh_order_of(axes);
    if (order) return *order;
    std::string found;
    for (const std::string& axis : axes) found += (found.empty() ? "" : ",") + axis;
    throw InputError(reader.file(), reader.pointer() + "/order", "\"" + found + "\"", kMeshOrderRule);
}

/// Reads an object with optional keys. If a key is absent, the field keeps its value and the origin is recorded.
class DefaultingReader {
  public:
    DefaultingReader(JsonReader reader, std::map<std::string, std::string>& origins)
        : reader_(std::move(reader)), origins_(origins) {}

    /// Whether the key exists; if not, its origin is recorded as `origin`.
    [[nodiscard]] bool present(const std::string& key, const std::string& origin = "default") const {
        if (reader_.has(key)) return true;
        origins_.emplace(reader_.pointer() + "/" + key, origin);
        return false;
    }
    template <typename Field, typename... Range>
    void read(const std::string& key, Field& field, Range... range) const {
        if (!present(key)) return;
        if constexpr (std::is_same_v<Field, bool>) {
            field = reader_.boolean(key);
        } else if constexpr (std::is_same_v<Field, std::int64_t>) {
            field = reader_.integer(key, range...);
        } else if constexpr (std::is_same_v<Field, double>) {
            field = reader_.number(key, range...);
        } else if constexpr (std::is_same_v<Field, std::string>) {
            field = reader_.string(key);
        } else if constexpr (std::is_same_v<Field, std::vector<std::int64_t>>) {
            field = reader_.integers(key, range...);
        } else if constexpr (std::is_same_v<Field, std::vector<double>>) {
            field = reader_.numbers(key, range...);
        } else if constexpr (std::is_same_v<Field, std::vector<std::string>>) {
            field = reader_.strings(key);
        } else if constexpr (std::is_same_v<Field, MeshOrder>) {
            field = read_order(reader_);
        } else if constexpr (std::is_same_v<Field, ScheduleTimes>) {
            object(key).read_fields(field);
        } else {
            static_assert(std::is_enum_v<Field>);
            field = *value_named<Field>(reader_.choice(key, names_of<Field>()));
        }
    }
    /// Reads every field of an object; any other key is an error.
    template <typename Object>
    void read_fields(Object& object) const {
        visit_fields(object, [this](const char* key, auto& field, auto... range) { this->read(key, field, range...); });
        reader_.finish();
    }
    [[nodiscard]] DefaultingReader object(const std::string& key) const { return {reader_.object(key), origins_}; }
    [[nodiscard]] const JsonReader& json() const { return reader_; }

  private:
    JsonReader reader_;
    std::map<std::string, std::string>& origins_;
};

template <typename Object>
Json fields_json(const Object& object) {
    Json json;
    visit_fields(object, [&json](const char* key, const auto& field, auto...) {
        using Field = std::remove_cvref_t<decltype(field)>;
        if constexpr (std::is_same_v<Field, ScheduleTimes>) {
            json[key] = fields_json(field);
        } else if constexpr (std::is_same_v<Field, MeshOrder>) {
            for (const MeshAxis axis : field) json[key].push_back(name_of(axis));
        } else if constexpr (std::is_enum_v<Field>) {
            json[key] = name_of(field);
        } else {
            json[key] = field;
        }
    });
    return json;
}

Parallelism read_parallelism(const DefaultingReader& reader, const models::ModelSpec& model) {
    Parallelism result;
    reader.read_fields(result);
    const JsonReader& json = reader.json();
    if (!json.has("chunks")) result.chunks = row_of(result.schedule).fewest_chunks();
    // By default sharded gradients are reduced after each micro-batch, because the shards cannot hold whole gradients.
    if (!json.has("reduces_every_micro_batch")) result.reduces_every_micro_batch = result.shards_gradients();
    if (!json.has("etp") && model.has_experts()) result.etp = result.tp;  // as in Megatron-Core
    if (!json.has("stage_layers") && result.virtual_stages() <= model.layers) {
        result.stage_layers = even_stages(model.layers, result.virtual_stages());
    }
    return result;
}

Precision read_precision(const DefaultingReader& reader) {
    const JsonReader& json = reader.json();
    const auto type = [&](const char* key, const std::vector<std::string>& allowed) {
        return *dtype_named(json.choice(key, allowed));
    };
    Precision result;
    result.parameter = type("parameter", stored_types());
    result.activation = type("activation", stored_types());
    result.gradient = type("gradient", stored_types());
    result.reduction = reader.present("reduction") ? type("reduction", stored_types()) : result.gradient;
    result.compute = reader.present("compute") ? type("compute", compute_types()) : result.activation;
    reader.read("fp8", result.fp8);
    reader.read("fp8_parameters", result.fp8_parameters);
    result.master_weights = json.boolean("master_weights");
    reader.read("loss_scaling", result.loss_scaling);
    json.finish();
    return result;
}

Training read_training(const DefaultingReader& reader, const models::Implementation& implementation, std::int64_t ep) {
    const JsonReader& json = reader.json();
    Training result;
    result.sequence_length = json.integer("sequence_length", kSequenceLimits);
    result.global_batch_size = json.integer("global_batch_size", kBatchLimits);
    reader.read("micro_batch_size", result.micro_batch_size, kBatchLimits);
    if (reader.present("precision")) {
        result.precision = json.kind("precision") == JsonKind::string
                               ? precision_named(json.choice("precision", precision_names()), implementation)
                               : read_precision(reader.object("precision"));
    }
    if (reader.present("optimizer")) reader.object("optimizer").read_fields(result.optimizer);
    if (reader.present("memory")) reader.object("memory").read_fields(result.memory);
    if (reader.present("expert_load")) {
        const DefaultingReader load = reader.object("expert_load");
        const bool derives = load.json().has("shares") && !load.json().has("imbalance");
        load.read_fields(result.expert_load);
        if (derives) result.expert_load.imbalance = result.expert_load.imbalance_over(ep);
    }
    result.dropout = implementation.default_dropout;
    if (reader.present("dropout", "implementation " + implementation.name)) {
        result.dropout = json.number("dropout", kFraction);
    }
    if (reader.present("seed")) result.seed = static_cast<std::uint64_t>(json.integer("seed", kSeed));
    reader.read("data", result.data);
    json.finish();
    return result;
}

std::map<std::string, std::string> read_origins(const JsonReader& reader) {
    std::map<std::string, std::string> result;
    for (const std::string& pointer : reader.keys()) {
        if (!pointer.starts_with('/')) reader.fail(pointer, "keys that are JSON pointers, such as \"/parallelism/tp\"");
        result[pointer] = reader.string(pointer);
    }
    return result;
}

/// The value of `key` if it is a string, which is also recorded as the origin; "" if it is an object.
std::string name_under(const JsonReader& reader, const std::string& key, std::map<std::string, std::string>& origins) {
    const JsonKind kind = reader.kind(key);
    if (kind == JsonKind::object) return "";
    if (kind != JsonKind::string) reader.fail(key, "a name, a path, or an object");
    std::string name = reader.string(key);
    if (name.empty()) reader.fail(key, "a name, a path, or an object");
    origins.emplace("/" + key, "name: " + name);
    return name;
}

Json to_json(const Precision& precision) {
    return {{"parameter", orrery::name_of(precision.parameter)},
            {"activation", orrery::name_of(precision.activation)},
            {"gradient", orrery::name_of(precision.gradient)},
            {"reduction", orrery::name_of(precision.reduction)},
            {"compute", orrery::name_of(precision.compute)},
            {"fp8", models::name_of(precision.fp8)},
            {"fp8_parameters", precision.fp8_parameters},
            {"master_weights", precision.master_weights},
            {"loss_scaling", precision.loss_scaling}};
}

Json to_json(const Training& training) {
    Json json;
    json["sequence_length"] = training.sequence_length;
    json["micro_batch_size"] = training.micro_batch_size;
    json["global_batch_size"] = training.global_batch_size;
    json["precision"] = to_json(training.precision);
    json["optimizer"] = fields_json(training.optimizer);
    json["memory"] = fields_json(training.memory);
    json["expert_load"] = fields_json(training.expert_load);
    json["dropout"] = training.dropout;
    json["seed"] = training.seed;
    json["data"] = training.data;
    return json;
}

}  // namespace

namespace {

/// Resolves a path in a plan relative to the plan's folder. A value without a slash and without .json is a name, not a
/// path, and is returned unchanged.
std::string from_folder_of(const std::string& plan_file, const std::string& name_or_path) {
    const bool is_path = name_or_path.find('/') != std::string::npos || name_or_path.ends_with(".json");
    if (!is_path) return name_or_path;
    const std::filesystem::path folder = std::filesystem::path(plan_file).parent_path();
    std::error_code unknown;
    // A plan that is read from a pipe has no folder.
    if (!std::filesystem::is_regular_file(plan_file, unknown)) return name_or_path;
    return (folder / name_or_path).string();  // an absolute path stays unchanged
}

}  // namespace

Plan plan_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kSchema);
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

    plan.parallelism = read_parallelism(DefaultingReader(reader.object("parallelism"), plan.origins), plan.model);
    plan.training = read_training(DefaultingReader(reader.object("training"), plan.origins), plan.implementation,
                                  plan.parallelism.ep);

    // The cluster comes last, because a named cluster gets as many devices as there are ranks.
    check_rank_count(plan.parallelism, file);
    const std::string cluster = name_under(reader, "cluster", plan.origins);
    plan.cluster = cluster.empty()
                       ? topologies::cluster_from_json_text(Json::parse(text).at("cluster").dump(), file + ": /cluster")
                       : topologies::load_cluster(from_folder_of(file, cluster), plan.parallelism.world_size());
    plan.rates = reader.has("rates") ? rates_from_json(reader.object("rates"))
                                     : resolve_rates(plan.implementation, plan.cluster);
    reader.finish();
    check_plan(plan, file);
    return plan;
}

Plan read_plan(const std::string& path) {
    return plan_from_json_text(read_text_file(path), path);
}

std::string to_json_text(const Plan& plan) {
    Json json;
    json["schema"] = kSchema;
    json["name"] = plan.name;
    json["model"] = Json::parse(models::to_json_text(plan.model));
    json["cluster"] = Json::parse(topologies::to_json_text(plan.cluster));
    json["implementation"] = Json::parse(models::to_json_text(plan.implementation));
    json["rates"] = Json::parse(to_json_text(plan.rates));
    json["parallelism"] = fields_json(plan.parallelism);
    json["training"] = to_json(plan.training);
    json["origins"] = plan.origins.empty() ? Json::object() : Json(plan.origins);
    return json.dump(2) + "\n";
}

}  // namespace orrery::program
