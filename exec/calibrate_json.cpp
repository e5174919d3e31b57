#include <nlohmann/json.hpp>

#include "core/json_reader.h"
#include "exec/calibrate.h"

namespace orrery::exec {
namespace {

DType read_dtype(const JsonReader& sample) {
    const std::optional<DType> dtype = dtype_named(sample.string("dtype"));
    if (!dtype) sample.fail("dtype", "the name of a type");
    return *dtype;
}

}  // namespace

std::string to_json_text(const Measurements& measurements) {
    nlohmann::ordered_json json{{"schema", "orrery.measurements/1"},
                                {"ranks", measurements.ranks},
                                {"cores", measurements.cores},
                                {"context_bytes", measurements.context_bytes},
                                {"memory_bytes_per_s", measurements.memory_bytes_per_s},
                                {"best_flops_per_s", measurements.best_flops_per_s},
                                {"launch_s", measurements.launch_s},
                                {"matmuls", nlohmann::ordered_json::array()},
                                {"operators", nlohmann::ordered_json::array()},
                                {"transfers", nlohmann::ordered_json::array()}};
    for (const auto& sample : measurements.matmuls) {
        json["matmuls"].push_back({{"op", sample.op},
                                   {"m", sample.m},
                                   {"n", sample.n},
                                   {"k", sample.k},
                                   {"dtype", name_of(sample.dtype)},
                                   {"bias", sample.bias},
                                   {"seconds", sample.seconds}});
    }
    for (const auto& sample : measurements.operators) {
        json["operators"].push_back({{"op", sample.op},
                                     {"bytes", sample.bytes},
                                     {"flops", sample.flops},
                                     {"rows", sample.rows},
                                     {"head_dim", sample.head_dim},
                                     {"sequence", sample.sequence},
                                     {"n", sample.n},
                                     {"k", sample.k},
                                     {"heads", sample.heads},
                                     {"kv_heads", sample.kv_heads},
                                     {"elements", sample.elements},
                                     {"dtype", name_of(sample.dtype)},
                                     {"seconds", sample.seconds}});
    }
    for (const auto& sample : measurements.transfers) {
        json["transfers"].push_back(
            {{"op", sample.op}, {"ranks", sample.ranks}, {"bytes", sample.bytes}, {"seconds", sample.seconds}});
    }
    return json.dump() + "\n";
}

Measurements measurements_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader json = JsonReader::parse(text, file);
    json.expect_schema("orrery.measurements/1");
    Measurements result{.ranks = json.integer("ranks", kPositiveInteger),
                        .cores = json.integer("cores", kPositiveInteger),
                        .context_bytes = json.number("context_bytes", kNotNegative),
                        .memory_bytes_per_s = json.number("memory_bytes_per_s", kNotNegative),
                        .best_flops_per_s = json.number("best_flops_per_s", kNotNegative),
                        .launch_s = json.number("launch_s", kNotNegative)};
    for (const JsonReader& sample : json.objects("matmuls")) {
        result.matmuls.push_back({sample.string("op"), sample.integer("m", kPositiveInteger),
                                  sample.integer("n", kPositiveInteger), sample.integer("k", kPositiveInteger),
                                  sample.number("seconds", kPositive), read_dtype(sample), sample.boolean("bias")});
        sample.finish();
    }
    for (const JsonReader& sample : json.objects("operators")) {
        result.operators.push_back({.op = sample.string("op"),
                                    .bytes = sample.number("bytes", kNotNegative),
                                    .flops = sample.number("flops", kNotNegative),
                                    .rows = sample.integer("rows", kCount),
                                    .head_dim = sample.integer("head_dim", kCount),
                                    .sequence = sample.integer("sequence", kCount),
                                    .seconds = sample.number("seconds", kPositive),
                                    .dtype = read_dtype(sample),
                                    .n = sample.integer("n", kCount),
                                    .k = sample.integer("k", kCount),
                                    .heads = sample.integer("heads", kCount),
                                    .kv_heads = sample.integer("kv_heads", kCount),
                                    .elements = sample.integer("elements", kCount)});
        sample.finish();
    }
    for (const JsonReader& sample : json.objects("transfers")) {
        result.transfers.push_back({sample.string("op"), sample.integer("ranks", kPositiveInteger),
                                    sample.integer("bytes", kCount), sample.number("seconds", kPositive)});
        sample.finish();
    }
    json.finish();
    return result;
}

}  // namespace orrery::exec
