// Frameworks in various wordings: none that names a known part is refused, each finds its nearest implementation, and
// the other words choose kernels and overlap.
#include "sim/published/stacks.h"

#include <gtest/gtest.h>

#include "tests/unit/published/sample_rows.h"

namespace orrery::published {
namespace {

using nlohmann::json;

TEST(Words, FindsANameInManySpellings) {
    for (const char* text :
         {"FlashAttention-2", "flash-attn 2.5.8", "Flash Attention v2", "flash_attentionv2", "FA2 kernels"}) {
        EXPECT_TRUE(Words(text).name_any("flashattention2|flashattn2|fa2")) << text;
    }
    for (const char* text : {"Megatron-LM", "MegatronLM", "megatron_lm", "megatron lm"}) {
        EXPECT_TRUE(Words(text).name_any("megatronlm")) << text;
    }
    EXPECT_FALSE(Words("Nemotron").name_any("nemo"));
    EXPECT_FALSE(Words("FSDP 2 x").name_any("fsdp2x3"));
    EXPECT_TRUE(Words("PyTorchFSDPv2").name_any("fsdp2&torch"));
    EXPECT_TRUE(Words("").empty());
    EXPECT_EQ(Words("release of 2023, v20231 and 1024 GPUs").years(), (std::vector<std::int64_t>{2023}));
}

TEST(Words, RecognisesDenials) {
    const auto says = [](const char* text) { return Words(text).says("torchcompile"); };
    using Says = Words::Says;
    EXPECT_EQ(says("FSDP2 + torch.compile"), Says::yes);
    for (const char* text : {"no torch.compile", "FSDP without torch.compile", "w/o torch.compile", "torch.compile off",
                             "torch.compile: false", "torch.compile not used", "not using torch.compile"}) {
        EXPECT_EQ(says(text), Says::no) << text;
    }
    EXPECT_EQ(says("no overlap, torch.compile"), Says::yes);  // another clause
    EXPECT_EQ(says("torch.compile not stated"), Says::nothing);
    EXPECT_EQ(says("eager"), Says::nothing);
}

/// The words, the nearest implementation, and further choices: "flash", "scores" (stored), "norm" (fused),
/// "eager-norm", "loss" (fused), "adam" (fused), "serial" (no overlap), "pieces" or "whole" (tensor-parallel gathers),
/// "once" or "copies" (tokens to experts).
struct Case {
    const char* framework;
    const char* implementation;
    const char* choices = "";
};
constexpr Case kCases[] = {
    // PyTorch FSDP
    {"PyTorch FSDP2 + torch.compile, FlashAttention-3", "torch-fsdp2-compile", "flash norm loss"},
    {"PyTorch FSDP", "torch-fsdp1", "eager-norm"},
    {"PyTorch FSDP1", "torch-fsdp1", "eager-norm"},
    {"PyTorch 2.1 FSDP (FULL_SHARD), no torch.compile", "torch-fsdp1", "eager-norm"},
    {"FSDP SHARD_GRAD_OP", "torch-fsdp1"},
    {"FSDP HYBRID_SHARD, torch 2.0.1", "torch-fsdp1"},
    {"Fully Sharded Data Parallel (PyTorch nightly)", "torch-fsdp1"},
    {"fully_shard (FSDP2), eager", "torch-fsdp2", "eager-norm"},
    {"torch FSDPv2, compiled", "torch-fsdp2-compile", "norm"},
    {"fsdp 2 w/ inductor", "torch-fsdp2-compile"},
    {"PyTorch FSDP2 w/o torch.compile", "torch-fsdp2", "eager-norm"},
    {"FSDP2, torch.compile: False, SDPA", "torch-fsdp2", "flash eager-norm"},
    {"PyTorch FSDP + eager attention", "torch-fsdp1", "scores"},
    {"PyTorch FSDP + xFormers memory efficient attention", "torch-fsdp1", "flash"},
    {"PyTorch FSDP, cuDNN attention", "torch-fsdp1", "flash"},
    {"PyTorch FSDP, without FlashAttention", "torch-fsdp1", "scores"},
    {"PyTorch FSDP, FlexAttention, compiled", "torch-fsdp1-compile", "flash norm"},
    {"FSDP with prefetch off", "torch-fsdp1"},
    {"FSDP2 without overlap", "torch-fsdp2", "serial"},
    {"HSDP (PyTorch)", "torch-fsdp1"},
    {"FullyShardedDataParallel, Apex fused norms", "torch-fsdp1", "norm adam"},
    {"PyTorch FSDP + TransformerEngine FP8", "torch-fsdp1", "norm"},
    {"PyTorch FSDP2 + torchao float8 + torch.compile", "torch-fsdp2-compile", "norm"},
    {"FSDP1 + Liger Kernel", "torch-fsdp1", "norm loss"},
    {"FSDP + fused AdamW", "torch-fsdp1", "adam"},
    {"FSDP, fused RMSNorm", "torch-fsdp1", "norm"},
    {"FSDP2 + fused cross entropy", "torch-fsdp2", "loss eager-norm"},
    {"torch.distributed.fsdp", "torch-fsdp1"},
    {"vanilla FSDP, flash-attn 2.5.6", "torch-fsdp1", "flash"},
    {"Lightning FSDPStrategy / FSDP", "torch-fsdp1"},
    // torchtitan
    {"torchtitan", "torchtitan", "norm loss"},
    {"TorchTitan (FSDP2 + TP, torch.compile)", "torchtitan", "norm loss"},
    {"torchtitan main@2024-11, float8, async TP", "torchtitan", "pieces"},
    {"torchtitan, no compile", "torchtitan", "eager-norm"},
    {"torchtitan eager", "torchtitan", "eager-norm"},
    {"pytorch/torchtitan 1D FSDP", "torchtitan"},
    {"torchtitan w/ asynchronous: async tensor parallel", "torchtitan", "pieces"},
    {"Torchtitan + FlexAttention", "torchtitan", "flash"},
    // Lightning, LitGPT and other PyTorch front ends
    {"LitGPT + FSDP, compiled", "torch-fsdp1-compile", "norm"},
    {"Lit-GPT (Lightning Fabric, FSDP)", "torch-fsdp1"},
    {"LitGPT", "torch-ddp"},
    {"PyTorch Lightning DDP", "torch-ddp"},
    {"PyTorch Lightning + DeepSpeed stage 3", "deepspeed"},
    {"Lightning Thunder, FSDP", "torch-fsdp1"},
    {"HF Trainer w/ DeepSpeed ZeRO-3 offload", "deepspeed"},
    {"Hugging Face Trainer + FSDP", "torch-fsdp1"},
    {"HF Trainer (DDP)", "torch-ddp", "eager-norm"},
    {"Hugging Face Accelerate, FSDP2", "torch-fsdp2"},
    {"accelerate launch + deepspeed zero2", "deepspeed"},
    {"transformers 4.38, flash_attention_2", "torch-ddp", "flash"},
    {"transformers Trainer, attn eager attention", "torch-ddp", "scores"},
    {"Axolotl 0.4 (FSDP, FlashAttention 2)", "torch-fsdp1", "flash"},
    {"axolotl + DeepSpeed ZeRO-2", "deepspeed"},
    {"TRL SFTTrainer + PEFT, DeepSpeed", "deepspeed"},
    {"LLaMA-Factory, DeepSpeed ZeRO 3", "deepspeed"},
    {"LLaMA-Factory", "torch-ddp"},
    {"Unsloth", "torch-ddp", "norm loss"},
    {"torchtune (FSDP2)", "torch-fsdp2"},
    {"torchtune 0.4 compiled", "torch-fsdp2-compile"},
    {"torchtune full_finetune_distributed", "torch-fsdp2"},
    {"OLMo-core (FSDP, torch.compile)", "torch-fsdp1-compile"},
    {"OLMo", "torch-ddp"},
    {"open_lm + FSDP", "torch-fsdp1"},
    {"llama-recipes FSDP", "torch-fsdp1"},
    {"xtuner DeepSpeed", "deepspeed"},
    {"ms-swift + Megatron-Core", "megatron-core"},
    {"nanoGPT, torch.compile, DDP", "torch-ddp", "norm loss"},
    {"nanoGPT (PyTorch 2.0)", "torch-ddp"},
    {"modded-nanogpt (PyTorch, compiled)", "torch-ddp", "norm"},
    {"Prime (FSDP2 + DiLoCo)", "torch-fsdp2"},
    {"veScale", "torch-ddp"},
    // DDP and Horovod
    {"PyTorch DDP", "torch-ddp", "eager-norm"},
    {"DistributedDataParallel + AMP", "torch-ddp"},
    {"torch.nn.DataParallel: nn.DataParallel", "torch-dp"},
    {"PyTorch DDP + Apex FusedAdam", "torch-ddp", "adam norm"},
    {"DDP, overlap disabled", "torch-ddp", "serial"},
    {"Horovod 0.28 + PyTorch", "horovod"},
    {"horovod (NCCL)", "horovod"},
    {"Horovod + TensorFlow", "horovod"},
    {"DDP + torch.compile + flash attention 2", "torch-ddp", "flash norm"},
    {"PyTorch", "torch-ddp"},
    {"Custom CUDA/PyTorch trainer", "torch-ddp"},
    {"plain torch loop, SDPA", "torch-ddp", "flash"},
    // DeepSpeed
    {"DeepSpeed ZeRO-3", "deepspeed"},
    {"DeepSpeed ZeRO stage 2", "deepspeed"},
    {"DeepSpeed 0.14.2", "deepspeed"},
    {"DeepSpeed ZeRO-Infinity (NVMe)", "deepspeed"},
    {"ZeRO-Offload", "deepspeed"},
    {"DeepSpeed Ulysses", "deepspeed"},
    {"DeepSpeed, torch.compile", "deepspeed", "norm"},
    {"DeepSpeed, overlap_comm: false", "deepspeed", "serial"},
    {"ZeRO-3 (own implementation)", "deepspeed"},
    {"DeepSpeed-Chat", "deepspeed"},
    {"DeepSpeed + Liger", "deepspeed", "norm loss"},
    {"DeepSpeed ZeRO++ hpZ", "deepspeed"},
    {"DeepSpeed with Flash Attention 1", "deepspeed", "flash"},
    {"OpenRLHF (DeepSpeed)", "deepspeed"},
    // Megatron
    {"Megatron-LM core_r0.9 + TE 1.11 FP8", "megatron-core", "flash norm"},
    {"Megatron-LM", "megatron-core"},  // on an H100
    {"Megatron-LM (2021)", "megatron-lm-2021", "scores"},
    {"Megatron-LM 2022 + FlashAttention", "megatron-lm-2022", "flash"},
    {"Megatron-LM v2.5", "megatron-lm-2021"},
    {"Megatron-LM v3.0", "megatron-lm-2022"},
    {"Megatron-LM v1.1.5", "megatron-lm-2020"},
    {"Megatron-LM 2023-06", "megatron-lm-2022"},
    {"Megatron-LM, December 2024", "megatron-core"},
    {"Megatron LM 0.12.1", "megatron-core"},
    {"MegatronLM + TransformerEngine", "megatron-core"},
    {"Megatron-LM with FP8", "megatron-core"},
    {"Megatron-Core 0.11", "megatron-core"},
    {"Megatron Core v0.8.0 (MCore)", "megatron-core"},
    {"mcore r0.13 + TE 2.4", "megatron-core"},
    {"Megatron-FSDP", "megatron-core"},
    {"MCore + DeepEP + HybridEP", "megatron-core", "once"},
    {"Megatron-Core with HybridEP", "megatron-core", "once"},
    {"Megatron-Core, no DeepEP", "megatron-core", "copies"},
    {"Megatron-Core, no overlap", "megatron-core", "serial"},
    {"Megatron-Core, tp-comm-overlap", "megatron-core", "pieces"},
    {"Megatron-Core, userbuffers", "megatron-core", "pieces"},
    {"Megatron-Core, fused cross entropy", "megatron-core", "loss"},
    {"Megatron-LM fork (zero bubble)", "megatron-lm-zero-bubble"},
    {"Pai-Megatron-Patch", "megatron-core"},
    {"Megatron-LM (ROCm fork), 2024", "megatron-core"},
    {"our Megatron implementation", "megatron-core"},
    {"Megatron-SWIFT", "megatron-core"},
    {"AMD Primus (Megatron backend)", "megatron-core"},
    {"FlagScale (Megatron-LM)", "megatron-core"},
    {"MegaScale", "megatron-core"},
    {"InternEvo v0.5", "megatron-core"},
    {"InternLM train system", "megatron-core"},
    {"HAI-LLM", "megatron-core"},
    {"Galvatron 2", "megatron-core"},
    {"Hetu v2", "megatron-core"},
    {"PaddleNLP / PaddlePaddle Fleet", "megatron-core"},
    {"MS-AMP O2", "megatron-core"},
    // NeMo
    {"NeMo 2.0 (Megatron-Core)", "nemo", "pieces loss"},
    {"NVIDIA NeMo 24.09 container", "nemo"},
    {"NeMo Megatron 1.23", "nemo"},
    {"NeMo Framework 25.04, FP8", "nemo"},
    {"Megatron-Bridge 0.2", "nemo"},
    {"Megatron Bridge + TE", "nemo"},
    {"NeMo, tp_comm_overlap off", "nemo", "whole"},
    {"BioNeMo", "nemo"},
    {"NeMo AutoModel", "torch-fsdp2"},
    {"NeMo Automodel + FSDP2 + TE", "torch-fsdp2", "norm"},
    // Megatron under DeepSpeed
    {"Megatron-DeepSpeed", "megatron-deepspeed", "scores"},
    {"Megatron-DeepSpeed + FlashAttention 2", "megatron-deepspeed", "flash"},
    {"Megatron-DS (Argonne)", "megatron-deepspeed"},
    {"Megatron + DeepSpeed 3D parallelism", "megatron-deepspeed"},
    {"DeepSpeed + Megatron-LM (MT-NLG)", "megatron-deepspeed"},
    {"GPT-NeoX", "megatron-deepspeed"},
    {"GPT-NeoX 2.0 + flash attention", "megatron-deepspeed", "flash"},
    {"EleutherAI NeoX (DeepSpeed)", "megatron-deepspeed"},
    {"Colossal-AI", "megatron-deepspeed"},
    {"ColossalAI 0.3.6 Gemini", "megatron-deepspeed"},
    {"Colossal-AI + flash attention", "megatron-deepspeed", "flash"},
    // Hugging Face's own
    {"nanotron", "nanotron"},
    {"Nanotron (HF), ZeRO-1", "nanotron"},
    {"nanotron v0.4, FlashAttention-2", "nanotron", "flash"},
    {"picotron", "nanotron"},
    // MosaicML
    {"llm-foundry", "llm-foundry"},
    {"LLM Foundry 0.8 (Composer)", "llm-foundry"},
    {"MosaicML Composer", "llm-foundry"},
    {"Composer + FSDP, Triton attention", "llm-foundry", "flash"},
    {"MosaicML platform, MPT stack", "llm-foundry"},
    {"llmfoundry + flash-attn 2 + TE", "llm-foundry", "flash norm"},
    // JAX
    {"MaxText", "maxtext"},
    {"MaxText (JAX/XLA) on A3 Mega", "maxtext"},
    {"PaxML", "paxml"},
    {"JAX Pax + Praxis", "paxml"},
    {"JAX/Levanter on TPU-like mesh", "jax-xla"},
    {"Levanter (JAX)", "jax-xla"},
    {"T5X", "jax-xla"},
    {"EasyLM (JAX)", "jax-xla"},
    {"JAX + GSPMD, cuDNN flash attention", "jax-xla", "flash"},
    {"AXLearn", "jax-xla"},
    {"Alpa (JAX)", "jax-xla"},
    {"PyTorch/XLA FSDP on GPU", "jax-xla"},
    {"JAX-Toolbox Rosetta", "jax-xla"},
    {"Flax pjit", "jax-xla"},
    // Others
    {"OneFlow 0.9", "oneflow"},
    {"LiBai (OneFlow)", "oneflow"},
    {"Fairscale FSDP", "torch-fsdp1"},
    {"fairseq + FairScale", "torch-fsdp1"},
    {"metaseq", "torch-fsdp1"},
    {"AxoNN", "megatron-lm-2022"},
    {"AxoNN + Megatron-LM, flash attention 2", "megatron-lm-2022", "flash"},
    {"AWS SageMaker model parallel v2", "torch-fsdp1"},
    {"SageMaker SMP (FSDP)", "torch-fsdp1"},
    {"AA-Scaling", "aa-scaling"},
    {"Merak", "megatron-lm-2021"},
    {"Varuna", "megatron-lm-2021"},
    {"torchgpipe", "megatron-lm-2021"},
    {"GPipe (PyTorch)", "megatron-lm-2021"},
    {"BMTrain", "megatron-lm-2021"},
    {"Tutel MoE", "megatron-lm-2021"},
    {"llm.c", "megatron-core"},
    {"llm.c (cuDNN flash attention)", "megatron-core", "flash"},
    {"TransformerEngine + DDP", "torch-ddp", "norm"},
    {"Transformer Engine 1.8 example", "torch-ddp", "norm"},
    {"flash-attention training script", "torch-ddp", "flash"},
    {"xFormers", "torch-ddp", "flash"},
};
static_assert(std::size(kCases) >= 200);

bool chosen(const models::Implementation& implementation, const std::string& choice) {
    const models::KernelChoices& kernels = implementation.kernels;
    if (choice == "flash") return kernels.fused_attention && kernels.causal_skip;
    if (choice == "scores") return !kernels.fused_attention && !kernels.causal_skip;
    if (choice == "norm") return kernels.fused_norm;
    if (choice == "eager-norm") return !kernels.fused_norm;
    if (choice == "loss") return kernels.fused_cross_entropy;
    if (choice == "adam") return kernels.fused_optimizer;
    if (choice == "serial") {
        return !implementation.data_parallel.overlaps_backward && implementation.data_parallel.forward_prefetch == 0;
    }
    if (choice == "pieces") return implementation.tensor_parallel.pipelined_gather;
    if (choice == "whole") return !implementation.tensor_parallel.pipelined_gather;
    if (choice == "once") return implementation.experts.sends_tokens_once;
    if (choice == "copies") return !implementation.experts.sends_tokens_once;
    return false;
}

json row_with_framework(const char* framework) {
    json row = test::llama_row();
    row["framework"] = framework;
    row["source"]["title"] = "An unknown benchmark";
    row["flash_attention"] = nullptr;
    row["parallel"].update({{"tp", 1},
                            {"pp", 1},
                            {"dp", 8},
                            {"data_parallel", nullptr},
                            {"data_parallel_as_published", nullptr},
                            {"pipeline_schedule", nullptr}});
    return row;
}

TEST(Stacks, FrameworksFindTheirNearestImplementation) {
    for (const Case& one : kCases) {
        const PlanOfRun result = test::translated(row_with_framework(one.framework));
        ASSERT_TRUE(result.plan.has_value()) << one.framework << ": " << result.reason;
        EXPECT_EQ(result.plan->implementation.name, one.implementation) << one.framework;
        std::istringstream choices(one.choices);
        for (std::string choice; choices >> choice;) {
            EXPECT_TRUE(chosen(result.plan->implementation, choice)) << one.framework << " lacks " << choice;
        }
    }
}

/// Words that name an implementation exactly need no assumption; a nearest implementation states its reason.
TEST(Stacks, NearestImplementationsStateTheirReason) {
    const auto why = [](const char* framework) {
        return nearest_stack(test::run_of(row_with_framework(framework))).why;
    };
    for (const char* exact : {"torchtitan", "nanotron", "Megatron-Core 0.8", "NeMo 24.09", "MaxText", "llm-foundry"}) {
        EXPECT_EQ(why(exact), "") << exact;
    }
    EXPECT_EQ(why("LitGPT + FSDP, compiled"),
              "nearest to 'LitGPT + FSDP, compiled': PyTorch's FullyShardedDataParallel; which version is not stated");
    EXPECT_NE(why("Foobar 3").find("no word of 'Foobar 3' is known"), std::string::npos);
}

/// For a plain PyTorch stack the published data parallelism decides.
TEST(Stacks, DataParallelismChoosesTheEngine) {
    const auto implementation = [](const json& kind, const json& words, std::int64_t tp) {
        json row = row_with_framework("PyTorch");
        row["parallel"].update(
            {{"data_parallel", kind}, {"data_parallel_as_published", words}, {"tp", tp}, {"dp", 8 / tp}});
        return nearest_stack(test::run_of(row)).implementation;
    };
    EXPECT_EQ(implementation("zero3", "FSDP2", 1), "torch-fsdp2");
    EXPECT_EQ(implementation("zero3", "DeepSpeed stage 3", 1), "deepspeed");
    EXPECT_EQ(implementation("zero3", nullptr, 1), "torch-fsdp1");
    EXPECT_EQ(implementation("hsdp", nullptr, 1), "torch-fsdp1");
    EXPECT_EQ(implementation("zero2", nullptr, 1), "deepspeed");
    EXPECT_EQ(implementation("ddp", nullptr, 1), "torch-ddp");
    EXPECT_EQ(implementation(nullptr, nullptr, 2), "torchtitan");
}

TEST(Stacks, ReadsAttentionKernelsFromWords) {
    const auto kernel = [](const char* text) { return attention_kernel_in(Words(text)); };
    EXPECT_EQ(kernel("flash-attn 2.5.6"), "flash-2");
    EXPECT_EQ(kernel("FlashAttention-3 (beta)"), "flash-3");
    EXPECT_EQ(kernel("flash_attentionv1.0.8"), "flash-1");
    EXPECT_EQ(kernel("with flash attention"), "flash");
    EXPECT_EQ(kernel("cuDNN attention"), "cudnn");
    EXPECT_EQ(kernel("SDPA"), "sdpa");
    EXPECT_EQ(kernel("no FlashAttention"), "unfused");
    EXPECT_EQ(kernel("eager attention"), "unfused");
    EXPECT_EQ(kernel("Megatron-Core"), "");
}

TEST(Stacks, FrameworkWordsNameTheDataParallelism) {
    const auto kind = [](const char* framework) {
        return test::translated(row_with_framework(framework)).plan->parallelism.data_parallel;
    };
    EXPECT_EQ(kind("PyTorch FSDP2"), program::DataParallel::zero3);
    EXPECT_EQ(kind("torchtitan"), program::DataParallel::zero3);
    EXPECT_EQ(kind("HF Trainer w/ DeepSpeed ZeRO-2"), program::DataParallel::zero2);
    EXPECT_EQ(kind("Megatron-Core, distributed optimizer"), program::DataParallel::zero1);
    EXPECT_EQ(kind("NeMo 24.09"), program::DataParallel::zero1);
    EXPECT_EQ(kind("PyTorch DDP"), program::DataParallel::ddp);
}

TEST(Stacks, RefusesAcceleratorsThatAreNotGpus) {
    for (const char* framework : {"NeuronX Distributed", "AWS Neuron", "Megatron on Trainium"}) {
        const PlanOfRun result = test::translated(row_with_framework(framework));
        EXPECT_FALSE(result.plan.has_value()) << framework;
        EXPECT_NE(result.reason.find("not GPUs"), std::string::npos) << result.reason;
    }
}

}  // namespace
}  // namespace orrery::published
