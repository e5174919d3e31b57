// A plan: model, cluster, implementation, parallelism and training settings, resolved and validated. It contains
// everything that lowering, simulation and execution need; they look up nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/index.h"
#include "models/implementation.h"
#include "models/model_spec.h"
#include "models/training_choices.h"
#include "sim/program/rates.h"
#include "sim/program/schedule_table.h"
#include "topologies/cluster_spec.h"

namespace orrery::program {

using ChunkIndex = Index<struct ChunkTag>;  // of a model chunk of a rank

enum class DataParallel : std::uint8_t {
    dp,     // torch DataParallel: one process; rank 0 is the master, which computes the loss and the update
    ddp,    // replicas; gradients are all-reduced
    zero1,  // optimizer states are sharded
    zero2,  // optimizer states and gradients are sharded
    zero3,  // optimizer states, gradients and parameters are sharded (FSDP)
};
/// What a kind of data parallelism shards among its ranks, and whether the planner considers it by default.
struct DataParallelRow {
    std::string_view name;
    bool shards_states = false, shards_gradients = false, shards_parameters = false;
    bool is_searched = false;
};
inline constexpr std::array<DataParallelRow, 5> kDataParallelRows{{
    // by DataParallel
    {.name = "dp"},
    {.name = "ddp", .is_searched = true},
    {.name = "zero1", .shards_states = true, .is_searched = true},
    {.name = "zero2", .shards_states = true, .shards_gradients = true, .is_searched = true},
    {.name = "zero3", .shards_states = true, .shards_gradients = true, .shards_parameters = true, .is_searched = true},
}};
inline constexpr auto kDataParallelKinds = enum_values<DataParallel, kDataParallelRows.size()>();
[[nodiscard]] constexpr const DataParallelRow& row_of(DataParallel kind) {
    return kDataParallelRows.at(static_cast<std::size_t>(kind));
}
[[nodiscard]] std::string name_of(DataParallel kind);
[[nodiscard]] DataParallel data_parallel_named(const std::string& name);

using models::ContextParallel;

/// Whether the embedding and output weights are sharded over the pipeline, and how their passes are scheduled (Yeung et
/// al. 2024, arXiv 2411.05288).
enum class VocabularyParallel : std::uint8_t {
    none,          // embedding on the first virtual stage, head on the last
    two_barriers,  // "vocab-1"
    one_barrier,   // "vocab-2"
    interlaced,    // all ranks compute each vocabulary pass together, with nothing in between
};
[[nodiscard]] std::string name_of(VocabularyParallel kind);

/// Axes by which ranks are numbered. `ep` has a position in the expert mesh (etp, ep, edp, pp) only; in the dense mesh
/// its extent is 1.
enum class MeshAxis : std::uint8_t { tp, cp, ep, dp, pp };
inline constexpr std::size_t kMeshAxes = 5;
[[nodiscard]] std::string name_of(MeshAxis axis);
/// Parses an order such as "tp,cp,ep,dp,pp": each axis once, the fastest-varying first. Otherwise throws InputError.
[[nodiscard]] std::array<MeshAxis, kMeshAxes> mesh_order_named(const std::string& text);

/// Durations that the automatic pipeline schedulers assume for one micro-batch on one stage. All 0: estimated from the
/// FLOPs of each stage's GEMMs and attention.
struct ScheduleTimes {
    double forward_ms = 0, input_ms = 0, weight_ms = 0, transfer_ms = 0;
    bool operator==(const ScheduleTimes&) const = default;
};

struct Parallelism {
    std::int64_t dp = 1, tp = 1, pp = 1, cp = 1;
    /// The tp * cp * dp ranks of a stage are ep * etp * edp ranks of the expert mesh: the experts are distributed over
    /// ep ranks, each expert is sharded over etp ranks, and edp ranks hold copies.
    std::int64_t ep = 1, etp = 1;
    /// In a pair of a forward and an independent backward, each pass computes while the other's tokens travel to
    /// experts and back: the two are issued in turns.
    bool overlaps_experts = false;
    bool sequence_parallel = false;
    ContextParallel context_parallel = ContextParallel::ring;
    Schedule schedule = Schedule::one_f_one_b;
    std::int64_t chunks = 1;            // v: model chunks of each pipeline rank
    std::int64_t interleave_group = 0;  // interleaved: consecutive micro-batches on one chunk; 0: pp
    ScheduleTimes schedule_times;       // zb-1p, zb-2p
    /// Transformer blocks of each virtual stage, in the order in which a micro-batch passes them; sum = layers. Only
    /// the first stage (embedding) and the last one (head) may have none.
    std::vector<std::int64_t> stage_layers;
    VocabularyParallel vocabulary_parallel = VocabularyParallel::none;
    DataParallel data_parallel = DataParallel::ddp;
    std::int64_t dp_shard = 0;          // zero1..3: ranks that share one set of shards (HSDP); 0: dp * cp
    bool reshard_after_forward = true;  // zero3: gathered parameters are freed after the forward pass
    // Gradients are reduced after each micro-batch's backward (without no_sync), not only after the last.
    bool reduces_every_micro_batch = false;
    /// The order in which ranks are numbered; the first axis varies fastest.
    std::array<MeshAxis, kMeshAxes> order{MeshAxis::tp, MeshAxis::cp, MeshAxis::ep, MeshAxis::dp, MeshAxis::pp};
    std::vector<std::int64_t> placement;  // device of each rank; empty: rank i on device i
    bool operator==(const Parallelism&) const = default;

