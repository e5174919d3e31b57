#include "sim/program/plan.h"

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/json_reader.h"

namespace orrery::program {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "orrery.plan/1";
constexpr IntegerRange kDegree{1, 1 << 20};  // so that their product fits before check_plan sees them
constexpr IntegerRange kSeed{0, std::numeric_limits<std::int64_t>::max()};

const std::vector<std::string>& dtype_names() {
    static const std::vector<std::string> names{"fp32", "bf16", "fp16"};
    return names;
}

/// Reads an object in which a key may be absent: then the value is what it was, and its origin is noted.
class DefaultingReader {
  public:
    DefaultingReader(JsonReader reader, std::map<std::string, std::string>& origins)
        : reader_(std::move(reader)), origins_(origins) {}

    void read(const std::string& key, std::int64_t& value, IntegerRange range) const {
        if (present(key)) value = reader_.integer(key, range);
    }
    void read(const std::string& key, double& value, NumberRange range) const {
        if (present(key)) value = reader_.number(key, range);
    }
    void read(const std::string& key, bool& value) const {
        if (present(key)) value = reader_.boolean(key);
    }
    void read(const std::string& key, std::string& value) const {
        if (present(key)) value = reader_.string(key);
    }
    /// Whether the key is there; when it is not, its origin is noted as `origin`.
    [[nodiscard]] bool present(const std::string& key, const std::string& origin = "default") const {
        if (reader_.has(key)) return true;
        origins_.emplace(reader_.pointer() + "/" + key, origin);
        return false;
    }
    [[nodiscard]] const JsonReader& json() const { return reader_; }

