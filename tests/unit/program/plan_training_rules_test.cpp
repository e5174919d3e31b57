// Rules of check_plan about memory, precision and settings; and plans with arbitrary values.
#include <iterator>
#include <limits>
#include <string>

#include "core/random.h"
#include "tests/unit/program/plan_rules.h"

namespace orrery::program {
namespace {

using rules::Change;
using rules::expect_rule;
using rules::one_rank;
using rules::Rule;
using rules::rule_name;
using rules::with_experts;

/// Experts whose tokens cross the network once for each node.
void tokens_once(Plan& plan) {
    plan.model = with_experts(plan.model);
    plan.implementation = models::load_implementation("megatron-core-flex");
}

class TrainingRule : public testing::TestWithParam<Rule> {};
TEST_P(TrainingRule, AcceptsTheLegalAndRefusesTheIllegalPlan) {
    expect_rule(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Memory, TrainingRule,
    testing::Values(
        Rule{"RecomputedLayersAreWholeBlocks",
             [](Plan& p) { p.training.memory = {.recompute = Recompute::full, .recompute_layers = 4}; },
             [](Plan& p) { p.training.memory = {.recompute = Recompute::selective, .recompute_layers = 4}; },
             "/training/memory/recompute_layers: got 4; allowed: -1, because recompute is \"selective\""},
        Rule{"RecomputedLayersAreInAChunk",
             [](Plan& p) {
                 p.parallelism.pp = 2;
                 p.parallelism.stage_layers = {1, 3};
                 p.training.memory = {.recompute = Recompute::full, .recompute_layers = 3};
             },
             [](Plan& p) {
                 p.parallelism.pp = 2;
                 p.parallelism.stage_layers = {1, 3};
                 p.training.memory = {.recompute = Recompute::full, .recompute_layers = 4};
             },
             "/training/memory/recompute_layers: got 4; allowed: an integer from -1 to 3"},
        Rule{"PartsAreSelected",
             [](Plan& p) {
                 p.training.memory = {.recompute = Recompute::selective, .recompute_parts = {"norm", "activation"}};
             },
             [](Plan& p) {
                 p.training.memory = {.recompute = Recompute::full, .recompute_parts = {"norm", "activation"}};
             },
             "/training/memory/recompute_parts: got 2 parts; allowed: none, because recompute is \"full\""},
        Rule{"PartsHaveNames",
             [](Plan& p) {
                 p.training.memory = {.recompute = Recompute::selective, .recompute_parts = {"norm", "mlp_in"}};
             },
             [](Plan& p) {
                 p.training.memory = {.recompute = Recompute::selective, .recompute_parts = {"norm", "residual"}};
             },
             "/training/memory/recompute_parts/1: got \"residual\"; allowed: \"attention_projection\", "},
        Rule{"PartsAreNamedOnce",
             [](Plan& p) { p.training.memory = {.recompute = Recompute::selective, .recompute_parts = {"norm"}}; },
             [](Plan& p) {
                 p.training.memory = {.recompute = Recompute::selective, .recompute_parts = {"norm", "norm"}};
             },
             "/training/memory/recompute_parts/1: got \"norm\"; "},
        Rule{"ShardedCheckpointsAreOfWholeBlocks",
             [](Plan& p) {
                 p.parallelism.tp = 2;
                 p.training.memory = {.recompute = Recompute::full, .shards_checkpoints = true};
             },
             [](Plan& p) {
                 p.parallelism.tp = 2;
                 p.training.memory = {.recompute = Recompute::selective, .shards_checkpoints = true};
             },
             "/training/memory/shards_checkpoints: got true; allowed: false, because recompute is \"selective\""},
        Rule{"ShardedCheckpointsNeedTensorParallel",
             [](Plan& p) {
                 p.parallelism.tp = 4;
                 p.training.memory = {.recompute = Recompute::full, .shards_checkpoints = true};
             },
             [](Plan& p) { p.training.memory = {.recompute = Recompute::full, .shards_checkpoints = true}; },
             "/training/memory/shards_checkpoints: got true; allowed: false, because tp is 1"},
        Rule{"SequenceParallelShardsCheckpointsAlready",
             [](Plan& p) {
                 p.parallelism.tp = 2;
                 p.training.memory = {.recompute = Recompute::full, .shards_checkpoints = true};
             },
             [](Plan& p) {
                 p.parallelism.tp = 2, p.parallelism.sequence_parallel = true;
                 p.training.memory = {.recompute = Recompute::full, .shards_checkpoints = true};
             },
             "/training/memory/shards_checkpoints: got true; allowed: false, because sequence_parallel"},
        Rule{"OffloadedLayersAreInAChunk", [](Plan& p) { p.training.memory.offload_layers = 4; },
             [](Plan& p) { p.training.memory.offload_layers = 5; },
             "/training/memory/offload_layers: got 5; allowed: an integer from 0 to 4"},
        Rule{"OffloadedLayersAreNotNegative", [](Plan& p) { p.training.memory.offload_layers = 0; },
             [](Plan& p) { p.training.memory.offload_layers = -1; }, "/training/memory/offload_layers: got -1; "},
        Rule{"WhatIsRecomputedIsNotOffloaded",
             [](Plan& p) { p.training.memory = {.recompute = Recompute::selective, .offload_layers = 2}; },
             [](Plan& p) { p.training.memory = {.recompute = Recompute::full, .offload_layers = 2}; },
             "/training/memory/offload_layers: got 2; allowed: 0, because recompute is \"full\""},
        Rule{"OffloadingNeedsAWholeBackward",
             [](Plan& p) {
                 p.parallelism.pp = 2;
                 p.training.memory.offload_layers = 2;
             },
             [](Plan& p) {
                 p.parallelism.pp = 2, p.parallelism.schedule = Schedule::zb_h1;
                 p.training.memory.offload_layers = 2;
             },
             "/training/memory/offload_layers: got 2; allowed: 0, because schedule \"zb-h1\""},
        Rule{"TorchDataParallelKeepsItsOptimizer",
             [](Plan& p) {
                 p.parallelism.dp = 2;
                 p.training.memory.offload_optimizer = true;
             },
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.data_parallel = DataParallel::dp;
                 p.training.memory.offload_optimizer = true;
             },
             "/training/memory/offload_optimizer: got true; allowed: false, because data_parallel is \"dp\""},
        Rule{"OnlyShardedParametersAreOffloaded",
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.data_parallel = DataParallel::zero3;
                 p.training.memory.offload_parameters = p.training.memory.offload_optimizer = true;
             },
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.data_parallel = DataParallel::zero2;
                 p.training.memory.offload_parameters = true;
             },
             "/training/memory/offload_parameters: got true; allowed: false, because data_parallel is \"zero2\""},
        Rule{"OffloadedParametersAreUpdatedOnTheHost",
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.data_parallel = DataParallel::zero3;
                 p.training.memory.offload_optimizer = true;
             },
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.data_parallel = DataParallel::zero3;
                 p.training.memory.offload_parameters = true;
             },
             "/training/memory/offload_parameters: got true; allowed: false, because offload_optimizer is false"},
        Rule{"OffloadingNeedsALinkToTheHost", [](Plan& p) { p.training.memory.offload_optimizer = true; },
             [](Plan& p) {
                 p.training.memory.offload_optimizer = true;
                 p.cluster = topologies::load_cluster("dgx-h100", 1);
                 p.cluster.host_link = p.cluster.host_memory_link = {};
             },
             "/training/memory/offload_optimizer: got true; allowed: false, because cluster \"dgx-h100\" has no link"}),
    rule_name);