    [[nodiscard]] std::int64_t world_size() const { return dp * tp * pp * cp; }
    /// Virtual stages of one copy of the model: pp * chunks; dualpipe: pp, because its two chunks belong to two copies.
    [[nodiscard]] std::int64_t virtual_stages() const;
    /// Copies of the model within one pipeline; they have the same parameters.
    [[nodiscard]] std::int64_t model_copies() const { return pp > 1 ? row_of(schedule).model_copies() : 1; }
    /// The first and the last virtual stage are on the same rank, where embedding and head share a tied weight.
    [[nodiscard]] bool ends_meet() const { return pp == 1 || !row_of(schedule).is_looped(); }
    [[nodiscard]] bool spreads_vocabulary() const { return vocabulary_parallel != VocabularyParallel::none; }
    /// The vocabulary's forward pass S, not its backward pass T, computes the gradient of the last stage's output.
    [[nodiscard]] bool vocabulary_gradient_from_forward() const {
        return vocabulary_parallel == VocabularyParallel::one_barrier ||
               vocabulary_parallel == VocabularyParallel::interlaced;
    }
    /// Ranks among which dense gradients are reduced.
    [[nodiscard]] std::int64_t gradient_ranks() const { return dp * cp; }
    [[nodiscard]] std::int64_t expert_dp() const { return dp * cp * tp / (ep * etp); }
    [[nodiscard]] std::int64_t shard_ranks() const { return dp_shard > 0 ? dp_shard : gradient_ranks(); }
    /// There are several sets of ranks, each with a complete set of shards (HSDP).
    [[nodiscard]] bool has_shard_sets() const { return shard_ranks() < gradient_ranks(); }
    [[nodiscard]] bool shards_parameters() const { return row_of(data_parallel).shards_parameters; }
    [[nodiscard]] bool shards_gradients() const { return row_of(data_parallel).shards_gradients; }
    [[nodiscard]] bool shards_optimizer() const { return row_of(data_parallel).shards_states; }
};

/// The order in the format that mesh_order_named reads.
[[nodiscard]] std::string mesh_order_text(const Parallelism& parallelism);

using models::ExpertLoad;
using models::Fp8Scaling;

struct Precision {
    DType parameter = DType::fp32;
    DType activation = DType::fp32;
    DType gradient = DType::fp32;       // as accumulated
    DType reduction = DType::fp32;      // of gradients in data-parallel collectives
    DType compute = DType::fp32;        // of GEMMs: the activation type, or tf32 for fp32 activations
    Fp8Scaling fp8 = Fp8Scaling::none;  // narrow GEMMs in blocks; stored activations keep their type
    bool fp8_parameters = false;        // data-parallel ranks gather an fp8 copy of the parameters
    DType moments = DType::fp32;        // of AdamW and Adam, as stored; updates compute in fp32
    bool master_weights = false;        // an fp32 copy of 16-bit parameters
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
    /// A stage updates with its own part of the gradient norm. The sum over the stages overlaps with the next step's
    /// forward passes and may revert the update (post-validation, arXiv 2401.10241 section 4).
    bool post_validation = false;
    bool operator==(const Optimizer&) const = default;
    /// Values per parameter, without master weights: the moments, or the momentum.
    [[nodiscard]] std::int64_t states() const { return kind == OptimizerKind::sgd_momentum ? 1 : 2; }
};

enum class Recompute : std::uint8_t { none, selective, full };
[[nodiscard]] std::string name_of(Recompute kind);
[[nodiscard]] Recompute recompute_named(const std::string& name);

/// What is recomputed or offloaded in order to save device memory.
struct MemorySavings {
    Recompute recompute = Recompute::none;
    std::int64_t recompute_layers = -1;  // full: the number of each chunk's first blocks to recompute; -1: all
    /// selective: the parts of a block that are recomputed (see models::BlockPart); empty: attention_core.
    std::vector<std::string> recompute_parts;
    bool shards_checkpoints = false;  // full, tp > 1 without sequence parallelism: a block's input is sharded over tp
    std::int64_t offload_layers = 0;  // the number of each chunk's first blocks whose saved activations are offloaded
    bool offload_optimizer = false;   // optimizer states are stored and updated on the host
    bool offload_parameters = false;  // zero3: parameter shards are stored on the host
    bool operator==(const MemorySavings&) const = default;
};

struct Training {
    std::int64_t sequence_length = 0;
    std::int64_t micro_batch_size = 1;
    std::int64_t global_batch_size = 1;  // sequences per step
    Precision precision;
    Optimizer optimizer;
    MemorySavings memory;
    ExpertLoad expert_load;
    double dropout = 0.0;
    std::uint64_t seed = 1234;
    std::string data = "synthetic";  // or the path of a text file, read as bytes
    bool operator==(const Training&) const = default;
    /// Bytes of optimizer states per parameter, without master weights.
    [[nodiscard]] std::int64_t state_bytes() const { return optimizer.states() * size_of(precision.moments); }
    /// The update depends on a sum over all gradients: their norm, or whether all are finite.
    [[nodiscard]] bool checks_gradients() const { return optimizer.clip_norm > 0 || precision.loss_scaling; }
};

struct Plan {
    std::string name;
    models::ModelSpec model;
    topologies::ClusterSpec cluster;
    models::Implementation implementation;
    Parallelism parallelism;
    Training training;
    Rates rates;  // for predicting durations; the executor ignores them
    /// Where each value came from, by JSON pointer: "flag", "default", "planner", "file: …".
    std::map<std::string, std::string> origins;
    bool operator==(const Plan&) const = default;