  private:
    JsonReader reader_;
    std::map<std::string, std::string>& origins_;
};

Schedule schedule_named(const std::string& name) {
    return name == name_of(Schedule::gpipe) ? Schedule::gpipe : Schedule::one_f_one_b;
}

Parallelism read_parallelism(const DefaultingReader& reader) {
    Parallelism result;
    reader.read("dp", result.dp, kDegree);
    reader.read("tp", result.tp, kDegree);
    reader.read("pp", result.pp, kDegree);
    reader.read("sequence_parallel", result.sequence_parallel);
    if (reader.present("schedule")) {
        result.schedule = schedule_named(
            reader.json().choice("schedule", {name_of(Schedule::gpipe), name_of(Schedule::one_f_one_b)}));
    }
    if (reader.present("stage_layers")) result.stage_layers = reader.json().integers("stage_layers");
    reader.json().finish();
    return result;
}

Precision read_precision(const JsonReader& reader) {
    Precision result;
    result.parameter = *dtype_named(reader.choice("parameter", dtype_names()));
    result.activation = *dtype_named(reader.choice("activation", dtype_names()));
    result.gradient = *dtype_named(reader.choice("gradient", dtype_names()));
    result.master_weights = reader.boolean("master_weights");
    reader.finish();
    return result;
}

Optimizer read_optimizer(const DefaultingReader& reader) {
    Optimizer result;
    reader.read("learning_rate", result.learning_rate, kNotNegative);
    reader.read("beta1", result.beta1, kFraction);
    reader.read("beta2", result.beta2, kFraction);
    reader.read("epsilon", result.epsilon, kPositive);
    reader.read("weight_decay", result.weight_decay, kNotNegative);
    reader.json().finish();
    return result;
}

Training read_training(const DefaultingReader& reader, const models::Implementation& implementation,
                       std::map<std::string, std::string>& origins) {
    const JsonReader& json = reader.json();
    Training result;
    result.sequence_length = json.integer("sequence_length");
    result.global_batch_size = json.integer("global_batch_size");
    reader.read("micro_batch_size", result.micro_batch_size, {});
    if (reader.present("precision")) {
        result.precision = json.kind("precision") == JsonKind::string
                               ? precision_named(json.choice("precision", {"fp32", "bf16"}))
                               : read_precision(json.object("precision"));
    }
    if (reader.present("optimizer")) {
        result.optimizer = read_optimizer(DefaultingReader(json.object("optimizer"), origins));
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

/// The name under `key` when it is a string, noting it as the origin; "" when it is an object.
std::string name_under(const JsonReader& reader, const std::string& key, std::map<std::string, std::string>& origins) {
    const JsonKind kind = reader.kind(key);
    if (kind == JsonKind::object) return "";
    if (kind != JsonKind::string) reader.fail(key, "a name, a path, or an object");
    std::string name = reader.string(key);
    if (name.empty()) reader.fail(key, "a name, a path, or an object");
    origins.emplace("/" + key, "name: " + name);
    return name;
}

Json to_json(const Parallelism& parallelism) {
    Json json;
    json["dp"] = parallelism.dp;
    json["tp"] = parallelism.tp;
    json["pp"] = parallelism.pp;
    json["sequence_parallel"] = parallelism.sequence_parallel;
    json["schedule"] = name_of(parallelism.schedule);
    json["stage_layers"] = parallelism.stage_layers;
    return json;
}

Json to_json(const Training& training) {
    Json json;
    json["sequence_length"] = training.sequence_length;
    json["micro_batch_size"] = training.micro_batch_size;
    json["global_batch_size"] = training.global_batch_size;
    json["precision"] = {{"parameter", orrery::name_of(training.precision.parameter)},
                         {"activation", orrery::name_of(training.precision.activation)},
                         {"gradient", orrery::name_of(training.precision.gradient)},
                         {"master_weights", training.precision.master_weights}};
    json["optimizer"] = {{"learning_rate", training.optimizer.learning_rate},
                         {"beta1", training.optimizer.beta1},
                         {"beta2", training.optimizer.beta2},
                         {"epsilon", training.optimizer.epsilon},
                         {"weight_decay", training.optimizer.weight_decay}};
    json["dropout"] = training.dropout;
    json["seed"] = training.seed;
    json["data"] = training.data;
    return json;
}

}  // namespace

std::string name_of(Schedule schedule) {
    switch (schedule) {
        case Schedule::gpipe:
            return "gpipe";
        case Schedule::one_f_one_b:
            return "1f1b";
    }
    return "?";
}

Precision precision_named(const std::string& name) {
    if (name == "fp32") return {};
    if (name == "bf16") return {DType::bf16, DType::bf16, DType::fp32, true};
    throw InputError("precision \"" + name + "\": no precision has this name; allowed: \"fp32\", \"bf16\"");
}

std::string name_of(const Precision& precision) {
    for (const char* name : {"fp32", "bf16"}) {
        if (precision == precision_named(name)) return name;
    }
    std::string text = std::string(orrery::name_of(precision.parameter)) + " parameters, ";
    text += std::string(orrery::name_of(precision.activation)) + " activations, ";
    text += std::string(orrery::name_of(precision.gradient)) + " gradients";
    return text + (precision.master_weights ? ", fp32 master weights" : "");
}

std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t pp) {
    if (pp < 1 || pp > layers) {
        throw InputError("pipeline stages: got " + std::to_string(pp) + "; allowed: 1 to " + std::to_string(layers) +
                         ", the number of layers");
    }
    std::vector<std::int64_t> stages(static_cast<std::size_t>(pp), layers / pp);
    for (std::int64_t i = 0; i < layers % pp; ++i) ++stages[static_cast<std::size_t>(i)];
    return stages;
}

Plan plan_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kSchema);
    Plan plan;
    plan.name = reader.string("name");
    if (plan.name.empty()) reader.fail("name", "a name");
    if (reader.has("origins")) plan.origins = read_origins(reader.object("origins"));

    const std::string model = name_under(reader, "model", plan.origins);
    plan.model = model.empty() ? models::model_from_json(reader.object("model")) : models::load_model(model);

    std::string implementation = "orrery";
    if (reader.has("implementation")) {
        implementation = name_under(reader, "implementation", plan.origins);
    } else {
        plan.origins.emplace("/implementation", "default");
    }
    plan.implementation = implementation.empty() ? models::implementation_from_json(reader.object("implementation"))
                                                 : models::load_implementation(implementation);

    plan.parallelism = read_parallelism(DefaultingReader(reader.object("parallelism"), plan.origins));
    plan.training =
        read_training(DefaultingReader(reader.object("training"), plan.origins), plan.implementation, plan.origins);
    if (!reader.object("parallelism").has("stage_layers") && plan.parallelism.pp <= plan.model.layers) {
        plan.parallelism.stage_layers = even_stages(plan.model.layers, plan.parallelism.pp);
    }

    // Last, because a cluster that is named is sized for the world.
    const std::string cluster = name_under(reader, "cluster", plan.origins);
    plan.cluster = cluster.empty()
                       ? topologies::cluster_from_json_text(Json::parse(text).at("cluster").dump(), file + ": /cluster")
                       : topologies::load_cluster(cluster, plan.parallelism.world_size());
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
    json["parallelism"] = to_json(plan.parallelism);
    json["training"] = to_json(plan.training);
    json["origins"] = plan.origins.empty() ? Json::object() : Json(plan.origins);
    return json.dump(2) + "\n";
}

}  // namespace orrery::program
