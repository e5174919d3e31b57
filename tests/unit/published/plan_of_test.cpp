// Translation of rows to plans: values from published words, assumptions, and rows that cannot be expressed.
#include <gtest/gtest.h>

#include <type_traits>

#include "sim/program/program.h"
#include "sim/published/translation.h"
#include "tests/unit/published/sample_rows.h"

namespace orrery::published {
namespace {

using nlohmann::json;
using program::DataParallel;
using program::Plan;
using program::Recompute;
using program::Schedule;
using test::llama_row;
using test::sample_row;
using test::translated;
using Stages = std::vector<std::int64_t>;

/// The row's plan; also checks that it can be lowered.
Plan plan(const json& row) {
    const PlanOfRun result = translated(row);
    if (!result.plan) throw std::runtime_error(result.reason);
    (void)program::lower(*result.plan);
    return *result.plan;
}
std::string reason(const json& row) {
    const PlanOfRun result = translated(row);
    EXPECT_FALSE(result.plan.has_value());
    return result.reason;
}
bool assumes(const json& row, const std::string& words) {
    for (const std::string& text : translated(row).assumptions) {
        if (text.find(words) != std::string::npos) return true;
    }
    return false;
}
bool has(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

// Measurements cannot reach a plan: no overload accepts them.
static_assert(std::is_same_v<decltype(plan_of), PlanOfRun(const PublishedRun&)>);
static_assert(!std::is_invocable_v<decltype(plan_of), const PublishedRow&>);
static_assert(!std::is_invocable_v<decltype(plan_of), const PublishedMeasurement&>);
static_assert(!std::is_convertible_v<PublishedRow, PublishedRun>);
static_assert(!std::is_constructible_v<PublishedRun, PublishedMeasurement>);

TEST(PlanOf, DoesNotDependOnTheMeasurement) {
    json row = sample_row();
    const std::string before = program::to_json_text(plan(row));
    row["measured"] = {{"step_time_s", 99.0}, {"peak_memory_gib", 3.5}, {"memory_kind", "allocated"}, {"mfu", 0.9}};
    EXPECT_EQ(program::to_json_text(plan(row)), before);
}

TEST(PlanOf, TranslatesMegatronOf2021) {
    const Plan p = plan(sample_row());
    EXPECT_EQ(p.name, "made-up-1");
    EXPECT_EQ(p.cluster.name, "dgx-a100");
    EXPECT_EQ(p.implementation.name, "megatron-lm-2021");
    EXPECT_EQ(p.model.norm, models::NormKind::layer_norm);
    EXPECT_EQ(p.model.position, models::PositionKind::learned);
    EXPECT_TRUE(p.model.tied_embeddings);
    EXPECT_TRUE(p.model.mlp_bias);
    EXPECT_EQ(p.parallelism.stage_layers, (Stages{4, 4}));
    EXPECT_EQ(p.parallelism.data_parallel, DataParallel::ddp);
    EXPECT_EQ(p.training.precision.gradient, DType::fp16);
    EXPECT_TRUE(p.training.precision.loss_scaling);
    EXPECT_EQ(p.training.dropout, 0.1);
    EXPECT_EQ(p.training.optimizer.clip_norm, 1);
    EXPECT_FALSE(p.implementation.kernels.fused_attention);
    EXPECT_EQ(p.micro_batches(), 8);
    EXPECT_TRUE(has(p.origins.at("/training/dropout"), "assumption"));
    EXPECT_TRUE(has(p.origins.at("/model"), "Made up 2021"));
    EXPECT_TRUE(assumes(sample_row(), "dropout: 0.1 (default of megatron-lm-2021)"));
}

TEST(PlanOf, VocabularyParallelismForkIsMegatronCoreWithFlash2) {
    json row = sample_row();
    row["framework"] = "Megatron-LM fork";
    row["source"]["title"] = "Balancing Pipeline Parallelism with Vocabulary Parallelism";
    const models::Implementation implementation = plan(row).implementation;
    EXPECT_EQ(implementation.name, "megatron-core");
    EXPECT_EQ(implementation.kernels.attention_kernel, "flash-2");
    EXPECT_TRUE(implementation.kernels.masks_without_dropout);
    EXPECT_TRUE(assumes(row, "dropout masks: kept at dropout 0 too"));
}

TEST(PlanOf, ImplementationFollowsFrameworkAndYear) {
    const auto implementation = [](const std::string& framework, const std::string& title) {
        json row = sample_row();
        row["framework"] = framework;
        row["source"]["title"] = title;
        return plan(row).implementation.name;
    };
    EXPECT_EQ(implementation("Megatron-LM", "Somebody et al. 2022"), "megatron-lm-2022");
    EXPECT_EQ(implementation("Megatron-LM", "README of September 2020"), "megatron-lm-2020");
    EXPECT_EQ(implementation("Megatron-LM v1.1 (2020)", "README"), "megatron-lm-2020");
    EXPECT_EQ(implementation("Megatron-LM v2.0 (Jan 2021)", "README"), "megatron-lm-2021");
    EXPECT_EQ(implementation("Megatron-LM (8aa4619f, 2021)", "README"), "megatron-lm-2021");
    EXPECT_EQ(implementation("Megatron-LM fork", "A paper"), "megatron-lm-zero-bubble");
    EXPECT_EQ(implementation("Megatron-LM 0.14 (23e00ed0) + TransformerEngine 2.11", "x"), "megatron-core");
    EXPECT_EQ(implementation("Megatron-LM (mcore) + TransformerEngine 2.x, CI 2026", "x"), "megatron-core");
    EXPECT_EQ(implementation("Megatron-Core 0.9+ (MCore)", "x"), "megatron-core");
    EXPECT_EQ(implementation("Megatron-DeepSpeed (BigScience)", "x"), "bigscience-megatron-deepspeed");
    EXPECT_EQ(implementation("NeMo (Megatron-Core) 24.11", "x"), "nemo");
    EXPECT_EQ(implementation("nanotron v0.5 dev", "x"), "nanotron");
    EXPECT_EQ(implementation("OneFlow-GPT 0.3.5", "x"), "oneflow");
    EXPECT_EQ(implementation("Something Else 1.0", "x"),
              "megatron-lm-2021");  // chosen by its tensor and pipeline parallelism
    json row = sample_row();
    row["framework"] = "Something Else 1.0";
    EXPECT_TRUE(assumes(row, "implementation: megatron-lm-2021 (no word of 'Something Else 1.0' is known"));
    row["framework"] = "AWS Neuron SDK + NeMo Megatron";
    EXPECT_TRUE(has(reason(row), "accelerators that are not GPUs"));
}

TEST(PlanOf, DoesNotCheckSupportOfTheNearestImplementation) {
    json row = sample_row();
    row["framework"] = "Megatron-LM v1.1 (2020)";
    EXPECT_TRUE(assumes(row,
                        "support: not checked (the run: /parallelism/pp: got 2; allowed: 1, because "
                        "implementation \"megatron-lm-2020\" supports no pp"));
    EXPECT_EQ(plan(row).implementation.name, "megatron-lm-2020");
    EXPECT_FALSE(assumes(sample_row(), "support"));
}

TEST(PlanOf, ZeroThreeUsesMegatronsModel) {
    json row = sample_row();
    row["framework"] = "DeepSpeed ZeRO-3";
    row["source"]["title"] = "Megatron-LM against ZeRO-3, 2021";
    row["parallel"] = {{"tp", 1},
                       {"sp", false},
                       {"pp", 1},
                       {"vpp", nullptr},
                       {"dp", 8},
                       {"cp", 1},
                       {"ep", 1},
                       {"data_parallel", "zero3"},
                       {"data_parallel_as_published", 3},
                       {"pipeline_schedule", nullptr}};
    const Plan p = plan(row);
    EXPECT_EQ(p.implementation.name, "deepspeed");
    EXPECT_EQ(p.implementation.kernels.fused_norm, true);  // Megatron's, not those of an eager model
    EXPECT_EQ(p.parallelism.data_parallel, DataParallel::zero3);
    EXPECT_TRUE(p.parallelism.reduces_every_micro_batch);
}

TEST(PlanOf, TranslatesNemoLlamaWithContextParallelism) {
    json row = llama_row();
    row["framework"] = "NeMo (Megatron-Core) 24.11";
    row["hardware"]["num_gpus"] = 128;
    row["hardware"]["inter_node"] = "InfiniBand NDR: 8x 400 Gb/s compute NICs per node (Quantum-2)";
    row["parallel"] = {{"tp", 4},
                       {"sp", true},
                       {"pp", 4},
                       {"vpp", 2},
                       {"dp", 4},
                       {"cp", 2},
                       {"ep", 1},
                       {"data_parallel", "zero1"},
                       {"data_parallel_as_published", "distributed_fused_adam"},
                       {"pipeline_schedule", "interleaved-1f1b"}};
    row["precision"] = "fp8";
    row["precision_as_published"] = "fp8 (TE hybrid, fp8_params; bf16 elsewhere)";
    const Plan p = plan(row);
    EXPECT_EQ(p.cluster.name, "dgx-h100");  // the words agree with the preset
    EXPECT_EQ(p.cluster.nodes, 16);
    EXPECT_EQ(p.parallelism.schedule, Schedule::interleaved);
    EXPECT_EQ(p.parallelism.chunks, 2);
    EXPECT_EQ(p.parallelism.stage_layers, Stages(8, 1));
    EXPECT_EQ(p.parallelism.context_parallel, program::ContextParallel::ring);
    EXPECT_TRUE(p.parallelism.sequence_parallel);
    EXPECT_EQ(p.training.precision.fp8, program::Fp8Scaling::delayed);
    EXPECT_TRUE(p.training.precision.fp8_parameters);
    EXPECT_EQ(p.training.precision.gradient, DType::bf16);
    EXPECT_EQ(p.model.norm, models::NormKind::rms_norm);
    EXPECT_FALSE(p.model.tied_embeddings);
    EXPECT_EQ(p.training.dropout, 0);
    row["model"]["layers"] = 14;  // embedding and head count as a layer each: 16 layers on 8 virtual stages
    EXPECT_EQ(plan(row).parallelism.stage_layers, (Stages{1, 2, 2, 2, 2, 2, 2, 1}));
    row["model"]["layers"] = 13;  // a custom layout
    EXPECT_EQ(plan(row).parallelism.stage_layers, (Stages{2, 2, 2, 2, 2, 1, 1, 1}));
    row["model"]["layers"] = 8;
    row["notes"] = "synthetic data with megatron-gpt2-345m tokenizer, so the vocabulary is ~51k";
    EXPECT_EQ(plan(row).model.vocab, 50257);
}

TEST(PlanOf, NanotronCutsStagesByCost) {
    json row = llama_row();
    row["framework"] = "nanotron v0.5 dev (Feb 2025)";
    row["precision_as_published"] = "bf16 (fp32 grad accumulation)";
    row["hardware"]["inter_node"] = "EFA (AWS p5.48xlarge class, 3200 Gb/s per node)";
    // Llama-3-8B on 8 stages; the Ultra-Scale Playbook prints five decoder layers for its first rank.
    row["model"].update({{"layers", 32},
                         {"hidden", 4096},
                         {"heads", 32},
                         {"kv_heads", 8},
                         {"ffn_hidden", 14336},
                         {"vocab", 128256},
                         {"tied_embeddings", false}});
    row["parallel"].update({{"tp", 1}, {"pp", 8}, {"dp", 1}, {"vpp", nullptr}});
    const Plan p = plan(row);
    EXPECT_EQ(p.cluster.name, "aws-p5");
    EXPECT_EQ(p.parallelism.stage_layers, (Stages{5, 4, 4, 5, 4, 4, 4, 2}));
    EXPECT_EQ(p.training.precision.gradient, DType::fp32);
    // A large vocabulary alone would fill the last ranks; here each rank but the last keeps a block.
    row["model"].update({{"layers", 16}, {"hidden", 2048}, {"kv_heads", 32}, {"ffn_hidden", 8192}, {"vocab", 131072}});
    EXPECT_EQ(plan(row).parallelism.stage_layers, (Stages{3, 2, 3, 2, 3, 2, 1, 0}));
    row["model"]["layers"] = 6;
    EXPECT_TRUE(has(reason(row), "leave ranks without any")) << reason(row);
    // The head costs as much as four blocks: a stage ends where the cumulative cost equals its share exactly.
    row["model"]["layers"] = 16;
    row["parallel"].update({{"pp", 2}, {"dp", 4}});
    EXPECT_EQ(plan(row).parallelism.stage_layers, (Stages{10, 6}));
    row["parallel"].update({{"pp", 4}, {"dp", 2}});
    EXPECT_EQ(plan(row).parallelism.stage_layers, (Stages{5, 5, 5, 1}));
}

TEST(PlanOf, DeepSpeedFillsStagesFromTheFront) {
    json row = sample_row();
    row["framework"] = "Megatron-DeepSpeed (BigScience)";
    row["model"]["layers"] = 78;
    row["hardware"].update({{"num_gpus", 96}, {"inter_node", "4 Omni-Path 100 Gb/s links per node"}});
    row["parallel"].update({{"tp", 4}, {"pp", 12}, {"dp", 2}, {"data_parallel", "zero1"}});
    Plan p = plan(row);
    EXPECT_EQ(p.parallelism.stage_layers, (Stages{7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 1}));
    EXPECT_EQ(p.cluster.nic.name, "omnipath-100");
    EXPECT_EQ(p.cluster.nics_per_node, 4);
    EXPECT_EQ(p.training.precision.gradient, DType::fp16);  // its bf16 engine has fp32 gradients
    row["precision"] = "bf16";
    row["precision_as_published"] = "bf16 (fp32 grad accumulation, BF16 optimizer)";
    EXPECT_EQ(plan(row).training.precision.gradient, DType::fp32);
    row["model"]["layers"] = 70;
    row["parallel"]["pp_partition"] = "type:transformer|embedding (5,6x10,5 blocks + embeddings)";
    EXPECT_EQ(plan(row).parallelism.stage_layers, (Stages{5, 6, 6, 6, 6, 6, 6, 6, 6, 6, 6, 5}));
    row["parallel"]["data_parallel"] = nullptr;
    EXPECT_EQ(plan(row).parallelism.data_parallel, DataParallel::ddp);
    EXPECT_TRUE(assumes(row, "default of bigscience-megatron-deepspeed; not stated"));
}

TEST(PlanOf, TranslatesZeroBubbleRuns) {
    json row = sample_row();
    row["framework"] = "Megatron-LM fork";
    row["notes"] = "First and last pipeline stage hold one transformer layer FEWER than the others (L = k*p - 2).";
    row["model"].update({{"layers", 22}, {"vocab", nullptr}});
    row["flash_attention"] = nullptr;
    row["parallel"].update({{"tp", 1}, {"pp", 8}, {"dp", 1}, {"pipeline_schedule", "zb-2p"}});
    Plan p = plan(row);
    EXPECT_EQ(p.parallelism.schedule, Schedule::zb_2p);
    EXPECT_EQ(p.parallelism.stage_layers, (Stages{2, 3, 3, 3, 3, 3, 3, 2}));
    EXPECT_EQ(p.model.vocab, 50257);
    EXPECT_TRUE(assumes(row, "vocab: 50257 (GPT-2's; not stated)"));
    EXPECT_TRUE(assumes(row, "attention: stores its scores"));
    EXPECT_FALSE(p.implementation.host.waits_for_gradient_norm);  // post-validation
    EXPECT_TRUE(p.training.optimizer.post_validation);
    EXPECT_TRUE(p.model.tied_embeddings);
    json of_source = row;
    of_source["source"]["title"] = "Zero Bubble Pipeline Parallelism";
    EXPECT_EQ(plan(of_source).model.vocab, 32000);
    EXPECT_TRUE(assumes(of_source, "vocab: 32000 (a SentencePiece model, by the authors' training script"));
    EXPECT_EQ(p.training.optimizer.clip_norm, 0);
    row["parallel"].update({{"pipeline_schedule", "interleaved-1f1b"}, {"vpp", 3}});
    p = plan(row);
    Stages ones(24, 1);
    ones.front() = ones.back() = 0;
    EXPECT_EQ(p.parallelism.stage_layers, ones);
    EXPECT_TRUE(p.implementation.host.waits_for_gradient_norm);
    EXPECT_FALSE(p.training.optimizer.post_validation);
}

// OneFlow's collectives on a two-dimensional mesh run on the compute stream.
TEST(PlanOf, OneFlowOverlapsGradientReductionOnlyWithoutTensorParallelism) {
    json row = sample_row();
    row["framework"] = "OneFlow-GPT 0.3.5";
    const std::int64_t gpus = row["hardware"]["num_gpus"];
    row["parallel"].update({{"tp", 2}, {"pp", 1}, {"dp", gpus / 2}, {"pipeline_schedule", nullptr}});
    EXPECT_FALSE(plan(row).implementation.data_parallel.overlaps_backward);
    EXPECT_TRUE(assumes(row, "gradient all-reduce: not overlapped with the backward pass"));
    row["parallel"].update({{"tp", 1}, {"dp", gpus}});
    EXPECT_TRUE(plan(row).implementation.data_parallel.overlaps_backward);
}

TEST(PlanOf, TranslatesVocabularyParallelism) {
    json row = sample_row();
    row["framework"] = "Megatron-LM fork";
    row["flash_attention"] = true;
    row["model"].update({{"layers", 32}, {"vocab", 256000}, {"untied_embeddings", true}});
    row["parallel"].update({{"tp", 1}, {"pp", 8}, {"dp", 1}, {"vocab_method", "redis"}, {"layers_last_stage", 0}});
    EXPECT_EQ(plan(row).parallelism.stage_layers, (Stages{4, 4, 4, 5, 5, 5, 5, 0}));
    row["parallel"]["layers_last_stage"] = 3;
    EXPECT_EQ(plan(row).parallelism.stage_layers, (Stages{4, 4, 4, 4, 4, 4, 5, 3}));
    row["parallel"].update({{"vocab_method", "baseline"}, {"layers_last_stage", 4}});
    EXPECT_EQ(plan(row).parallelism.stage_layers, Stages(8, 4));
    EXPECT_TRUE(plan(row).implementation.kernels.fused_attention);
    for (const char* method : {"vocab-1", "vocab-2", "interlaced"}) {
        row["parallel"]["vocab_method"] = method;
        EXPECT_EQ(program::name_of(plan(row).parallelism.vocabulary_parallel), method);
    }
    EXPECT_EQ(plan(row).training.dropout, 0.1);
    json of_source = row;
    of_source["source"]["title"] = "Balancing Pipeline Parallelism with Vocabulary Parallelism";
    EXPECT_EQ(plan(of_source).training.dropout, 0);  // from the authors' script
    row["parallel"]["vocab_method"] = "sideways";
    EXPECT_TRUE(has(reason(row), "sideways"));
}

/// Megatron uses fp32 gradients with bf16 only.
TEST(PlanOf, MegatronKeepsFp16GradientsUnderFp16) {
    json row = sample_row();
    row["framework"] = "Megatron-LM fork";
    EXPECT_EQ(plan(row).training.precision.gradient, DType::fp16);
    EXPECT_EQ(plan(row).training.precision.reduction, DType::fp16);
    row["precision"] = "bf16";
    EXPECT_EQ(plan(row).training.precision.gradient, DType::fp32);
}

TEST(PlanOf, TransformerEnginesLossKeepsNarrowLogits) {
    json row = llama_row();
    row["framework"] = "Megatron-LM 0.14 (23e00ed0) + TransformerEngine 2.11";
    EXPECT_FALSE(plan(row).implementation.kernels.narrow_logits);
    row["notes"] = "CE fusion on, MBS=1";
    EXPECT_TRUE(plan(row).implementation.kernels.narrow_logits);
    row["framework"] = "Megatron-LM 0.14";
    EXPECT_FALSE(plan(row).implementation.kernels.narrow_logits);
}

/// Implementations that shard gradients hold no unsharded ones between micro-batches.
TEST(PlanOf, ShardedGradientsAreReducedAfterEachMicroBatch) {
    json row = llama_row();
    row["framework"] = "MaxText (JAX/XLA) 24.11";
    row["parallel"].update({{"tp", 1}, {"pp", 1}, {"dp", 8}, {"data_parallel", "zero3"}});
    EXPECT_TRUE(plan(row).parallelism.reduces_every_micro_batch);
    row["parallel"]["data_parallel"] = "zero1";
    EXPECT_FALSE(plan(row).parallelism.reduces_every_micro_batch);
}

TEST(PlanOf, TranslatesLlmFoundryUnderFsdp) {
    json row = sample_row();
    row["framework"] = "llm-foundry / Composer + PyTorch FSDP1";
    row["hardware"].update({{"num_gpus", 16}, {"inter_node", "1600 Gbps per node RoCE"}});
    row["parallel"] = {{"tp", 1},
                       {"sp", false},
                       {"pp", 1},
                       {"vpp", nullptr},
                       {"dp", 16},
                       {"cp", 1},
                       {"ep", 1},
                       {"data_parallel", "zero3"},
                       {"data_parallel_as_published", "fsdp FULL_SHARD (zero3)"},
                       {"pipeline_schedule", nullptr}};
    row["precision"] = "bf16";
    row["precision_as_published"] = "bf16 (pure: params/grads/reduce bf16)";
    row["recompute"] = "full";
    row["flash_attention"] = true;
    Plan p = plan(row);
    EXPECT_EQ(p.implementation.name, "llm-foundry");
    EXPECT_EQ(p.cluster.nic.name, "roce-200");
    EXPECT_EQ(p.cluster.nics_per_node, 8);
    EXPECT_EQ(p.training.precision.reduction, DType::bf16);
    EXPECT_EQ(p.training.memory.recompute, Recompute::full);
    EXPECT_TRUE(p.parallelism.reshard_after_forward);
    row["precision_as_published"] = "bf16 mixed (amp, FSDP mixed_precision=DEFAULT)";
    row["parallel"].update({{"data_parallel", "zero2"}, {"data_parallel_as_published", "fsdp SHARD_GRAD_OP (zero2)"}});
    p = plan(row);
    EXPECT_EQ(p.training.precision.reduction, DType::fp32);
    EXPECT_EQ(p.parallelism.data_parallel, DataParallel::zero3);
    EXPECT_FALSE(p.parallelism.reshard_after_forward);
}

TEST(PlanOf, ReadsShardGroupsFromWords) {
    const auto shard = [](const std::string& kind, const std::string& words) {
        json row = llama_row();
        row["framework"] = "MaxText (JAX/XLA)";
        row["hardware"]["num_gpus"] = 512;
        row["batch"]["global_batch_seqs"] = 1024;
        row["parallel"] = {{"tp", 1},
                           {"sp", false},
                           {"pp", 1},
                           {"vpp", nullptr},
                           {"dp", 512},
                           {"cp", 1},
                           {"ep", 1},
                           {"data_parallel", kind},
                           {"data_parallel_as_published", words},
                           {"pipeline_schedule", nullptr}};
        return plan(row).parallelism.dp_shard;
    };
    EXPECT_EQ(shard("zero3", "FSDP 128-way (zero3) x DP 4"), 128);
    EXPECT_EQ(shard("zero3", "FSDP 512-way (zero3) x DP 1"), 0);  // all ranks
    EXPECT_EQ(shard("zero3", "ICI 8-way + DCN FSDP 16 (zero3-like) x DP"), 128);
    EXPECT_EQ(shard("zero3", "ICI 8-way + DCN FSDP 1 (zero3-like) x DP"), 8);
    EXPECT_EQ(shard("hsdp", "FSDP 8 inside node (zero3) x DP 64 across nodes (HSDP-like)"), 8);
    EXPECT_EQ(shard("hsdp", ""), 8);
    EXPECT_EQ(shard("zero1", "zero1 sharding group 4"), 4);
    EXPECT_EQ(shard("zero1", "1 (distributed optimizer)"), 0);
}

TEST(PlanOf, ReadsRecomputationFromPolicies) {
    json row = llama_row();
    row["framework"] = "MaxText (JAX/XLA)";
    row["recompute"] = "selective";
    row["parallel"].update({{"tp", 1}, {"pp", 1}, {"dp", 8}, {"data_parallel", "zero3"}});
    row["notes"] = "remat_policy: save_dot_except_mlp (bf16) / save_dot_except_mlpwi (other branch)";
    EXPECT_EQ(plan(row).training.memory.recompute_parts,
              (std::vector<std::string>{"norm", "attention_core", "mlp_in", "activation", "mlp_out"}));
    row["notes"] = "";
    EXPECT_TRUE(plan(row).training.memory.recompute_parts.empty());
    EXPECT_TRUE(assumes(row, "selective recomputation: attention_core"));
    row["recompute"] = row["recompute_as_published"] = "unknown";
    EXPECT_EQ(plan(row).training.memory.recompute, Recompute::none);
    EXPECT_TRUE(assumes(row, "recomputation: none (not stated)"));
}

TEST(PlanOf, NemosGpt3UsesTheDropoutOfItsRecipe) {
    json row = sample_row();
    row["framework"] = "NeMo (Megatron-Core) 24.11";
    row["model"]["name"] = "gpt3-175b";
    EXPECT_EQ(plan(row).training.dropout, 0.1);
    EXPECT_TRUE(assumes(row, "dropout: 0.1 (NeMo-Framework-Launcher"));
    row["model"]["name"] = "nemotron4-15b";
    EXPECT_EQ(plan(row).training.dropout, 0);
}

TEST(PlanOf, ReadsHagemannsKernels) {
    json row = llama_row();
    row["framework"] = "AA-Scaling (Megatron-LM derived)";
    EXPECT_EQ(plan(row).training.precision.gradient, DType::bf16);
    EXPECT_EQ(plan(row).training.precision.reduction, DType::fp32);
    row["hardware"].update({{"gpu", "a100-sxm-80gb"}, {"num_gpus", 32}, {"inter_node", "200 Gb/s HDR InfiniBand"}});
    row["parallel"]["dp"] = 8;
    const auto kernels = [&](const std::string& kernel, bool flash) {
        row["notes"] = "Mean of 9 steps. attention kernel: " + kernel + ". The RMS kernel of others is not meant.";
        row["flash_attention"] = flash;
        return plan(row).implementation.kernels;
    };
    EXPECT_FALSE(kernels("torch", false).fused_softmax);
    EXPECT_FALSE(kernels("torch", false).fused_attention);
    EXPECT_TRUE(kernels("fused", false).fused_softmax);
    EXPECT_FALSE(kernels("fused", false).causal_skip);
    EXPECT_FALSE(assumes(row, "attention: over whole sequences"));  // full masks are stored
    EXPECT_TRUE(kernels("flash_attentionv1.0.8", true).fused_attention);
    EXPECT_FALSE(kernels("flash_attention2", true).fused_norm);
    EXPECT_TRUE(kernels("flash_attention2 + RMS kernel", true).fused_norm);
    EXPECT_TRUE(assumes(row, "attention: over whole sequences"));
    EXPECT_EQ(plan(row).cluster.nics_per_node, 1);
    EXPECT_TRUE(assumes(row, "NICs of a node: 1"));
    row["model"]["layers"] = 9;  // uneven stages were published
    EXPECT_EQ(plan(row).parallelism.stage_layers, (Stages{5, 4}));
}

TEST(PlanOf, TranslatesExperts) {
    json row = llama_row();
    row["framework"] = "Megatron-LM 0.14 (23e00ed0) + TransformerEngine 2.11";
    row["notes"] = "All overlap paths OFF by design, CE fusion on, fp32 grad accumulation.";
    row["hardware"]["gpu"] = "b200-sxm";
    row["model"]["moe"] = {
        {"experts", 16},
        {"top_k", 4},
        {"moe_ffn_hidden", 512},
        {"shared_expert_ffn_hidden", 512},
        {"dense_layers", 1},
        {"capacity_factor", 1},
        {"pad_to_capacity", true},
        {"mla", {{"q_lora", 512}, {"kv_lora", 256}, {"qk_head", 64}, {"rope_head", 32}, {"v_head", 64}}}};
    row["parallel"] = {{"tp", 1},
                       {"sp", false},
                       {"pp", 1},
                       {"vpp", 1},
                       {"dp", 8},
                       {"cp", 1},
                       {"ep", 8},
                       {"data_parallel", "zero1"},
                       {"data_parallel_as_published", "1 (distributed optimizer)"},
                       {"pipeline_schedule", nullptr}};
    Plan p = plan(row);
    EXPECT_EQ(p.parallelism.ep, 8);
    EXPECT_EQ(p.parallelism.etp, 1);
    EXPECT_EQ(p.model.head_dim, 96);
    EXPECT_EQ(p.model.latent.v_head_dim, 64);
    EXPECT_EQ(p.training.expert_load.capacity_factor, 1);
    EXPECT_TRUE(p.training.expert_load.pads_to_capacity);
    EXPECT_FALSE(p.implementation.data_parallel.overlaps_backward);
    EXPECT_FALSE(p.implementation.tensor_parallel.overlaps_input_gradient);
    EXPECT_TRUE(p.implementation.kernels.fused_cross_entropy);
    row["model"]["moe"].erase("mla");
    row["model"]["kv_heads"] = 8;
    row["parallel"].update({{"tp", 2}, {"dp", 4}, {"ep", 4}, {"sp", true}});
    EXPECT_EQ(plan(row).parallelism.etp, 2);  // Megatron's default
    row["parallel"]["etp"] = 1;
    EXPECT_EQ(plan(row).parallelism.etp, 1);
    row["parallel"]["sp"] = nullptr;
    EXPECT_TRUE(plan(row).parallelism.sequence_parallel);
    EXPECT_TRUE(assumes(row, "sequence parallelism: on"));
    row["parallel"].update({{"tp", 1}, {"cp", 2}, {"cp_comm", "a2a"}});
    EXPECT_EQ(plan(row).parallelism.context_parallel, program::ContextParallel::ulysses);
}

TEST(PlanOf, ReadsNetworksFromWords) {
    const auto nic = [](const std::string& words) { return read_nic_words(words, 8); };
    struct Case {
        const char* words;
        const char* family;
        std::int64_t gb_per_s, count;
    };
    for (const Case& c : {Case{"8x 200 Gb/s HDR InfiniBand per node (Selene)", "infiniband", 200, 8},
                          {"4x Omni-Path 100 Gb/s per node (Jean Zay)", "omnipath", 100, 4},
                          {"4 Omni-Path 100 Gb/s links per node", "omnipath", 100, 4},
                          {"ONE 100 Gb/s EDR InfiniBand HCA per node", "infiniband", 100, 1},
                          {"1600 Gbps per node RoCE", "roce", 200, 8},
                          {"800 Gb/s per node (sim config)", "", 200, 4},
                          {"200 Gb/s HDR InfiniBand", "infiniband", 200, 0},
                          {"400 Gb/s InfiniBand per GPU", "infiniband", 400, 8},
                          {"4 x 100Gb RoCE per node", "roce", 100, 4},
                          {"GCP A3: 4x200 Gb/s GPUDirect-TCPX NICs per node", "tcpx", 200, 4},
                          {"3.2 Tb/s InfiniBand NDR", "infiniband", 400, 8},
                          {"8x400G RoCEv2", "roce", 400, 8},
                          {"4x Slingshot 11 (200 Gb/s)", "slingshot", 200, 4},
                          {"25 GbE", "ethernet", 25, 0},
                          {"one 25 GB/s link", "", 200, 0},
                          {"56 Gb/s FDR InfiniBand", "infiniband", 56, 0},
                          {"8x 800 Gb/s XDR", "infiniband", 800, 8},
                          {"InfiniBand NDR (not stated in README)", "infiniband", 400, 0},
                          {"InfiniBand NDR: 8x 400 Gb/s compute NICs", "infiniband", 400, 8},
                          {"4x HDR InfiniBand per node", "infiniband", 200, 4},
                          {"RoCE RDMA", "roce", 0, 0},
                          {"InfiniBand", "infiniband", 0, 0},
                          {"EFA (AWS p5, 3200 Gb/s per node)", "efa", 0, 0},
                          {"", "", 0, 0}}) {
        const NicWords found = nic(c.words);
        EXPECT_EQ(found.family, c.family) << c.words;
        EXPECT_EQ(found.gb_per_s, c.gb_per_s) << c.words;
        EXPECT_EQ(found.count, c.count) << c.words;
    }
}

TEST(PlanOf, Nvl72RackIsOneNode) {
    json row = llama_row();
    row["hardware"].update({{"gpu", "gb200"}, {"gpus_per_node", 4}});
    EXPECT_EQ(plan(row).cluster.nodes, 1);
    row["hardware"]["num_gpus"] = 256;
    row["parallel"]["dp"] = 64;
    row["batch"]["global_batch_seqs"] = 256;
    const Plan p = plan(row);
    EXPECT_EQ(p.cluster.devices_per_node, 64);
    EXPECT_EQ(p.cluster.nodes, 4);
}

TEST(PlanOf, ReasonsNameWhatIsMissingOrUnsupported) {
    const auto why = [](const char* section, const char* key, const json& value) {
        json row = sample_row();
        row[section][key] = value;
        return reason(row);
    };
    EXPECT_TRUE(has(why("hardware", "gpu", "tpu-v4"), "no device profile for gpu 'tpu-v4'"));
    EXPECT_TRUE(has(why("hardware", "num_gpus", 16), "is not the 16 GPUs"));
    EXPECT_EQ(why("model", "layers", nullptr), "model.layers is not stated");
    EXPECT_EQ(why("model", "hidden", nullptr), "model.hidden is not stated");
    EXPECT_EQ(why("model", "seq_len", nullptr), "model.seq_len is not stated");
    EXPECT_EQ(why("batch", "global_batch_seqs", nullptr), "batch.global_batch_seqs is not stated");
    EXPECT_TRUE(has(why("batch", "global_batch_seqs", 30), "/training/global_batch_size"));
    EXPECT_TRUE(has(why("model", "heads", 15), "head_dim is not stated"));
    EXPECT_TRUE(has(why("model", "layers", 9), "do not divide into 2 stages"));
    EXPECT_TRUE(has(why("parallel", "pipeline_schedule", "unheard-of"), "unheard-of"));
    json row = sample_row();
    row["hardware"]["num_gpus"] = row["parallel"]["dp"] = nullptr;
    EXPECT_EQ(reason(row), "hardware.num_gpus is not stated");
    row = sample_row();
    row["precision"] = "fp8";  // an A100 has none
    EXPECT_TRUE(has(reason(row), "fp8")) << reason(row);
    row["precision"] = row["precision_as_published"] = "int7";
    EXPECT_TRUE(has(reason(row), "int7")) << reason(row);
}

TEST(PlanOf, FillsInMissingFacts) {
    json row = sample_row();
    row["hardware"]["num_gpus"] = row["hardware"]["gpus_per_node"] = nullptr;
    row["model"]["ffn_hidden"] = row["model"]["gated_mlp"] = row["model"]["kv_heads"] = row["model"]["heads"] = nullptr;
    row["batch"]["micro_batch_seqs"] = row["precision"] = row["precision_as_published"] = nullptr;
    row["recompute"] = row["recompute_as_published"] = nullptr;
    const Plan p = plan(row);
    EXPECT_EQ(p.parallelism.world_size(), 8);
    EXPECT_EQ(p.cluster.devices_per_node, 8);
    EXPECT_EQ(p.model.ffn_hidden, 4 * 1024);
    EXPECT_EQ(p.model.heads, 16);  // of width 64
    EXPECT_EQ(p.model.kv_heads, 16);
    EXPECT_EQ(p.training.micro_batch_size, 1);
    EXPECT_EQ(p.training.precision.activation, DType::bf16);
    EXPECT_EQ(p.training.memory.recompute, Recompute::none);
    for (const char* words :
         {"num_gpus: 8 (the product of the degrees; not stated)", "gpus_per_node: 8", "ffn_hidden: 4096",
          "MLP: not gated", "heads: 16", "micro_batch_size: 1", "precision: bf16", "recomputation: none"}) {
        EXPECT_TRUE(assumes(row, words)) << words;
    }
    row["hardware"]["gpu"] = "v100-sxm-32gb";
    EXPECT_EQ(plan(row).training.precision.activation, DType::fp16);
}

TEST(PlanOf, CorrectsARoundedBatch) {
    json row = sample_row();
    row["batch"].update({{"global_batch_seqs", 1001}, {"micro_batch_seqs", 2}});
    EXPECT_EQ(plan(row).training.global_batch_size, 1000);
    EXPECT_TRUE(assumes(row, "global batch: 1000"));
}

TEST(PlanOf, FillsInDegreesFromEachOther) {
    const auto degrees = [](const json& tp, const json& pp, const json& dp) {
        json row = sample_row();
        row["parallel"].update({{"tp", tp}, {"pp", pp}, {"dp", dp}, {"pipeline_schedule", nullptr}});
        const program::Parallelism parallelism = plan(row).parallelism;
        return std::vector<std::int64_t>{parallelism.tp, parallelism.pp, parallelism.dp};
    };
    EXPECT_EQ(degrees(nullptr, nullptr, nullptr), (Stages{1, 1, 8}));
    EXPECT_EQ(degrees(4, nullptr, nullptr), (Stages{4, 1, 2}));
    EXPECT_EQ(degrees(nullptr, 2, 2), (Stages{2, 2, 2}));
    EXPECT_EQ(degrees(2, nullptr, 2), (Stages{2, 2, 2}));
    EXPECT_EQ(degrees(nullptr, nullptr, 2), (Stages{4, 1, 2}));
}

TEST(PlanOf, FillsInDimensionsOfKnownModels) {
    json row = llama_row();
    row["model"].update({{"name", "Meta-Llama-3.1 8B (Instruct)"}, {"layers", 4}});
    for (const char* key : {"hidden", "heads", "kv_heads", "ffn_hidden", "vocab", "gated_mlp"}) {
        row["model"][key] = nullptr;
    }
    const Plan p = plan(row);
    EXPECT_EQ(p.model.hidden, 4096);
    EXPECT_EQ(p.model.kv_heads, 8);
    EXPECT_EQ(p.model.ffn_hidden, 14336);
    EXPECT_EQ(p.model.vocab, 128256);
    EXPECT_TRUE(assumes(row, "hidden: 4096 (llama3.1-8b's; not stated)"));
    row["model"]["hidden"] = 2048;  // another model with that name
    EXPECT_FALSE(assumes(row, "llama3.1-8b"));
    row["model"].update({{"name", "InternLM-7B"}, {"hidden", 4096}, {"heads", 32}});
    EXPECT_EQ(plan(row).model.ffn_hidden, 11008);
    EXPECT_TRUE(assumes(row, "8/3 of hidden"));
}

TEST(PlanOf, AssumesRecomputationIfTheRunWouldNotFit) {
    json row = llama_row();
    row["model"].update({{"name", "Llama-3-8B"},
                         {"layers", 32},
                         {"hidden", 4096},
                         {"heads", 32},
                         {"ffn_hidden", 14336},
                         {"vocab", 128256},
                         {"seq_len", 8192}});
    row["framework"] = "torchtitan";
    row["parallel"].update({{"tp", 1}, {"pp", 1}, {"dp", 8}, {"data_parallel", "zero3"}});
    row["batch"].update({{"micro_batch_seqs", 2}});
    row["recompute"] = row["recompute_as_published"] = "unknown";
    EXPECT_EQ(plan(row).training.memory.recompute, Recompute::full);
    EXPECT_TRUE(assumes(row, "recomputation: full (the run does not fit with less"));
    row["batch"].update({{"micro_batch_seqs", 1}});
    row["model"]["seq_len"] = 1024;
    EXPECT_EQ(plan(row).training.memory.recompute, Recompute::none);
}

TEST(PlanOf, UnderstandsSynonyms) {
    json row = llama_row();
    row["framework"] = "Megatron-Core 0.8";
    row["parallel"].update({{"data_parallel", "ZeRO stage 1"}, {"pipeline_schedule", "1F1B (PipeDream-Flush)"}});
    row["precision"] = "BF16 mixed";
    row["recompute"] = "activation checkpointing";
    const Plan p = plan(row);
    EXPECT_EQ(p.parallelism.data_parallel, DataParallel::zero1);
    EXPECT_EQ(p.parallelism.schedule, Schedule::one_f_one_b);
    EXPECT_EQ(p.training.precision.activation, DType::bf16);
    EXPECT_EQ(p.training.memory.recompute, Recompute::full);
    row["recompute"] = "no recomputation";
    EXPECT_EQ(plan(row).training.memory.recompute, Recompute::none);
    row["parallel"].update({{"pipeline_schedule", "interleaved (VPP 2)"}, {"vpp", 2}});
    EXPECT_EQ(plan(row).parallelism.schedule, Schedule::interleaved);
    row["parallel"].update({{"data_parallel", nullptr}, {"data_parallel_as_published", "distributed optimizer"}});
    EXPECT_EQ(plan(row).parallelism.data_parallel, DataParallel::zero1);
}

}  // namespace
}  // namespace orrery::published