    /// Micro-batches that each data-parallel rank runs in a step.
    [[nodiscard]] std::int64_t micro_batches() const {
        return training.global_batch_size / (parallelism.dp * training.micro_batch_size);
    }
};

/// Throws InputError with `source`, the key, the value and what is allowed if a value is out of range, if the degrees
/// do not divide the model, the batch, the sequence, each other or the cluster, or if two choices exclude each other.
void check_plan(const Plan& plan, const std::string& source);
/// Part of check_plan: throws InputError if the plan uses a feature that its implementation does not support
/// (Implementation::supports), or if that list contains an unknown name.
void check_support(const Plan& plan, const std::string& source);

/// Distributes the blocks evenly over the (virtual) stages; the first stages get one more each if there is a remainder.
/// Throws InputError if there are more stages than layers.
[[nodiscard]] std::vector<std::int64_t> even_stages(std::int64_t layers, std::int64_t stages);

[[nodiscard]] Plan read_plan(const std::string& path);
[[nodiscard]] Plan plan_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] std::string to_json_text(const Plan& plan);

/// The precision with this name, one of precision_names(): "fp32"; "tf32" (fp32 values, tf32 GEMMs); "bf16"; "fp16"
/// (with loss scaling); "fp8" (with delayed scaling), "mxfp8", "nvfp4" and "mxfp4" (bf16 with narrower GEMMs). For
/// 16-bit training the implementation decides about master weights and the types of gradients and their reduction.
[[nodiscard]] Precision precision_named(const std::string& name, const models::Implementation& implementation = {});
[[nodiscard]] const std::vector<std::string>& precision_names();
/// Types in which an optimizer may store its moments.
[[nodiscard]] const std::vector<std::string>& moment_types();
/// The name for which precision_named returns this precision with a default Implementation; otherwise a description.
/// Moments in another type than fp32 are added: "bf16 with bf16 moments".
[[nodiscard]] std::string name_of(const Precision& precision);

}  // namespace orrery::program