Change precision(const Precision& precision, const char* cluster = "dgx-h100") {
    return [precision, cluster](Plan& p) {
        p.training.precision = precision;
        p.cluster = topologies::load_cluster(cluster, 1);
    };
}
Change precision(const char* name, const char* cluster = "dgx-h100") {
    return precision(precision_named(name), cluster);
}
Precision bf16_with(const std::function<void(Precision&)>& change) {
    Precision result = precision_named("bf16");
    change(result);
    return result;
}

INSTANTIATE_TEST_SUITE_P(
    Precision, TrainingRule,
    testing::Values(
        Rule{"StoredTypes", precision("fp16"), precision(bf16_with([](Precision& p) { p.gradient = DType::fp8; })),
             "/training/precision/gradient: got \"fp8\"; allowed: \"fp32\", \"bf16\", \"fp16\""},
        Rule{"ReductionTypes", precision(bf16_with([](Precision& p) { p.reduction = DType::fp16; })),
             precision(bf16_with([](Precision& p) { p.reduction = DType::uint8; })),
             "/training/precision/reduction: got \"uint8\"; "},
        Rule{"Tf32IsOfFp32", precision("tf32"), precision(bf16_with([](Precision& p) { p.compute = DType::tf32; })),
             "/training/precision/compute: got \"tf32\"; allowed: \"bf16\", because activations are bf16"},
        Rule{"ProductsAreInTheActivationType", precision("bf16"), precision(Precision{.compute = DType::bf16}),
             "/training/precision/compute: got \"bf16\"; allowed: \"fp32\", \"tf32\", because activations are fp32"},
        Rule{"Fp8NeedsShortActivations", precision("fp8"), precision(Precision{.fp8 = Fp8Scaling::tensorwise}),
             "/training/precision/fp8: got \"tensorwise\"; allowed: \"none\", because activations are fp32"},
        Rule{"Fp4NeedsShortActivations", precision("nvfp4", "dgx-b200"), precision(Precision{.fp8 = Fp8Scaling::nvfp4}),
             "/training/precision/fp8: got \"nvfp4\"; allowed: \"none\", because activations are fp32"},
        Rule{"Fp8ParametersNeedFp8",
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.data_parallel = DataParallel::zero1;
                 p.training.precision = precision_named("fp8");
                 p.training.precision.fp8_parameters = true;
             },
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.data_parallel = DataParallel::zero1;
                 p.training.precision = precision_named("bf16");
                 p.training.precision.fp8_parameters = true;
             },
             "/training/precision/fp8_parameters: got true; allowed: false, because fp8 is \"none\""},
        Rule{"Fp8ParametersAreGathered",
             [](Plan& p) {
                 p.parallelism.dp = 2, p.parallelism.data_parallel = DataParallel::zero3;
                 p.training.precision = precision_named("fp8");
                 p.training.precision.fp8_parameters = true;
             },
             [](Plan& p) {
                 p.parallelism.dp = 2;
                 p.training.precision = precision_named("fp8");
                 p.training.precision.fp8_parameters = true;
             },
             "/training/precision/fp8_parameters: got true; allowed: false, because data_parallel is \"ddp\""},
        Rule{"LossScalingIsOfFp16", precision("fp16"),
             precision(bf16_with([](Precision& p) { p.loss_scaling = true; })),
             "/training/precision/loss_scaling: got true; allowed: false, because activations are bf16"},
        Rule{"MasterWeightsAreOfShortParameters", precision("bf16"), precision(Precision{.master_weights = true}),
             "/training/precision/master_weights: got true; allowed: false, because parameters are fp32 already"},
        Rule{"MomentsAreOfAdam", precision(bf16_with([](Precision& p) { p.moments = DType::bf16; })),
             [](Plan& p) {
                 p.training.precision.moments = DType::bf16;
                 p.training.optimizer.kind = OptimizerKind::sgd_momentum;
             },
             "/training/precision/moments: got \"bf16\"; allowed: \"fp32\", because the optimizer is "
             "\"sgd_momentum\""},
        Rule{"MomentsAreInFp32OrBf16", precision(Precision{.moments = DType::bf16}),
             precision(Precision{.moments = DType::fp16}),
             "/training/precision/moments: got \"fp16\"; allowed: \"fp32\", \"bf16\""},
        Rule{"TheDeviceHasTheType", precision("fp16", "dgx1-v100"), precision("bf16", "dgx1-v100"),
             "/training/precision/compute: got \"bf16\"; allowed: a type for which device \"v100-sxm-"},
        Rule{"TheDeviceHasTf32", precision("tf32", "dgx-a100"), precision("tf32", "dgx1-v100"),
             "/training/precision/compute: got \"tf32\"; allowed: a type for which device"},
        Rule{"TheDeviceHasFp8", precision("fp8", "dgx-h100"), precision("fp8", "dgx-a100"),
             "/training/precision/fp8: got \"delayed\"; allowed: a type for which device \"a100-sxm-80gb\" has a peak "
             "rate"}),
    rule_name);

