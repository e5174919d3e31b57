// Frameworks differ not only in speed but in what they issue and keep in memory. An Implementation describes this as
// data: which kernels are fused, what is saved and cast, how gradients are bucketed, what is prefetched, and where the
// host waits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace orrery {
class JsonReader;
}

namespace orrery::models {

/// How an eager or fused kernel library computes the parts of a layer.
struct KernelChoices {
    std::string attention_kernel = "flash-2";  // fused attention: the kernel whose rate applies
    bool fused_attention = true;               // the full score matrix is never stored; only the log-sum-exp is saved
    bool causal_skip = true;                   // attention computes only the lower triangle (FLOPs about half)
    std::int64_t document_tokens = 0;          // > 0: tokens attend within their own packed document, with this mean
                                               // length; needs causal_skip. 0: within the whole sequence
    bool fused_softmax = true;                 // unfused attention: scale, mask and softmax are one kernel
    bool fused_norm = true;                    // one kernel; otherwise eager passes over an fp32 copy, which is saved
    bool repeats_kv_heads = false;  // key/value heads are repeated for all query heads before attention, and saved so
    bool fused_rope = true;         // one kernel over q and k; otherwise eager passes
    bool fused_activation = true;   // bias and activation (SwiGLU: gate times up) are one kernel; only inputs are saved
    bool fused_residual = true;     // bias, dropout and residual sum are one kernel
    // Fusions of kernels that each do one of the above. They do not apply to ranks on CPU cores, nor where a plan
    // recomputes only one of the two parts.
    bool fused_residual_norm = false;  // without dropout, a residual sum is computed by the norm that reads it, if that
                                       // belongs to the same layer
    bool gelu_epilogue = false;        // the first product of a dense MLP stores its result and the GELU of it
    bool online_softmax = false;       // loss: the maximum and the sum of a row come from one pass over the logits;
                                       // ranks with parts of the vocabulary gather both instead of reducing them
    bool masks_without_dropout = false;  // that kernel draws and saves its mask at a probability of 0 too
    bool fused_cross_entropy = true;     // logits are overwritten by their gradient; otherwise an fp32 copy is kept too
    bool fused_weight_gradient = true;   // the product accumulates into the gradient; otherwise it writes and then adds
    bool merged_projections = true;      // q, k and v are one product, gate and up another; otherwise one each
    bool merged_gate = true;             // with merged projections: gate and up are one product; otherwise two
    // Copies of a merged product's output, which PyTorch passes on as views. A copy costs memory traffic only.
    bool splits_projections = false;  // the gradients of q, k and v are concatenated, and those of gate and up if the
                                      // activation is eager. Not for q, k and v if cuDNN's attention writes them side
                                      // by side and there is no rotation
    bool copies_qkv = false;          // fused attention gets contiguous copies of q, k and v
    bool joins_kv = false;        // k and v are joined into one tensor and re-laid out for the rotation; gradients too
    bool fused_optimizer = true;  // one pass over flat state; otherwise several
    bool grouped_experts = true;  // all local experts' products in one kernel; otherwise one after another
    bool keeps_narrow_logits = true;  // unfused loss: the model's 16-bit output lives until its gradient is computed
    bool gathers_logits = false;      // unfused loss of the framework: each rank gathers the logits of all ranks
    bool narrow_logits = false;       // a fused loss keeps logits and their gradient in the activations' type, not fp32
    bool operator==(const KernelChoices&) const = default;

