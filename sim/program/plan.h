// A plan: model, cluster, implementation, parallelism and training settings, resolved and validated. Everything that
// lowering, simulation and execution need stands in it; nothing is looked up again.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "models/implementation.h"
#include "models/model_spec.h"
#include "topologies/cluster_spec.h"

namespace orrery::program {

enum class Schedule : std::uint8_t { gpipe, one_f_one_b };
[[nodiscard]] std::string name_of(Schedule schedule);

struct Parallelism {
    std::int64_t dp = 1, tp = 1, pp = 1;
    bool sequence_parallel = false;
    Schedule schedule = Schedule::one_f_one_b;
    std::vector<std::int64_t> stage_layers;  // transformer blocks of each pipeline stage; size pp, sum = layers
    /// Ranks are numbered with tp fastest, then dp, then pp: rank = (pp_index * dp + dp_index) * tp + tp_index.
    bool operator==(const Parallelism&) const = default;
    [[nodiscard]] std::int64_t world_size() const { return dp * tp * pp; }
};

struct Precision {
    DType parameter = DType::fp32;
    DType activation = DType::fp32;
    DType gradient = DType::fp32;
    bool master_weights = false;  // an fp32 copy of 16-bit parameters; Adam's m and v are always fp32
    bool operator==(const Precision&) const = default;
};

struct Optimizer {
    double learning_rate = 3e-4;
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double weight_decay = 0.1;  // matrices and embeddings only
    bool operator==(const Optimizer&) const = default;
};

struct Training {
    std::int64_t sequence_length = 0;
    std::int64_t micro_batch_size = 1;
    std::int64_t global_batch_size = 1;  // sequences a step
    Precision precision;
    Optimizer optimizer;
    double dropout = 0.0;
    std::uint64_t seed = 1234;
    std::string data = "synthetic";  // or the path of a text file, read as bytes
    bool operator==(const Training&) const = default;
};

struct Plan {
    std::string name;
    models::ModelSpec model;
    topologies::ClusterSpec cluster;
    models::Implementation implementation;
    Parallelism parallelism;
    Training training;
    /// Where each value came from, by JSON pointer: "flag", "default", "planner", "file: …".
    std::map<std::string, std::string> origins;
    bool operator==(const Plan&) const = default;

    /// Micro-batches that each data-parallel rank runs in a step.
    [[nodiscard]] std::int64_t micro_batches() const {
        return training.global_batch_size / (parallelism.dp * training.micro_batch_size);
    }
};

/// Throws InputError naming `source`, the key and what is allowed: world size against the cluster, batch divisibility,
/// heads and widths against tp, sequence against sp and positions, stage list against layers.
void check_plan(const Plan& plan, const std::string& source);

/// Blocks split as evenly as pp allows; earlier stages take the remainder.
[[nodiscard]] std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t pp);

[[nodiscard]] Plan read_plan(const std::string& path);
[[nodiscard]] Plan plan_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] std::string to_json_text(const Plan& plan);

[[nodiscard]] Precision precision_named(const std::string& name);  // "fp32", "bf16"
[[nodiscard]] std::string name_of(const Precision& precision);

}  // namespace orrery::program
