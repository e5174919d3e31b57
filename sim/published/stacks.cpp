#include "sim/published/stacks.h"

#include <algorithm>
#include <array>

namespace orrery::published {
namespace {

using models::Implementation;
using models::KernelChoices;

/// The names of a stack as Words::name_any reads them, the nearest implementation, and the reason (empty: it is exactly
/// that implementation). "pytorch" chooses by the data parallelism that the words name.
struct KnownStack {
    std::string_view names;
    std::string_view source;  // words that the source's title must have, too
    std::string_view implementation;
    std::string_view why;
};
constexpr std::string_view kPyTorch = "pytorch";
constexpr std::string_view kBareMegatron = "megatron-lm";  // chosen by year

/// A stack comes before the stacks it is built on: "GPT-NeoX (Megatron+DeepSpeed)", "Composer + PyTorch FSDP1".
constexpr std::array<KnownStack, 51> kKnownStacks{{
    {"megatrondeepspeed|megatronds", "bigscience", "bigscience-megatron-deepspeed", ""},
    {"bigscience", "", "bigscience-megatron-deepspeed", ""},
    {"megatrondeepspeed|megatronds", "", "megatron-deepspeed", ""},
    {"gptneox|neox", "", "megatron-deepspeed", "GPT-NeoX is Megatron-LM under DeepSpeed"},
    {"llmfoundry", "", "llm-foundry", ""},
    {"composer|mosaicml", "", "llm-foundry", "Composer's FSDP, as llm-foundry drives it"},
    {"nanotron", "", "nanotron", ""},
    {"picotron", "", "nanotron", "written after it, with the same kernels and schedule"},
    {"paxml|pax|praxis", "", "paxml", ""},
    {"maxtext", "", "maxtext", ""},
    {"alpa", "", "jax-xla", "Alpa compiles JAX programs by XLA"},
    {"jax|levanter|haliax|flax|easylm|t5x|axlearn|gspmd|pjit|torchxla|pytorchxla|xla", "", "jax-xla",
     "a program compiled by XLA"},
    {"torchtitan", "", "torchtitan", ""},
    {"nemoautomodel|automodel", "", "torch-fsdp2", "Hugging Face models under fully_shard"},
    {"megatronbridge", "", "nemo", "Megatron-Bridge drives the same Megatron-Core"},
    {"nemo|bionemo", "", "nemo", ""},
    {"megatroncore|mcore|megatronfsdp|megatronlm0|megatron&core0|megatron&corer0", "", "megatron-core", ""},
    {"internevo|internlm", "", "megatron-core",
     "InternEvo has no entry; its kernels and parallelism are Megatron-Core's kind"},
    {"haillm|megascale|flagscale|primus|hetu|galvatron|pai|paddle|paddlenlp|paddlepaddle|fleetx|msamp", "",
     "megatron-core", "no entry of its own; its kernels and parallelism are Megatron-Core's kind"},
    {"llmc|llm&c", "", "megatron-core", "hand-fused kernels, as TransformerEngine's are"},
    {"axonn", "", "megatron-lm-2022", "AxoNN parallelises Megatron-LM's model"},
    {"merak|varuna|pipedream|torchgpipe|gpipe|terapipe|dapple|chimera|hanayo|bmtrain|tutel|fastmoe", "",
     "megatron-lm-2021", "no entry of its own; a PyTorch stack of that time with tensor or pipeline parallelism"},
    {"colossalai|colossal", "", "megatron-deepspeed", "Colossal-AI has no entry; the nearest of its time"},
    {"metaseq", "", "torch-fsdp1", "FSDP with Megatron's tensor parallelism"},
    {"fairscale|fairseq", "", "torch-fsdp1", "FairScale's FSDP became PyTorch's"},
    {"oneflow", "", "oneflow", ""},
    {"libai", "", "oneflow", "LiBai is OneFlow's library of models"},
    {"aascaling", "", "aa-scaling", "its kernels as the notes say"},
    {"megatron&deepspeed", "", "megatron-deepspeed", "Megatron-LM under DeepSpeed"},
    {"megatronlm1", "", "megatron-lm-2020", ""},
    {"megatronlm2", "", "megatron-lm-2021", ""},
    {"megatronlm3", "", "megatron-lm-2022", ""},
    {"megatronlmfork", "vocabulary", "megatron-core", "a fork of Megatron-Core of 2024"},
    {"megatronlmfork", "", "megatron-lm-zero-bubble", "the fork for zero-bubble schedules, of 2023"},
    {"megatron", "simumax", "megatron-core", "the source's other runs are Megatron-LM 0.14"},
    {"megatron&transformerengine|megatron&te|megatron&fp8", "", "megatron-core",
     "TransformerEngine came with Megatron-Core"},
    {"megatron|megatronlm", "", kBareMegatron, ""},
    {"deepspeed", "", "deepspeed", ""},
    {"horovod", "", "horovod", ""},
    {"fsdp2|fullyshard", "", "torch-fsdp2", "PyTorch's fully_shard"},
    {"fsdp1", "", "torch-fsdp1", "PyTorch's FullyShardedDataParallel"},
    {"torchtune", "", "torch-fsdp2", "torchtune shards by fully_shard"},
    {"fsdp|fullyshardeddataparallel|fullysharded|fullshard|shardgradop|hybridshard|hsdp", "", "torch-fsdp1",
     "PyTorch's FullyShardedDataParallel; which version is not stated"},
    {"zero1|zero2|zero3|zerostage1|zerostage2|zerostage3|zerooffload|zeroinfinity", "", "deepspeed",
     "ZeRO is DeepSpeed's"},
    {"sagemaker|smp|smdistributed", "", "torch-fsdp1", "the library of SageMaker builds on PyTorch's FSDP"},
    {"nanogpt", "", "torch-ddp", "nanoGPT runs under DistributedDataParallel"},
    {"ddp|distributeddataparallel", "", "torch-ddp", "PyTorch's DistributedDataParallel"},
    {"nndataparallel", "", "torch-dp", "PyTorch's DataParallel"},
    {"litgpt|lightning|fabric|huggingface|hf|transformers|trainer|accelerate|axolotl|trl|llamafactory|swift|unsloth|"
     "xtuner",
     "", kPyTorch, "a PyTorch model"},
    {"olmo|openlm|llamarecipes|llamacookbook|opendiloco|prime|torchacc|vescale|apex|pytorch|torch|cuda", "", kPyTorch,
     "a PyTorch model"},
    {"transformerengine|te|flashattention|flashattn|xformers|liger|torchcompile|inductor|triton|sdpa|cudnn", "",
     kPyTorch, "kernels of a PyTorch model"},
}};

std::string quoted(const std::string& words) {
    return "'" + words + "'";
}

bool is_after_ampere(const PublishedRun& run) {
    const Words gpu(run.hardware.gpu);
    return gpu.name_any("h100|h200|h800|h20|gh200|b200|b300|gb200|gb300|mi300x|mi325x|mi350x|mi355x");
}

/// Megatron-LM without a version: the one of the year in the framework or the title.
NearestStack megatron_of_its_year(const PublishedRun& run) {
    std::vector<std::int64_t> years = Words(run.framework).years();
    const std::vector<std::int64_t> of_title = Words(run.source).years();
    years.insert(years.end(), of_title.begin(), of_title.end());
    if (years.empty()) {
        if (is_after_ampere(run)) {
            return {"megatron-core", "Megatron-LM without a version on " + run.hardware.gpu + ", which came later"};
        }
        // Megatron-LM got Llama's MLP, experts and FlashAttention in 2023.
        if (run.model.gated_mlp.value_or(false) || run.model.experts || run.flash_attention.value_or(false)) {
            return {"megatron-core", "Megatron-LM without a version, for a model or attention that older ones lack"};
        }
        if (run.parallel.sequence_parallel.value_or(false)) {
            return {"megatron-lm-2022", "Megatron-LM without a version, with sequence parallelism, which came in 2022"};
        }
        return {"megatron-lm-2021", "Megatron-LM without a version or year"};
    }
    constexpr std::int64_t kMegatronCoreFrom = 2024;  // core_r0.5 of January 2024 is the first that Megatron-LM tagged
    const std::int64_t year = years.front();
    if (year >= kMegatronCoreFrom) {
        return {"megatron-core", "Megatron-LM of " + std::to_string(year) + " is Megatron-Core"};
    }
    if (year == 2023) return {"megatron-lm-2022", "Megatron-LM of 2023, before Megatron-Core"};
    if (year == 2021 || year == 2022) return {"megatron-lm-" + std::to_string(year), ""};
    return {"megatron-lm-2020", ""};
}

/// Chooses a PyTorch stack by the words for data parallelism, then by its kind.
NearestStack pytorch_stack(const PublishedRun& run, std::string_view what) {
    const Words words(run.parallel.data_parallel_words);
    const std::string& kind = run.parallel.data_parallel;
    const auto near = [&](const char* name, const std::string& engine) {
        return NearestStack{name,
                            "nearest to " + quoted(run.framework) + ": " + std::string(what) + " under " + engine};
    };
    if (words.name_any("fsdp2|fullyshard")) return near("torch-fsdp2", "fully_shard");
    if (words.name_any("deepspeed")) return near("deepspeed", "DeepSpeed");
    if (words.name_any("horovod")) return near("horovod", "Horovod");
    if (words.name_any("fsdp|fullshard|shardgradop|hybridshard|hsdp")) return near("torch-fsdp1", "FSDP");
    if (kind == "zero1" || kind == "zero2") return near("deepspeed", "ZeRO");
    if (kind == "zero3" || kind == "hsdp") return near("torch-fsdp1", "FSDP");
    if (run.parallel.tp.value_or(1) > 1 || run.parallel.pp.value_or(1) > 1) {
        return near("torchtitan", "DTensor's parallelism");
    }
    return near("torch-ddp", "DistributedDataParallel");
}

/// Chooses a stack by its parallelism, for frameworks with no known word.
NearestStack stack_by_parallelism(const PublishedRun& run) {
    if (run.parallel.tp.value_or(1) > 1 || run.parallel.pp.value_or(1) > 1 || run.parallel.ep.value_or(1) > 1) {
        const std::string why = "no word of " + quoted(run.framework) +
                                " is known; tensor, pipeline and expert parallelism are Megatron-LM's kind";
        return {is_after_ampere(run) || run.precision != "fp16" ? "megatron-core" : "megatron-lm-2021", why};
    }
    NearestStack near = pytorch_stack(run, "a PyTorch model");
    near.why = "no word of " + quoted(run.framework) + " is known; taken for a PyTorch model";
    return near;
}

/// Takes all kernels of the other implementation except the optimizer's.
void take_kernels_of(const Implementation& other, Implementation& implementation) {
    const bool fused_optimizer = implementation.kernels.fused_optimizer;
    implementation.kernels = other.kernels;
    implementation.kernels.fused_optimizer = fused_optimizer;
}

void compile(Implementation& implementation) {
    const Implementation compiled = models::load_implementation(implementation.supports.compiled_as);
    const std::vector<models::Base> bases = models::bases_of(compiled.name);
    if (!bases.empty() && bases.front().name == implementation.name) {
        implementation = compiled;
    } else {
        take_kernels_of(compiled, implementation);
    }
}

/// A kernel library or kernel, and the operations it fuses.
struct FusedKernels {
    std::string_view names;
    std::array<bool KernelChoices::*, 4> fused;
};
constexpr std::array<FusedKernels, 7> kFusedKernels{{
    {"liger|ligerkernel|unsloth",
     {&KernelChoices::fused_norm, &KernelChoices::fused_rope, &KernelChoices::fused_activation,
      &KernelChoices::fused_cross_entropy}},
    {"transformerengine|te",
     {&KernelChoices::fused_norm, &KernelChoices::fused_activation, &KernelChoices::merged_projections, nullptr}},
    {"apex", {&KernelChoices::fused_norm, &KernelChoices::fused_optimizer, nullptr, nullptr}},
    {"fusedadam|fusedadamw|fusedoptimizer|fusedlamb", {&KernelChoices::fused_optimizer, nullptr, nullptr, nullptr}},
    {"fusedrmsnorm|fusedlayernorm|fusednorm|rmskernel|rmsnormkernel",
     {&KernelChoices::fused_norm, nullptr, nullptr, nullptr}},
    {"fusedrope|fusedrotary|fusedswiglu|fusedactivation",
     {&KernelChoices::fused_rope, &KernelChoices::fused_activation, nullptr, nullptr}},
    {"fusedcrossentropy|fusedce|fusedloss|cefusion|crossentropyfusion|fusedlinearcrossentropy",
     {&KernelChoices::fused_cross_entropy, nullptr, nullptr, nullptr}},
}};

void choose_fused_kernels(const PublishedRun& run, const Words& words, Implementation& implementation,
                          Assumptions& assumptions) {
    for (const FusedKernels& known : kFusedKernels) {
        const Words::Says says = words.says_any(known.names);
        if (says == Words::Says::nothing) continue;
        bool changed = false;
        for (bool KernelChoices::*const fused : known.fused) {
            if (fused == nullptr || implementation.kernels.*fused == (says == Words::Says::yes)) continue;
            implementation.kernels.*fused = says == Words::Says::yes;
            changed = true;
        }
        if (!changed) continue;
        const std::string_view first = known.names.substr(0, known.names.find('|'));
        assumptions.add("/implementation/kernels", "kernels",
                        std::string(says == Words::Says::yes ? "fused as by " : "without ") + std::string(first),
                        "words of " + quoted(run.framework));
    }
}

struct AttentionKernel {
    std::string_view names, kernel;
};
/// The first one named counts. Kernels that a library offers under another kernel's name come before that kernel.
constexpr std::array<AttentionKernel, 9> kOneKernelAttention{{
    {"fa3|flashattention3|flashattn3", "flash-3"},
    {"fa2|flashattention2|flashattn2", "flash-2"},
    {"fa1|flashattention1|flashattn1", "flash-1"},
    {"cudnnattention|cudnnflash|cudnnfusedattention|teattention|dotproductattention", "cudnn"},
    {"tritonattention|tritonflash", "triton"},
    {"xformers|memoryefficientattention|memefficientattention", "xformers"},
    {"flexattention", "flex"},
    {"sdpa|scaleddotproductattention", "sdpa"},
    {"flashattention|flashattn|flash|fa|fa4|flashattention4|fusedattention", "flash"},
}};
constexpr std::string_view kStoredScores =
    "eagerattention|mathattention|naiveattention|unfusedattention|standardattention|vanillaattention|torchattention";

/// Whether the kernel has rates of its own. "flash" and "sdpa" do not say which kernel runs, so the implementation's is
/// kept.
bool has_rates_of_its_own(std::string_view kernel) {
    return kernel != "unfused" && kernel != "flash" && kernel != "sdpa";
}

void choose_attention(const PublishedRun& run, const Words& words, Implementation& implementation,
                      Assumptions& assumptions) {
    const std::string_view kernel = attention_kernel_in(words);
    if (!kernel.empty()) {
        implementation.kernels.fused_attention = implementation.kernels.causal_skip = kernel != "unfused";
        if (has_rates_of_its_own(kernel)) implementation.kernels.attention_kernel = kernel;
    }
    assumptions.add("/implementation/kernels/fused_attention", "attention",
                    implementation.kernels.fused_attention ? "one kernel" : "stores its scores",
                    kernel.empty() ? "default of " + implementation.name + "; not stated"
                                   : std::string(kernel) + " by the words of " + quoted(run.framework));
}

void choose_overlap(const PublishedRun& run, const Words& words, Implementation& implementation,
                    Assumptions& assumptions) {
    const std::string why = "words of " + quoted(run.framework);
    const Words::Says pieces =
        words.says_any("tpcommoverlap|tpoverlap|asynctp|asynctensorparallel|userbuffers|userbuffer|symmetricmemory");
    if (pieces != Words::Says::nothing) {
        const bool on = pieces == Words::Says::yes;
        if (implementation.tensor_parallel.pipelined_gather == on) return;
        implementation.tensor_parallel.pipelined_gather = on;
        assumptions.add("/implementation/tensor_parallel", "tensor-parallel gathers",
                        on ? "in pieces, overlapped with the GEMMs" : "whole", why);
    } else if (words.says_any("overlap|overlapcomm|overlapping|overlapped") == Words::Says::no) {
        implementation.data_parallel.overlaps_backward = false;
        implementation.data_parallel.gathers_parameters_ahead = false;
        implementation.data_parallel.forward_prefetch = implementation.data_parallel.backward_prefetch = 0;
        implementation.tensor_parallel = {.overlaps_input_gradient = false, .pipelined_gather = false};
        implementation.pipeline.posts_receives_ahead = false;
        assumptions.add("/implementation/data_parallel", "communication", "not overlapped", why);
    } else if (words.says_any("prefetch|prefetching") == Words::Says::no) {
        implementation.data_parallel.forward_prefetch = implementation.data_parallel.backward_prefetch = 0;
        assumptions.add("/implementation/data_parallel", "parameters", "not gathered ahead", why);
    }
}

void choose_dispatch(const PublishedRun& run, const Words& words, Implementation& implementation,
                     Assumptions& assumptions) {
    const Words::Says says = words.says_any("deepep|hybridep");
    const bool once = says == Words::Says::yes;
    if (says == Words::Says::nothing || implementation.experts.sends_tokens_once == once) return;
    implementation.experts.sends_tokens_once = once;
    assumptions.add("/implementation/experts", "tokens to experts",
                    once ? "once to each node and rank" : "a copy for each expert",
                    "words of " + quoted(run.framework));
}

}  // namespace

NearestStack nearest_stack(const PublishedRun& run) {
    const Words words(run.framework), title(run.source);
    if (words.name_any("neuron|neuronx|trainium|inferentia")) {
        throw NotExpressible("framework " + quoted(run.framework) + " runs on accelerators that are not GPUs");
    }
    for (const KnownStack& known : kKnownStacks) {
        if (!words.name_any(known.names)) continue;
        if (!known.source.empty() && !title.name_any(known.source)) continue;
        if (known.implementation == kPyTorch) return pytorch_stack(run, known.why);
        if (known.implementation == kBareMegatron) return megatron_of_its_year(run);
        std::string why;
        if (!known.why.empty()) why = "nearest to " + quoted(run.framework) + ": " + std::string(known.why);
        return {std::string(known.implementation), why};
    }
    return stack_by_parallelism(run);
}

bool is_vocabulary_fork(const PublishedRun& run) {
    return contains(run.source, "Vocabulary Parallelism") && contains(run.framework, "Megatron-LM fork");
}

void apply_stack_words(const PublishedRun& run, Implementation& implementation, Assumptions& assumptions) {
    const Words words(run.framework + "; " + run.parallel.data_parallel_words);
    const Words::Says compiled = words.says_any("torchcompile|compile|compiled|inductor|dynamo|torchinductor");
    const bool eager = compiled == Words::Says::no || words.says("eager") == Words::Says::yes;
    if (!implementation.supports.compiled_as.empty() && compiled == Words::Says::yes) {
        compile(implementation);
        assumptions.add("/implementation/kernels", "element-wise passes", "fused by torch.compile",
                        "words of " + quoted(run.framework));
    } else if (!implementation.supports.eager_as.empty() && eager) {
        take_kernels_of(models::load_implementation(implementation.supports.eager_as), implementation);
        assumptions.add("/implementation/kernels", "element-wise passes", "not fused",
                        "words of " + quoted(run.framework));
    }
    choose_fused_kernels(run, words, implementation, assumptions);
    if (!run.flash_attention) choose_attention(run, words, implementation, assumptions);
    choose_overlap(run, words, implementation, assumptions);
    choose_dispatch(run, words, implementation, assumptions);
}

std::string_view attention_kernel_in(const Words& words) {
    if (words.says_any(kStoredScores) == Words::Says::yes) return "unfused";
    bool denied = false;
    for (const AttentionKernel& known : kOneKernelAttention) {
        const Words::Says says = words.says_any(known.names);
        if (says == Words::Says::yes) return known.kernel;
        denied = denied || says == Words::Says::no;
    }
    return denied ? "unfused" : "";
}

std::string_view data_parallel_in(const Words& words) {
    if (words.name_any("hsdp|hybridshard")) return "hsdp";
    if (words.name_any(
            "zero3|zerostage3|deepspeed&stage3|fsdp|fsdp1|fsdp2|fullshard|fullyshard|fullysharded|shardgradop|"
            "fullyshardeddataparallel|zeroinfinity")) {
        return "zero3";
    }
    if (words.name_any("zero2|zerostage2|deepspeed&stage2|zerooffload")) return "zero2";
    if (words.name_any("zero1|zerostage1|deepspeed&stage1|distributedoptimizer|distributedfusedadam|"
                       "zeroredundancyoptimizer")) {
        return "zero1";
    }
    if (words.name_any("ddp|distributeddataparallel|zero0|zerostage0|replicated")) return "ddp";
    return "";
}

}  // namespace orrery::published