INSTANTIATE_TEST_SUITE_P(
    Settings, TrainingRule,
    testing::Values(
        Rule{"Momentum", [](Plan& p) { p.training.optimizer.momentum = 0; },
             [](Plan& p) { p.training.optimizer.momentum = 1; }, "/training/optimizer/momentum: got 1; "},
        Rule{"ClipNorm", [](Plan& p) { p.training.optimizer.clip_norm = 1e6; },
             [](Plan& p) { p.training.optimizer.clip_norm = -1; }, "/training/optimizer/clip_norm: got -1; "},
        Rule{"ImbalanceIsAtLeastEven", [](Plan& p) { p.training.expert_load.imbalance = 1; },
             [](Plan& p) { p.training.expert_load.imbalance = 0.5; },
             "/training/expert_load/imbalance: got 0.5; allowed: a number from 1 to 1000"},
        Rule{"ImbalanceHasAnEnd", [](Plan& p) { p.training.expert_load.imbalance = 1000; },
             [](Plan& p) { p.training.expert_load.imbalance = 1001; }, "/training/expert_load/imbalance: got 1001; "},
        Rule{"CapacityFactor", [](Plan& p) { p.training.expert_load.capacity_factor = 0.5; },
             [](Plan& p) { p.training.expert_load.capacity_factor = -0.5; },
             "/training/expert_load/capacity_factor: got -0.5; "},
        Rule{"LargestLoad", [](Plan& p) { p.training.expert_load.largest = 1; },
             [](Plan& p) { p.training.expert_load.largest = 0.9; },
             "/training/expert_load/largest: got 0.9; allowed: 0 or a number from 1"},
        Rule{"PaddingNeedsACapacity",
             [](Plan& p) { p.training.expert_load = {.capacity_factor = 1.25, .pads_to_capacity = true}; },
             [](Plan& p) { p.training.expert_load.pads_to_capacity = true; },
             "/training/expert_load/pads_to_capacity: got true; allowed: false, because capacity_factor is 0"},
        Rule{"TokensSentOnceAreNotPadded", tokens_once,
             [](Plan& p) {
                 tokens_once(p);
                 p.training.expert_load = {.capacity_factor = 1.25, .pads_to_capacity = true};
             },
             "/training/expert_load/pads_to_capacity: got true; allowed: false, because "
             "/implementation/experts/sends_tokens_once of implementation \"megatron-core-flex\" sends no padding"},
        Rule{"TheExecutorSendsCopies", tokens_once,
             [](Plan& p) {
                 tokens_once(p);
                 p.implementation.executable = true;
             },
             "/implementation/experts/sends_tokens_once: got true; allowed: false, because the executor sends"},
        Rule{"CpuRanksSendCopies", tokens_once,
             [](Plan& p) {
                 tokens_once(p);
                 p.cluster = topologies::load_cluster("dgx-h100", 1);
                 p.cluster.device.host_runs_compute = true;
             },
             "/implementation/experts/sends_tokens_once: got true; allowed: false, because CPU ranks send"},
        Rule{
            "ForwardingNeedsNvlink", tokens_once,
            [](Plan& p) {
                tokens_once(p);
                p.cluster = topologies::load_cluster("pcie-l40s", 1);
            },
            "/implementation/experts/sends_tokens_once: got true; allowed: false, because cluster \"pcie-l40s\" has no "
            "NVLink"}),
    rule_name);

