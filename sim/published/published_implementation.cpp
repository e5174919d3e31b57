// Which implementation ran, by the published framework and year, with the kernels that the words beside it name.
#include <array>

#include "sim/published/translation.h"

namespace orrery::published {
namespace {

using models::Implementation;

struct KnownFramework {
    std::string_view framework;  // is part of the published name
    std::string_view source;     // is part of the source's title
    std::string_view implementation;
    std::string_view why;  // not empty: the choice is an assumption
};
/// The first that fits.
constexpr std::array<KnownFramework, 24> kKnownFrameworks{{
    {"Megatron-DeepSpeed", "", "megatron-deepspeed", ""},
    {"GPT-NeoX", "", "megatron-deepspeed", "GPT-NeoX is Megatron-LM under DeepSpeed"},
    {"DeepSpeed ZeRO-3", "", "deepspeed", ""},
    {"llm-foundry", "", "llm-foundry", ""},
    {"nanotron", "", "nanotron", ""},
    {"PaxML", "", "jax-xla", ""},
    {"MaxText", "", "jax-xla", ""},
    {"NeMo", "", "nemo", ""},
    {"Megatron-Bridge", "", "nemo", "Megatron-Bridge drives the same Megatron-Core"},
    {"Megatron-Core", "", "megatron-core", ""},
    {"mcore", "", "megatron-core", ""},
    {"Megatron-LM 0.1", "", "megatron-core", ""},
    {"InternEvo", "", "megatron-core", "InternEvo has no entry; its kernels and parallelism are Megatron-Core's kind"},
    {"Colossal-AI", "", "megatron-deepspeed", "Colossal-AI has no entry; the nearest of its time"},
    {"metaseq", "", "torch-fsdp1", "FSDP with Megatron's tensor parallelism"},
    {"OneFlow", "", "oneflow", ""},
    {"AA-Scaling", "", "megatron-lm-2022", "AA-Scaling derives from Megatron-LM; its kernels as the notes say"},
    {"Megatron-LM v1.", "", "megatron-lm-2020", ""},
    {"Megatron-LM v2.", "", "megatron-lm-2021", ""},
    {"Megatron-LM fork", "", "megatron-lm-2022", "forks of 2023 and 2024; what they changed is their schedule"},
    {"Megatron-LM", "2022", "megatron-lm-2022", ""},
    {"Megatron-LM", "SimuMax", "megatron-core", "the source's other runs are Megatron-LM 0.14"},
    {"Megatron-LM", "2020", "megatron-lm-2020", ""},
    {"Megatron-LM", "", "megatron-lm-2021", ""},
}};

Implementation load_known(const PublishedRun& run, Assumptions& assumptions) {
    for (const KnownFramework& known : kKnownFrameworks) {
        if (!contains(run.framework, known.framework) || !contains(run.source, known.source)) continue;
        if (!known.why.empty()) {
            assumptions.add("/implementation", "implementation", std::string(known.implementation),
                            std::string(known.why));
        }
        return models::load_implementation(std::string(known.implementation));
    }
    throw NotExpressible("no implementation is known for framework '" + run.framework + "'");
}

void set_flash(bool flash, Implementation& implementation) {
    implementation.kernels.fused_attention = flash;
    implementation.kernels.causal_skip = flash;
}

/// AA-Scaling's notes: "attention kernel: torch | fused | flash_attention2 [+ RMS kernel]. …". Everything else of a
/// Llama block was eager there.
void choose_noted_kernels(const PublishedRun& run, Implementation& implementation, Assumptions& assumptions) {
    const std::string_view mark = "attention kernel: ";
    const std::size_t at = run.notes.find(mark);
    if (at == std::string::npos) return;
    const std::size_t begin = at + mark.size();
    const std::string kernel = run.notes.substr(begin, run.notes.find(". ", begin) - begin);
    models::KernelChoices& kernels = implementation.kernels;
    set_flash(kernel.starts_with("flash"), implementation);
    kernels.fused_softmax = !kernel.starts_with("torch");
    kernels.fused_norm = contains(kernel, "RMS kernel");
    kernels.fused_rope = kernels.fused_activation = false;
    assumptions.add("/implementation/kernels", "rotation and SwiGLU", "eager passes",
                    "Megatron-LM's fused kernels of that time serve GELU and learned positions");
}

/// Words that say what was switched off or on.
void heed_notes(const PublishedRun& run, Implementation& implementation, Assumptions& assumptions) {
    models::DataParallelChoices& dp = implementation.data_parallel;
    const auto no_overlap = [&] {
        dp.overlaps_backward = false;
        dp.gathers_parameters_ahead = false;
    };
    if (contains(run.notes, "overlap paths OFF") || contains(run.source, "sync-VPP")) {
        no_overlap();
        implementation.tensor_parallel = {.overlaps_input_gradient = false, .pipelined_gather = false};
        implementation.pipeline.posts_receives_ahead = false;
    }
    if (contains(run.notes, "CE fusion on")) implementation.kernels.fused_cross_entropy = true;
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
    // The optimizer of the zero-bubble schedules begins at once and is taken back when the norm turns out too large.
    const bool zero_bubble = run.parallel.schedule.starts_with("zb-");
    if (zero_bubble && !contains(run.id, "sync") && contains(run.framework, "fork")) {
        implementation.host.waits_for_gradient_norm = false;
        assumptions.add("/implementation/host/waits_for_gradient_norm", "gradient norm", "not waited for",
                        "post-validation, arXiv 2401.10241 section 4");
    }
}

}  // namespace

Implementation implementation_of(const PublishedRun& run, Assumptions& assumptions) {
    Implementation implementation = load_known(run, assumptions);
    if (implementation.name == "deepspeed" && contains(run.source, "Megatron-LM")) {
        implementation.kernels = models::load_implementation("megatron-lm-2021").kernels;
        implementation.vocab_multiple = models::load_implementation("megatron-lm-2021").vocab_multiple;
        implementation.default_dropout = models::load_implementation("megatron-lm-2021").default_dropout;
        assumptions.add("/implementation/kernels", "kernels", "of megatron-lm-2021",
                        "ZeRO-3 was run on Megatron-LM's model");
    }
    if (run.flash_attention) {
        set_flash(*run.flash_attention, implementation);
    } else if (!implementation.kernels.fused_attention) {
        assumptions.add("/implementation/kernels/fused_attention", "attention", "stores its scores",
                        "default of " + implementation.name + "; not stated");
    } else {
        assumptions.add("/implementation/kernels/fused_attention", "attention", "one kernel",
                        "default of " + implementation.name + "; not stated");
    }
    choose_noted_kernels(run, implementation, assumptions);
    heed_notes(run, implementation, assumptions);
    return implementation;
}

}  // namespace orrery::published
