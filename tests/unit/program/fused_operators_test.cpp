// Where a plan fuses operators across kernels: on GPUs, and where both parts are recomputed or neither is.
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "tests/unit/models/unfused.h"
#include "tests/unit/program/sample_plans.h"
#include "topologies/cluster_spec.h"

namespace orrery::program {
namespace {

using models::OpKind;

Plan plan_for_gpus(const samples::Sample& sample) {
    Plan plan = samples::make_plan(sample);
    plan.cluster = topologies::load_cluster("dgx-h100", plan.parallelism.world_size());
    return plan;
}

/// Fused operators of the forward passes, by kind.
std::map<OpKind, int> fused_kinds(const Plan& plan) {
    std::map<OpKind, int> kinds;
    for (const Body& body : lower(plan).bodies) {
        for (const models::Operator& op : body.operators) {
            if (op.is_fused() && !op.again) ++kinds[op.kind];
        }
    }
    return kinds;
}

Plan recomputing(std::vector<std::string> parts) {
    Plan plan = plan_for_gpus({});
    plan.training.memory.recompute = Recompute::selective;
    plan.training.memory.recompute_parts = std::move(parts);
    return plan;
}

TEST(FusedOperators, AreThoseOfTheImplementation) {
    using Kinds = std::map<OpKind, int>;
    EXPECT_EQ(fused_kinds(plan_for_gpus({})),
              (Kinds{{OpKind::layer_norm_forward, 1}, {OpKind::linear_forward, 1}, {OpKind::cross_entropy_sum, 1}}));
    EXPECT_EQ(fused_kinds(plan_for_gpus({.model = "tiny-llama"})),
              (Kinds{{OpKind::rms_norm_forward, 1}, {OpKind::cross_entropy_sum, 1}}));
    Plan apart = plan_for_gpus({});
    apart.implementation = models::samples::unfused(apart.implementation);
    EXPECT_TRUE(fused_kinds(apart).empty());
    for (const char* other : {"megatron-core", "torch-fsdp2"}) {
        EXPECT_TRUE(fused_kinds(plan_for_gpus({.implementation = other})).empty()) << other;
    }
}

TEST(FusedOperators, AreNotForCpuCores) {
    Plan plan = samples::make_plan({});
    plan.cluster.device.host_runs_compute = true;
    EXPECT_TRUE(fused_kinds(plan).empty());
}

TEST(FusedOperators, KeepARecomputedPartApartFromOneThatIsNot) {
    const auto fuses = [](std::vector<std::string> parts, OpKind kind) {
        return fused_kinds(recomputing(std::move(parts))).contains(kind);
    };
    EXPECT_TRUE(fuses({}, OpKind::layer_norm_forward));  // attention's core
    EXPECT_FALSE(fuses({"norm"}, OpKind::layer_norm_forward));
    EXPECT_FALSE(fuses({"residual"}, OpKind::layer_norm_forward));
    EXPECT_TRUE(fuses({"norm", "residual"}, OpKind::layer_norm_forward));
    EXPECT_TRUE(fuses({"norm"}, OpKind::linear_forward));
    EXPECT_FALSE(fuses({"activation"}, OpKind::linear_forward));
    EXPECT_FALSE(fuses({"mlp_in"}, OpKind::linear_forward));
    EXPECT_TRUE(fuses({"mlp_in", "activation"}, OpKind::linear_forward));
}

TEST(FusedOperators, NeedTheirPartsSideBySide) {
    EXPECT_FALSE(fused_kinds(plan_for_gpus({.dropout = 0.1})).contains(OpKind::layer_norm_forward));
    const std::map<OpKind, int> of_two = fused_kinds(plan_for_gpus({.tp = 2, .sequence_parallel = true}));
    EXPECT_TRUE(of_two.contains(OpKind::layer_norm_forward));
    EXPECT_TRUE(of_two.contains(OpKind::linear_forward));
}

/// The passes over the logits of one micro-batch, and the parts of the vocabulary whose statistics the loss combines.
TEST(FusedOperators, ReadTheLogitsTwiceOnEachOfSeveralRanks) {
    const auto passes = [](const Plan& plan) {
        std::map<OpKind, std::int64_t> kinds;
        for (const Body& body : lower(plan).bodies) {
            for (const models::Operator& op : body.operators) {
                if (op.kind == OpKind::cross_entropy_max || op.kind == OpKind::cross_entropy_sum) ++kinds[op.kind];
                if (op.kind == OpKind::cross_entropy_loss) kinds[op.kind] = op.sources;
            }
        }
        return kinds;
    };
    using Kinds = std::map<OpKind, std::int64_t>;
    Plan plan = plan_for_gpus({.tp = 4});
    EXPECT_EQ(passes(plan), (Kinds{{OpKind::cross_entropy_sum, 1}, {OpKind::cross_entropy_loss, 4}}));
    plan.implementation = models::samples::unfused(plan.implementation);
    EXPECT_EQ(passes(plan),
              (Kinds{{OpKind::cross_entropy_max, 1}, {OpKind::cross_entropy_sum, 1}, {OpKind::cross_entropy_loss, 0}}));
}

/// What a plan recomputes decides about its memory, whether or not it fuses.
TEST(FusedOperators, LeaveTheMemoryOfRecomputationAlone) {
    for (const std::vector<std::string>& parts :
         {std::vector<std::string>{"norm"}, {"norm", "residual"}, {"activation"}, {"mlp_in", "activation"}}) {
        Plan fused = recomputing(parts), apart = fused;
        apart.implementation = models::samples::unfused(apart.implementation);
        const auto frames = [](const Plan& plan) { return lower(plan).classes.front().memory.activations_arena; };
        EXPECT_EQ(frames(fused), frames(apart)) << parts.back();
    }
}

}  // namespace
}  // namespace orrery::program