    /// How often an update reads and writes its operands: without a fused one each of its element-wise operations does.
    [[nodiscard]] double optimizer_passes() const { return fused_optimizer ? 1 : 4; }
};

/// What tensor parallelism issues, and when.
struct TensorParallelChoices {
    bool overlaps_input_gradient = true;  // the reduction of dX overlaps with the weight gradient
    bool reduces_inputs_apart = false;  // without sequence parallelism: if several products read one input, each dX is
                                        // reduced before they are summed; otherwise their sum is reduced
    bool pipelined_gather = false;  // all-gather and reduce-scatter are cut into tp pieces beside the product's pieces
    bool keeps_gathered_inputs =
        false;  // sequence parallelism: gathered inputs are saved instead of gathered again in the backward
    bool operator==(const TensorParallelChoices&) const = default;
};

struct PipelineChoices {
    bool posts_receives_ahead = true;  // otherwise send and receive are one fused call that the next computation awaits
    bool posts_interleaved_receives_ahead = true;  // the same for interleaved-1f1b, where the call comes after each
                                                   // pair of a forward and a backward
    bool scatters_transfers = false;  // tp > 1 without sequence parallelism: each rank sends 1/tp, the receiver gathers
    bool operator==(const PipelineChoices&) const = default;
};

/// How tokens travel to experts on other ranks.
struct ExpertChoices {
    /// A token crosses the network once for each node that holds some of its experts, and reaches each of their ranks
    /// once over the node's own links; results are summed on the way back. Otherwise it is sent once for each expert.
    bool sends_tokens_once = false;
    bool operator==(const ExpertChoices&) const = default;
};

/// How gradients are reduced and parameters gathered across data-parallel ranks.
struct DataParallelChoices {
    std::int64_t bucket_bytes = 25 << 20;  // a bucket closes when it holds at least this much
    std::int64_t first_bucket_bytes = 1 << 20;
    std::int64_t bucket_elements_per_rank = 0;  // > 0: a bucket holds at least this times the group's ranks (elements)
    bool overlaps_backward = true;           // buckets are reduced as the last backward fills them; otherwise after it
    bool overlaps_first_stage_only = false;  // in a pipeline, only the first stage overlaps; others reduce at the end
    bool buckets_by_layer = false;           // a bucket (or unit) is a layer, whatever its size (FSDP's wrapping)
    bool fusion_buffer = false;              // gradients are copied into the bucket and back (Horovod)
    std::int64_t shard_alignment_elements =
        1;                             // a sharded bucket's end is padded to a multiple of this and of the ranks
    bool pads_each_parameter = false;  // FSDP2: dim 0 of every parameter is padded to a multiple of the ranks
    bool reduces_to_owner = true;      // ZeRO-1: reduce-scatter; otherwise an all-reduce whose result is used in part
    bool gathers_parameters_ahead = true;  // ZeRO-1/2: parameter buckets are gathered under the next forward
    std::int64_t forward_prefetch = 1;     // units gathered ahead of the current one; 0: none
    std::int64_t backward_prefetch = 1;
    bool keeps_root_gathered = true;  // the unit of embedding and head stays gathered from forward to backward
    bool operator==(const DataParallelChoices&) const = default;
};

struct HostChoices {
    double launch_factor = 1.0;            // multiplies the device profile's host time of an instruction
    bool waits_after_micro_batch = false;  // the host reads a value back after each micro-batch
    bool waits_for_transfers = false;     // the host waits after each fused send and receive (Megatron's batched calls)
    bool waits_for_gradient_norm = true;  // the host reads the norm (or the found-inf flag) before the optimizer,
                                          // unless the update is validated afterwards (Optimizer::post_validation)
    bool operator==(const HostChoices&) const = default;
};

/// A memory figure of a framework, with its origin.
struct MemoryFigure {
    double value = 0;
    std::string kind;    // "published", "fitted", "fallback"
    std::string source;  // empty: the figure is not given
    bool operator==(const MemoryFigure&) const = default;
};

/// Memory that a framework and its allocator hold on a device in addition to the tensors of the layers.
struct MemoryChoices {
    bool lays_out_ahead = false;  // one block for the whole layout; otherwise a caching allocator holds live tensors
    bool keeps_weight_gradient_stand_ins =
        false;                                 // autograd gets an empty tensor for each weight gradient that was added
                                               // to the main gradient; one of each shape stays (TransformerEngine)
    bool copies_gradients_for_update = false;  // an fp32 copy of the 16-bit gradients that the rank updates
    bool keeps_gradients_beside_sums = false;  // 16-bit gradients in addition to the fp32 sums they are added to
    bool keeps_stage_outputs = false;          // a stage's output, or the part it sends, stays until its backward
    bool keeps_previous_logits = false;        // the model's 16-bit output of the previous micro-batch stays
    bool windows_hold_tensors = false;  // windows of gathered units hold only the tensors in use, not whole units
    std::int64_t buffer_elements = 0;   // elements of all 16-bit communication buffers together
    MemoryFigure cached_share;  // cached by the allocator beyond the allocated bytes, as a share of them: rounding,
                                // pools, fragmentation
    MemoryFigure runtime_gib;   // libraries and preloaded kernels, in addition to the device's context
    bool operator==(const MemoryChoices&) const = default;
};

/// What a framework supports, by the names used in plans; a plan that needs more is refused. Lists are complete: an
/// empty list means that nothing of the kind is supported, and {"all"} that every name of the kind is.
struct Support {
    [[nodiscard]] static bool states_all(const std::vector<std::string>& list) {
        return list.size() == 1 && list.front() == "all";
    }
    /// Whether one of the lists contains the name.
    [[nodiscard]] static bool lists(const std::vector<std::string>& list, std::string_view name) {
        return states_all(list) || std::find(list.begin(), list.end(), name) != list.end();
    }

