// The implementation of a published run, by its framework and year, with the kernels that the published words name.
#include <algorithm>

#include "sim/published/stacks.h"
#include "sim/published/translation.h"

namespace orrery::published {
namespace {

using models::Implementation;

Implementation load_nearest(const PublishedRun& run, Assumptions& assumptions) {
    const NearestStack nearest = nearest_stack(run);
    if (!nearest.why.empty()) {
        assumptions.add("/implementation", "implementation", nearest.implementation, nearest.why);
    }
    return models::load_implementation(nearest.implementation);
}

void set_flash(bool flash, Implementation& implementation) {
    implementation.kernels.fused_attention = flash;
    implementation.kernels.causal_skip = flash;
}

/// Kernels from AA-Scaling's notes: "attention kernel: torch | fused | flash_attention2 [+ RMS kernel]. …". The rest of
/// its Llama blocks was eager.
void choose_noted_kernels(const PublishedRun& run, Implementation& implementation, Assumptions& assumptions) {
    const std::string_view mark = "attention kernel: ";
    const std::size_t at = run.notes.find(mark);
    if (at == std::string::npos) return;
    const std::size_t begin = at + mark.size();
    const std::string kernel = run.notes.substr(begin, run.notes.find(". ", begin) - begin);
    models::KernelChoices& kernels = implementation.kernels;
    set_flash(kernel.starts_with("flash"), implementation);
    if (kernel.starts_with("flash")) kernels.attention_kernel = contains(kernel, "v1") ? "flash-1" : "flash-2";
    kernels.fused_softmax = !kernel.starts_with("torch");
    kernels.fused_norm = contains(kernel, "RMS kernel");
    kernels.fused_rope = kernels.fused_activation = false;
    assumptions.add("/implementation/kernels", "rotation and SwiGLU", "eager passes",
                    "Megatron-LM's fused kernels of that time serve GELU and learned positions");
    if (kernels.causal_skip) {  // otherwise full masks are stored
        assumptions.add("/implementation/kernels/document_tokens", "attention", "over whole sequences",
                        "how long their documents are is not stated");
    }
}

/// The fork for vocabulary parallelism: its training script, pretrain_gpt.sh, leaves --transformer-impl at its default,
/// transformer_engine, and sets --use-flash-attn. By measurement a block keeps 34.04 bytes per token and hidden element
/// at dropout 0 (vocab-1 holds one micro-batch of four blocks more than vocab-2), two more than its tensors without
/// masks. The difference is inferred to be masks: bias, dropout and residual are one TorchScript function, whose
/// derivative of dropout keeps a one-byte mask even at probability 0 (torch/csrc/jit/runtime/symbolic_script.cpp).
void choose_fork_kernels(const PublishedRun& run, Implementation& implementation, Assumptions& assumptions) {
    if (!is_vocabulary_fork(run)) return;
    models::KernelChoices& kernels = implementation.kernels;
    kernels.masks_without_dropout = true;
    assumptions.add("/implementation/kernels/masks_without_dropout", "dropout masks", "kept at dropout 0 too",
                    "TorchScript's derivative of dropout has one");
    kernels.attention_kernel = "flash-2";
    kernels.copies_qkv = true;
    assumptions.add("/implementation/kernels/attention_kernel", "attention", "flash-2, on copies of q, k and v",
                    "TransformerEngine's choice on A100 where FlashAttention 2 is installed");
}

/// LLM-Foundry's "attn_impl triton flash (2023 tables) / flash (2024 tables)": the row's id tells its table. The 2024
/// tables used flash-attn 1.0.9: FlashAttention 2 was only an optional extra ("gpu-flash2"), and beyond 8,192
/// positions, where attention dominates the step, the later tables are no faster than Triton's.
void choose_table_kernel(const PublishedRun& run, Implementation& implementation, Assumptions& assumptions) {
    if (!contains(run.notes, "triton flash (2023 tables)")) return;
    const bool triton = contains(run.id, "-2023-");
    implementation.kernels.attention_kernel = triton ? "triton" : "flash-1";
    implementation.kernels.copies_qkv = !triton;
    if (triton) return;
    assumptions.add("/implementation/kernels/attention_kernel", "attention", "flash-1",
                    "LLM-Foundry of that time installed FlashAttention 1.0.9 unless told otherwise");
}

/// Applies words that switch something on or off.
void apply_notes(const PublishedRun& run, Implementation& implementation, Assumptions& assumptions) {
    models::DataParallelChoices& dp = implementation.data_parallel;
    const auto no_overlap = [&] {
        dp.overlaps_backward = false;
        dp.gathers_parameters_ahead = false;
    };
    if (contains(run.notes, "overlap paths OFF") || contains(run.source, "sync-VPP")) {
        no_overlap();
        implementation.tensor_parallel = {.overlaps_input_gradient = false, .pipelined_gather = false};
        implementation.pipeline.posts_receives_ahead = false;
        implementation.pipeline.posts_interleaved_receives_ahead = false;
    }
    if (contains(run.notes, "CE fusion on")) {
        implementation.kernels.fused_cross_entropy = true;
        if (contains(run.framework, "TransformerEngine")) {
            implementation.kernels.narrow_logits = true;
            assumptions.add("/implementation/kernels/narrow_logits", "logits",
                            "in 16 bits, overwritten by their gradient", "TransformerEngine's kernel of the loss");
        }
    }
    // nanotron's own scaling runs fill the GPU with sequences; kept inputs would leave no room for them.
    if (contains(run.framework, "async linear") && implementation.tensor_parallel.keeps_gathered_inputs) {
        implementation.tensor_parallel.keeps_gathered_inputs = false;
        assumptions.add("/implementation/tensor_parallel/keeps_gathered_inputs", "gathered inputs", "gathered again",
                        "default of " + implementation.name + "'s asynchronous linear layer; not stated");
    }
    if (contains(run.notes, "no-gradient-accumulation-fusion")) implementation.kernels.fused_weight_gradient = false;
    if (contains(run.notes, "gradient all-reduce NOT overlapped")) dp.overlaps_backward = false;
    if (contains(run.parallel.data_parallel_words, "overlap_grad_sync False")) no_overlap();
    if (contains(run.parallel.data_parallel_words, "DDP: torch")) {
        constexpr std::int64_t kMebibyte = 1 << 20;
        dp.bucket_bytes = 25 * kMebibyte;
        dp.first_bucket_bytes = kMebibyte;
        dp.overlaps_backward = true;
        assumptions.add("/implementation/data_parallel", "gradient buckets", "25 MiB beside the backward pass",
                        "defaults of the torch DistributedDataParallel that the source names");
    }
    if (validates_after_update(run)) implementation.host.waits_for_gradient_norm = false;
    // OneFlow's graph compiler turns gradient reductions over one axis of a two-dimensional mesh into logical operators
    // on the compute stream (insert_nccl_logical_op_pass.cpp, nccl_logical_2d_sbp_kernels.cpp).
    if (is_kind_of(implementation, "oneflow") && run.parallel.tp.value_or(1) > 1 && dp.overlaps_backward) {
        dp.overlaps_backward = false;
        assumptions.add("/implementation/data_parallel/overlaps_backward", "gradient all-reduce",
                        "not overlapped with the backward pass", "OneFlow's collectives on a mesh of two dimensions");
    }
}

}  // namespace

bool validates_after_update(const PublishedRun& run) {
    return run.parallel.schedule.starts_with("zb-") && !contains(run.id, "sync") && contains(run.framework, "fork");
}

bool is_kind_of(const Implementation& implementation, const std::string& name) {
    if (implementation.name == name) return true;
    const std::vector<models::Base> bases = models::bases_of(implementation.name);
    return std::ranges::find(bases, name, &models::Base::name) != bases.end();
}

Implementation implementation_of(const PublishedRun& run, Assumptions& assumptions) {
    Implementation implementation = load_nearest(run, assumptions);
    if (is_kind_of(implementation, "deepspeed") && contains(run.source, "Megatron-LM")) {
        implementation.kernels = models::load_implementation("megatron-lm-2021").kernels;
        implementation.vocab_multiple = models::load_implementation("megatron-lm-2021").vocab_multiple;
        implementation.default_dropout = models::load_implementation("megatron-lm-2021").default_dropout;
        assumptions.add("/implementation/kernels", "kernels", "of megatron-lm-2021",
                        "ZeRO-3 was run on Megatron-LM's model");
    }
    if (run.flash_attention) set_flash(*run.flash_attention, implementation);
    apply_stack_words(run, implementation, assumptions);
    choose_noted_kernels(run, implementation, assumptions);
    choose_table_kernel(run, implementation, assumptions);
    choose_fork_kernels(run, implementation, assumptions);
    apply_notes(run, implementation, assumptions);
    return implementation;
}

}  // namespace orrery::published
