// Frameworks differ in what they issue and keep, not only in speed. An Implementation is that difference as data: which
// kernels are fused, what is saved and cast, how gradients are bucketed, what is prefetched, and where the host waits.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace orrery {
class JsonReader;
}

namespace orrery::models {

/// How an eager or fused kernel library computes the parts of a layer.
struct KernelChoices {
    std::string attention_kernel = "flash-2";  // of fused attention: whose rate it has
    bool fused_attention = true;               // scores are never stored whole, only the log-sum-exp is saved
    bool causal_skip = true;                   // attention computes only the lower triangle (FLOPs about half)
    std::int64_t document_tokens = 0;          // > 0: tokens attend within their own of the packed documents, of this
                                               // mean length; needs causal_skip. 0: within the whole sequence
    bool fused_softmax = true;                 // unfused attention: scale, mask and softmax are one kernel
    bool fused_norm = true;                    // one kernel; otherwise eager passes over an fp32 copy, which is saved
    bool repeats_kv_heads = false;  // key/value heads are copied out to the query heads before attention, and kept so
    bool fused_rope = true;         // one kernel over q and k; otherwise eager passes
    bool fused_activation = true;   // bias and activation (SwiGLU: gate times up) are one kernel, inputs saved only
    bool fused_residual = true;     // bias, dropout and residual sum are one kernel
    bool masks_without_dropout = false;  // that kernel draws and keeps its mask at a probability of 0 too
    bool fused_cross_entropy = true;     // logits are overwritten by their gradient; otherwise an fp32 copy is kept too
    bool fused_weight_gradient = true;   // the product accumulates into the gradient; otherwise it writes and then adds
    bool merged_projections = true;      // q, k and v are one product, gate and up another; otherwise one each
    bool merged_gate = true;             // of merged projections: gate and up are one product; otherwise two
    // Of a merged product's output, which PyTorch hands on as views. A copy takes memory's time alone.
    bool splits_projections = false;  // the gradients of q, k and v are concatenated, and those of gate and up where
                                      // the activation is eager. Not where cuDNN's attention writes the former side by
                                      // side and no rotation comes between
    bool copies_qkv = false;          // fused attention is given contiguous copies of q, k and v
    bool joins_kv = false;  // k and v are joined into one tensor and laid out anew for the rotation; gradients likewise
    bool fused_optimizer = true;      // one pass over flat state; otherwise several
    bool grouped_experts = true;      // all local experts' products in one kernel; otherwise one after another
    bool keeps_narrow_logits = true;  // unfused loss: the model's 16-bit output lives until its gradient is there
    bool gathers_logits = false;      // unfused loss by the framework: each rank has that of the whole vocabulary
    bool narrow_logits = false;       // a fused loss keeps logits and their gradient in the activations' type, not fp32
    bool operator==(const KernelChoices&) const = default;
};

/// What tensor parallelism issues, and when.
struct TensorParallelChoices {
    bool overlaps_input_gradient = true;  // the reduction of dX runs beside the weight gradient
    bool reduces_inputs_apart = false;    // without sequence parallelism: of several products that read one input each
                                          // has its dX reduced, before they are summed; otherwise their sum is
    bool pipelined_gather = false;  // all-gather and reduce-scatter cut into tp pieces beside the product's pieces
    bool keeps_gathered_inputs =
        false;  // sequence parallelism: what was gathered is saved, not gathered again backward
    bool operator==(const TensorParallelChoices&) const = default;
};

struct PipelineChoices {
    bool posts_receives_ahead = true;  // otherwise send and receive are one fused call that the next computation awaits
    bool posts_interleaved_receives_ahead = true;  // the same of interleaved-1f1b, where it is one call after each pair
                                                   // of a forward and a backward
    bool scatters_transfers = false;  // tp > 1 without sequence parallelism: each rank sends 1/tp, the receiver gathers
    bool operator==(const PipelineChoices&) const = default;
};

/// How gradients and parameters cross data-parallel ranks.
struct DataParallelChoices {
    std::int64_t bucket_bytes = 25 << 20;  // a bucket closes when it holds at least this much
    std::int64_t first_bucket_bytes = 1 << 20;
    std::int64_t bucket_elements_per_rank = 0;  // > 0: a bucket holds at least this times the group's ranks (elements)
    bool overlaps_backward = true;              // buckets are reduced as the last backward fills them, otherwise after
    bool overlaps_first_stage_only = false;  // of a pipeline, only the first stage does; the others reduce at the end
    bool buckets_by_layer = false;           // a bucket (or unit) is a layer, whatever its size (FSDP's wrapping)
    bool fusion_buffer = false;              // gradients are copied into the bucket and back (Horovod)
    std::int64_t shard_alignment_elements =
        1;                                 // a sharded bucket's end is padded to a multiple of this and of the ranks
    bool pads_each_parameter = false;      // FSDP2: dim 0 of every parameter is padded to a multiple of the ranks
    bool reduces_to_owner = true;          // ZeRO-1: reduce-scatter; otherwise an all-reduce, of which a part is used
    bool gathers_parameters_ahead = true;  // ZeRO-1/2: parameter buckets are gathered under the next forward
    std::int64_t forward_prefetch = 1;     // units gathered ahead of the one computed; 0: none
    std::int64_t backward_prefetch = 1;
    bool keeps_root_gathered = true;  // the unit of embedding and head stays gathered from forward to backward
    bool operator==(const DataParallelChoices&) const = default;
};

struct HostChoices {
    double launch_factor = 1.0;            // of the device profile's host time an instruction
    bool waits_after_micro_batch = false;  // the host reads something back after each micro-batch
    bool waits_for_transfers = false;      // after each fused send and receive (Megatron's batched calls)
    bool waits_for_gradient_norm = true;   // the host reads the norm (or the found-inf flag) before the optimizer
    bool validates_after_update = false;   // a stage updates by what it knows itself; the sum over the stages comes
                                           // beside the next forwards, and the update is taken back where it must be
    bool operator==(const HostChoices&) const = default;
};

/// A figure of a framework's memory, with where it comes from.
struct MemoryFigure {
    double value = 0;
    std::string kind;    // "published", "fitted", "fallback"
    std::string source;  // empty: the figure was not given
    bool operator==(const MemoryFigure&) const = default;
};

/// What a framework and its allocator hold on a device beside the tensors that the layers name.
struct MemoryChoices {
    bool lays_out_ahead = false;  // one block of the whole layout; otherwise a caching allocator takes what is alive
    bool keeps_weight_gradient_stand_ins =
        false;                                 // autograd gets an empty tensor for each weight gradient that went
                                               // into the main gradient; one of each shape stays (TransformerEngine)
    bool copies_gradients_for_update = false;  // an fp32 copy of the 16-bit gradients that the rank updates
    bool keeps_gradients_beside_sums = false;  // 16-bit gradients beside the fp32 sums that they are added to
    bool keeps_stage_outputs = false;          // a stage's output, or what it sends of it, stays until its backward
    bool keeps_previous_logits = false;        // the model's 16-bit output of the micro-batch before stays
    bool windows_hold_tensors = false;         // of gathered units and of their gradients only the tensors at work
    std::int64_t buffer_elements = 0;          // of communication buffers of 16 bits, all together
    MemoryFigure cached_share;  // of what is allocated, that the allocator holds beyond it: rounding, pools, fragments
    MemoryFigure runtime_gib;   // libraries, and kernels loaded ahead, beside the device's context
    bool operator==(const MemoryChoices&) const = default;
};

/// What a framework can be asked for, by the names that plans use; a plan beyond it is refused. Lists name all that
/// there is, and an empty one nothing.
struct Support {
    std::string source;              // where these facts were read; empty: nothing is stated, and nothing is refused
    std::int64_t most_nodes = 0;     // 0: any number
    std::vector<std::string> axes;   // beside dp: "tp", "pp", "cp", "ep", "etp"
    bool sequence_parallel = false;  // of tensor-parallel ranks
    std::vector<std::string> context_parallel;            // "ring", "all_gather", "ulysses"
    std::vector<std::string> schedules;                   // of pipelines
    std::vector<std::string> vocabulary_parallel;         // beside "none"
    std::vector<std::string> data_parallel;               // "dp", "ddp", "zero1", "zero2", "zero3"
    std::vector<std::string> data_parallel_of_pipelines;  // of them, with pp above 1
    std::string default_data_parallel = "ddp";            // of them, where nobody asks for one
    bool shard_groups = false;                            // HSDP: shards among some of the data-parallel ranks
    std::vector<std::string> precisions;                  // of activations: "fp32", "bf16", "fp16"
    std::vector<std::string> narrow_products;             // "delayed", "tensorwise", "mx", "nvfp4", "mxfp4"
    std::vector<std::string> recompute;                   // beside "none": "selective", "full"
    std::vector<std::string> recompute_parts;             // of selective: names of models::BlockPart
    std::vector<std::string> offload;                     // "activations", "optimizer", "parameters"
    std::string compiled_as;  // under torch.compile: it is that implementation, if based on this one, or else has its
                              // kernels; empty: that changes nothing
    std::string eager_as;     // where it compiles by default: whose kernels it has without; empty: it does not
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
    bool reduces_in_fp32 = true;         // default: gradients cross ranks in fp32
    bool fp16_gradients_in_fp32 = true;  // both also under fp16; otherwise those stay fp16, and the two speak of bf16
    bool master_weights = true;          // default of 16-bit training
    bool stores_fp32_shards = false;     // FSDP: the sharded parameters are fp32 and cast when gathered
    bool recompute_stops_early = false;  // recomputation ends with the last value that is needed
    KernelChoices kernels;
    TensorParallelChoices tensor_parallel;
    PipelineChoices pipeline;
    DataParallelChoices data_parallel;
    HostChoices host;
    MemoryChoices memory;
    Support supports;
    bool operator==(const Implementation&) const = default;
};

/// By name; throws InputError with the known names.
[[nodiscard]] Implementation load_implementation(const std::string& name);
[[nodiscard]] std::vector<std::string> implementation_names();
/// What the implementation of this name is based on, the nearest first; none where nobody knows the name.
[[nodiscard]] std::vector<std::string> bases_of(const std::string& name);
[[nodiscard]] std::string to_json_text(const Implementation& implementation);
/// Keys of what they do differently, as "kernels/fused_norm"; not of what they are called or could do.
[[nodiscard]] std::vector<std::string> differences(const Implementation& a, const Implementation& b);
[[nodiscard]] Implementation implementation_from_json_text(const std::string& text, const std::string& file);
/// The same from an object inside another document, whose pointers the errors then carry.
[[nodiscard]] Implementation implementation_from_json(const JsonReader& reader);

}  // namespace orrery::models