/// Values at and beyond every limit.
constexpr std::int64_t kWild[] = {std::numeric_limits<std::int64_t>::min(),
                                  -2,
                                  -1,
                                  0,
                                  1,
                                  2,
                                  3,
                                  4,
                                  8,
                                  16,
                                  1 << 20,
                                  (1 << 20) + 1,
                                  std::int64_t{1} << 40,
                                  std::numeric_limits<std::int64_t>::max()};
constexpr double kWildNumbers[] = {-1,  0,    0.5,
                                   1,   1000, std::numeric_limits<double>::max(),
                                   -0., 1e-9, std::numeric_limits<double>::infinity(),
                                   2,   -1e9, std::numeric_limits<double>::quiet_NaN()};

TEST(AnyPlan, IsLegalOrAnInputError) {
    const RandomStream random(7, "wild plans");
    std::uint64_t draw = 0;
    const auto pick = [&](std::uint64_t bound) { return static_cast<std::size_t>(random.below(draw++, bound)); };
    const topologies::ClusterSpec cluster = topologies::load_cluster("dgx-h100", 8);
    const Plan start = one_rank();
    const models::ModelSpec experts = with_experts(start.model);
    int legal = 0, refused = 0;
    for (int round = 0; round < 20000; ++round) {
        Plan plan = start;
        if (pick(2) == 0) plan.model = experts;
        plan.cluster = cluster;
        plan.cluster.device.host_runs_compute = pick(2) == 0;
        Parallelism& p = plan.parallelism;
        Training& t = plan.training;
        p.stage_layers = {4};
        const std::size_t changes = 1 + pick(4);
        for (std::size_t i = 0; i < changes; ++i) {
            const std::int64_t value = kWild[pick(std::size(kWild))];
            const double number = kWildNumbers[pick(std::size(kWildNumbers))];
            std::int64_t* const integers[] = {&p.dp,
                                              &p.tp,
                                              &p.pp,
                                              &p.cp,
                                              &p.ep,
                                              &p.etp,
                                              &p.chunks,
                                              &p.interleave_group,
                                              &p.dp_shard,
                                              &t.sequence_length,
                                              &t.micro_batch_size,
                                              &t.global_batch_size,
                                              &t.memory.recompute_layers,
                                              &t.memory.offload_layers};
            double* const numbers[] = {&t.optimizer.learning_rate,
                                       &t.optimizer.momentum,
                                       &t.optimizer.clip_norm,
                                       &t.expert_load.imbalance,
                                       &t.expert_load.capacity_factor,
                                       &t.expert_load.largest,
                                       &t.dropout};
            bool* const flags[] = {
                &p.sequence_parallel,         &t.memory.shards_checkpoints,    &t.memory.offload_optimizer,
                &t.memory.offload_parameters, &t.expert_load.pads_to_capacity, &t.precision.fp8_parameters,
                &t.precision.loss_scaling,    &t.precision.master_weights,     &t.optimizer.post_validation};
            switch (pick(8)) {
                case 0:
                case 1:
                    *integers[pick(std::size(integers))] = value;
                    break;
                case 2:
                    *numbers[pick(std::size(numbers))] = number;
                    break;
                case 3:
                    *flags[pick(std::size(flags))] = true;
                    break;
                case 4:
                    p.schedule = static_cast<Schedule>(pick(kScheduleCount));
                    p.data_parallel = static_cast<DataParallel>(pick(5));
                    p.context_parallel = static_cast<ContextParallel>(pick(3));
                    break;
                case 5:
                    t.precision.compute = static_cast<DType>(pick(8));
                    t.precision.activation = static_cast<DType>(pick(8));
                    t.precision.moments = static_cast<DType>(pick(8));
                    t.precision.fp8 = static_cast<Fp8Scaling>(pick(4));
                    t.memory.recompute = static_cast<Recompute>(pick(3));
                    break;
                case 6:
                    p.stage_layers.assign(pick(4), value);
                    p.placement.assign(pick(3), value);
                    break;
                default:
                    p.order[pick(kMeshAxes)] = static_cast<MeshAxis>(pick(kMeshAxes));
            }
        }
        try {
            check_plan(plan, "wild");
            ++legal;
        } catch (const InputError& error) {
            ++refused;
            const std::string message = error.what();
            ASSERT_EQ(message.find("wild: /"), 0U) << message;
            ASSERT_NE(message.find("; allowed: "), std::string::npos) << message;
        }
    }
    EXPECT_GT(legal, 500);
    EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace orrery::program
