// A plan: model, cluster, implementation, parallelism and training settings, resolved and validated. Everything that
// lowering, simulation and execution need stands in it; nothing is looked up again.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "models/implementation.h"
#include "models/model_spec.h"
#include "models/training_choices.h"
#include "sim/program/rates.h"
#include "sim/program/schedule_table.h"
#include "topologies/cluster_spec.h"

namespace orrery::program {

enum class DataParallel : std::uint8_t {
    dp,     // torch DataParallel: one process, rank 0 holds the model and everyone's results
    ddp,    // replicas; gradients are all-reduced
    zero1,  // optimizer states are sharded
    zero2,  //   and gradients
    zero3,  //   and parameters (FSDP)
};
[[nodiscard]] std::string name_of(DataParallel kind);
[[nodiscard]] DataParallel data_parallel_named(const std::string& name);

using models::ContextParallel;

/// Whether embedding and output weights are cut over the stages of the pipeline, and how that is scheduled (Yeung et
/// al. 2024, arXiv 2411.05288).
enum class VocabularyParallel : std::uint8_t {
    none,          // embedding on the first virtual stage, head on the last
    two_barriers,  // "vocab-1"
    one_barrier,   // "vocab-2"
    interlaced,    // all ranks together, nothing between
};
[[nodiscard]] std::string name_of(VocabularyParallel kind);

/// Axes by which ranks are numbered. `ep` orders the expert mesh (etp, ep, edp, pp) and counts nothing in the other
/// one.
enum class MeshAxis : std::uint8_t { tp, cp, ep, dp, pp };
inline constexpr std::size_t kMeshAxes = 5;
[[nodiscard]] std::string name_of(MeshAxis axis);
/// "tp,cp,ep,dp,pp", with each axis once and the fastest first.
[[nodiscard]] std::array<MeshAxis, kMeshAxes> mesh_order_named(const std::string& text);

/// Durations with which the automatic pipeline schedulers plan: of one micro-batch on one stage. 0: from the arithmetic
/// of the stages' products.
struct ScheduleTimes {
    double forward_ms = 0, input_ms = 0, weight_ms = 0, transfer_ms = 0;
    bool operator==(const ScheduleTimes&) const = default;
};

struct Parallelism {
    std::int64_t dp = 1, tp = 1, pp = 1, cp = 1;
    /// Experts are spread over ep ranks of the tp * cp * dp that share a stage; each expert is cut over etp of them.
    /// The rest of them, edp, hold copies.
    std::int64_t ep = 1, etp = 1;
    bool sequence_parallel = false;
    ContextParallel context_parallel = ContextParallel::ring;
    Schedule schedule = Schedule::one_f_one_b;
    std::int64_t chunks = 1;            // v: model chunks of each pipeline rank
    std::int64_t interleave_group = 0;  // interleaved: micro-batches that take turns; 0: pp
    ScheduleTimes schedule_times;       // zb-1p, zb-2p
    /// Transformer blocks of each virtual stage in the order in which a micro-batch passes them; sum = layers. Only the
    /// first (embedding) and the last (head) may be without.
    std::vector<std::int64_t> stage_layers;
    VocabularyParallel vocabulary_parallel = VocabularyParallel::none;
    DataParallel data_parallel = DataParallel::ddp;
    std::int64_t dp_shard = 0;          // zero1..3: ranks that share one set of shards (HSDP); 0: dp * cp
    bool reshard_after_forward = true;  // zero3: parameters are freed after the forward and gathered again
    bool reduces_every_micro_batch =
        false;  // gradients cross ranks after each backward, not only the last (no no_sync)
    /// Ranks are numbered with the first axis fastest.
    std::array<MeshAxis, kMeshAxes> order{MeshAxis::tp, MeshAxis::cp, MeshAxis::ep, MeshAxis::dp, MeshAxis::pp};
    std::vector<std::int64_t> placement;  // device of each rank; empty: rank i on device i
    bool operator==(const Parallelism&) const = default;