    std::string source;              // where these facts were read; empty: nothing is stated, and nothing is refused
    std::int64_t most_nodes = 0;     // 0: any number
    std::vector<std::string> axes;   // besides dp: "tp", "pp", "cp", "ep", "etp"
    bool sequence_parallel = false;  // of tensor-parallel ranks
    bool overlaps_experts = false;   // a pass computes while the tokens of another pass travel to experts and back
    std::vector<std::string> context_parallel;            // "ring", "all_gather", "ulysses"
    std::vector<std::string> schedules;                   // of pipelines
    std::vector<std::string> vocabulary_parallel;         // besides "none"
    std::vector<std::string> data_parallel;               // "dp", "ddp", "zero1", "zero2", "zero3"
    std::vector<std::string> data_parallel_of_pipelines;  // subset of data_parallel allowed with pp above 1
    std::string default_data_parallel = "ddp";            // used unless the user selects one
    bool shard_groups = false;                            // HSDP: shards inside groups of data-parallel ranks
    bool stage_layouts = false;  // the user may give the blocks of each pipeline stage; else the framework divides them
    std::vector<std::string> precisions;               // of activations: "fp32", "bf16", "fp16"
    std::vector<std::string> narrow_products;          // "delayed", "tensorwise", "mx", "nvfp4", "mxfp4"
    std::vector<std::string> moments;                  // stored types besides "fp32": "bf16"
    std::vector<std::string> moments_of_whole_states;  // subset of moments allowed where data-parallel ranks do not
                                                       // shard optimizer states
    bool post_validation = false;                      // of the update against the gradient norm (arXiv 2401.10241)
    std::vector<std::string> recompute;                // besides "none": "selective", "full"
    std::vector<std::string> recompute_parts;          // of selective: names of models::BlockPart
    std::vector<std::string> offload;                  // "activations", "optimizer", "parameters"
    std::string compiled_as;  // with torch.compile: the implementation that results, if it is based on this one; else
                              // the one whose kernels are used. Empty: no change
    std::string eager_as;     // if it compiles by default: the implementation whose kernels it uses without
                              // torch.compile. Empty: it does not compile by default
    bool operator==(const Support&) const = default;
};

struct Implementation {
    std::string name;  // "orrery", "megatron-core"
    std::string version;
    std::string source;       // where these facts were read
    bool executable = false;  // the executor runs it
    double default_dropout = 0.0;
    std::int64_t vocab_multiple = 128;   // padded vocabulary is a multiple of this times tp_degree
    bool gradients_in_fp32 = true;       // default of 16-bit training: main gradients are fp32
    bool reduces_in_fp32 = true;         // default: gradients are reduced in fp32
    bool fp16_gradients_in_fp32 = true;  // the two flags above apply to fp16 too; otherwise only to bf16
    bool master_weights = true;          // default of 16-bit training
    bool stores_fp32_shards = false;     // FSDP: the sharded parameters are fp32 and cast when gathered
    bool recompute_stops_early = false;  // recomputation stops after the last value that is needed
    KernelChoices kernels;
    TensorParallelChoices tensor_parallel;
    PipelineChoices pipeline;
    ExpertChoices experts;
    DataParallelChoices data_parallel;
    HostChoices host;
    MemoryChoices memory;
    Support supports;
    bool operator==(const Implementation&) const = default;
};

/// By name; an unknown name throws an InputError that lists the known ones.
[[nodiscard]] Implementation load_implementation(const std::string& name);
[[nodiscard]] std::vector<std::string> implementation_names();
struct Base {
    std::string name;
    bool shares_rates = false;  // the same software with other settings: everything measured of the base applies
    bool operator==(const Base&) const = default;
};
/// The chain of implementations that this one is based on, nearest first; empty for an unknown name.
[[nodiscard]] std::vector<Base> bases_of(const std::string& name);
[[nodiscard]] std::string to_json_text(const Implementation& implementation);
/// Keys of behaviour in which the two differ, as "kernels/fused_norm". Names, sources, memory and `supports` are
/// ignored.
[[nodiscard]] std::vector<std::string> differences(const Implementation& a, const Implementation& b);
[[nodiscard]] Implementation implementation_from_json_text(const std::string& text, const std::string& file);
/// The same from an object inside another document; errors have that document's JSON pointers.
[[nodiscard]] Implementation implementation_from_json(const JsonReader& reader);

}  // namespace orrery::models