    [[nodiscard]] std::int64_t world_size() const { return dp * tp * pp * cp; }
    /// Of one copy of the model: pp * chunks; dualpipe: pp, for its two chunks belong to two copies.
    [[nodiscard]] std::int64_t virtual_stages() const;
    /// Copies of the model among the ranks of a pipeline: a stage of the other copy has the same parameters.
    [[nodiscard]] std::int64_t model_copies() const { return pp > 1 ? row_of(schedule).model_copies() : 1; }
    /// The first and the last virtual stage are one rank's: embedding and head share a tied weight there.
    [[nodiscard]] bool ends_meet() const { return pp == 1 || !row_of(schedule).is_looped(); }
    [[nodiscard]] bool spreads_vocabulary() const { return vocabulary_parallel != VocabularyParallel::none; }
    /// The gradient of the last stage's output comes with the vocabulary's forward pass, which computes it.
    [[nodiscard]] bool vocabulary_gradient_from_forward() const {
        return vocabulary_parallel == VocabularyParallel::one_barrier ||
               vocabulary_parallel == VocabularyParallel::interlaced;
    }
    /// Ranks among which dense gradients are reduced.
    [[nodiscard]] std::int64_t gradient_ranks() const { return dp * cp; }
    [[nodiscard]] std::int64_t expert_dp() const { return dp * cp * tp / (ep * etp); }
    [[nodiscard]] std::int64_t shard_ranks() const { return dp_shard > 0 ? dp_shard : gradient_ranks(); }
    /// Several sets of ranks share shards (HSDP).
    [[nodiscard]] bool has_shard_sets() const { return shard_ranks() < gradient_ranks(); }
    [[nodiscard]] bool shards_parameters() const { return data_parallel == DataParallel::zero3; }
    [[nodiscard]] bool shards_gradients() const { return data_parallel >= DataParallel::zero2; }
    [[nodiscard]] bool shards_optimizer() const { return data_parallel >= DataParallel::zero1; }
};

/// The order as mesh_order_named reads it.
[[nodiscard]] std::string mesh_order_text(const Parallelism& parallelism);

using models::ExpertLoad;
using models::Fp8Scaling;

struct Precision {
    DType parameter = DType::fp32;
    DType activation = DType::fp32;
    DType gradient = DType::fp32;       // as accumulated
    DType reduction = DType::fp32;      // as gradients cross ranks
    DType compute = DType::fp32;        // of matrix products: fp32, tf32, or the activation type
    Fp8Scaling fp8 = Fp8Scaling::none;  // block products in fp8, activations otherwise as above
    bool fp8_parameters = false;        // an fp8 copy is what data-parallel ranks gather
    bool master_weights = false;        // an fp32 copy of 16-bit parameters; optimizer states are always fp32
    bool loss_scaling = false;          // fp16: gradients are unscaled and checked for overflow before the update
    bool operator==(const Precision&) const = default;
};

enum class OptimizerKind : std::uint8_t { adamw, adam, sgd_momentum };
[[nodiscard]] std::string name_of(OptimizerKind kind);

struct Optimizer {
    OptimizerKind kind = OptimizerKind::adamw;
    double learning_rate = 3e-4;
    double beta1 = 0.9, beta2 = 0.95, epsilon = 1e-8;
    double momentum = 0.9;      // sgd_momentum
    double weight_decay = 0.1;  // matrices and embeddings only
    double clip_norm = 0;       // 0: gradients are not clipped
    bool operator==(const Optimizer&) const = default;
    /// fp32 values a parameter, master weights apart.
    [[nodiscard]] std::int64_t states() const { return kind == OptimizerKind::sgd_momentum ? 1 : 2; }
};

enum class Recompute : std::uint8_t { none, selective, full };
[[nodiscard]] std::string name_of(Recompute kind);
[[nodiscard]] Recompute recompute_named(const std::string& name);

/// What is not kept on the device.
struct MemorySavings {
    Recompute recompute = Recompute::none;
    std::int64_t recompute_layers = -1;  // full: only so many of each chunk's blocks; -1: all
    /// selective: parts of a block whose values are computed again (see models::BlockPart); empty: attention_core.
    std::vector<std::string> recompute_parts;
    bool shards_checkpoints = false;  // full, tp > 1 without sequence parallelism: a block's input is kept in tp parts
    std::int64_t offload_layers = 0;  // blocks of each chunk whose saved activations go to the host
    bool offload_optimizer = false;   // states live and are updated on the host
    bool offload_parameters = false;  // zero3: shards live on the host
    bool operator==(const MemorySavings&) const = default;
};

struct Training {
    std::int64_t sequence_length = 0;
    std::int64_t micro_batch_size = 1;
    std::int64_t global_batch_size = 1;  // sequences a step
    Precision precision;
    Optimizer optimizer;
    MemorySavings memory;
    ExpertLoad expert_load;
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
    Rates rates;  // what its time is predicted with; the executor has no use for them
    /// Where each value came from, by JSON pointer: "flag", "default", "planner", "file: …".
    std::map<std::string, std::string> origins;
    bool operator==(const Plan&) const = default;

    /// Micro-batches that each data-parallel rank runs in a step.
    [[nodiscard]] std::int64_t micro_batches() const {
        return training.global_batch_size / (parallelism.dp * training.micro_batch_size);
    }
};

/// Throws InputError naming `source`, the key and what is allowed when a value is out of range, when the degrees do not
/// divide the model, the batch, the sequence, each other or the cluster, or when two choices exclude each other.
void check_plan(const Plan& plan, const std::string& source);
/// Part of it: throws InputError where the plan asks for what its implementation has not (Implementation::supports), or
/// where that statement names what nobody knows.
void check_support(const Plan& plan, const std::string& source);

/// Blocks split as evenly as the (virtual) stages allow, at least one each; earlier stages take the remainder.
[[nodiscard]] std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t stages);

[[nodiscard]] Plan read_plan(const std::string& path);
[[nodiscard]] Plan plan_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] std::string to_json_text(const Plan& plan);

/// "fp32", "tf32" (fp32 values, tf32 products), "bf16", "fp16" (with loss scaling) and "fp8" (bf16 with delayed
/// scaling); 16-bit training has the master weights, the gradients and their reduction that the implementation has by
/// default.
[[nodiscard]] Precision precision_named(const std::string& name, const models::Implementation& implementation = {});
[[nodiscard]] const std::vector<std::string>& precision_names();
/// The name under which precision_named gives it with a default Implementation; otherwise its parts in words.
[[nodiscard]] std::string name_of(const Precision& precision);

}  // namespace orrery::program
