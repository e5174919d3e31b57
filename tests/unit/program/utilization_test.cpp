#include "sim/program/utilization.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "sim/program/program.h"

namespace orrery::program {
namespace {

Plan plan_on_h100(const char* precision) {
    Plan plan;
    plan.name = "sample";
    plan.model = models::load_model("llama3-8b");
    plan.cluster = topologies::load_cluster("dgx-h100", 8);
    plan.implementation = models::load_implementation("megatron-core");
    plan.parallelism.tp = 8;
    plan.parallelism.stage_layers = even_stages(plan.model.layers, 1);
    plan.training.sequence_length = 4096;
    plan.training.global_batch_size = 4;
    plan.training.precision = precision_named(precision, plan.implementation);
    return plan;
}

TEST(Utilization, FollowsFromStepTimeAndPeak) {
    const Plan plan = plan_on_h100("bf16");
    const double flops = models::model_flops_per_sequence(plan.model, 4096, models::FlopsConvention::palm) * 4;
    const Utilization utilization = utilization_of(plan, 2.0, flops / 2);
    EXPECT_DOUBLE_EQ(utilization.model_flops_per_s_per_device, flops / 16);
    EXPECT_DOUBLE_EQ(utilization.peak_flops_per_s, 989e12);
    EXPECT_DOUBLE_EQ(utilization.mfu, flops / 16 / 989e12);
    EXPECT_DOUBLE_EQ(utilization.hfu, 1.5 * utilization.mfu);
    EXPECT_THROW((void)utilization_of(plan, 0, 0), BugError);
}

TEST(Utilization, UsesThePeakOfTheComputeType) {
    const Utilization bf16 = utilization_of(plan_on_h100("bf16"), 2.0, 0);
    const Utilization fp8 = utilization_of(plan_on_h100("fp8"), 2.0, 0);
    EXPECT_EQ(fp8.type, DType::fp8);
    EXPECT_NEAR(fp8.mfu, bf16.mfu * 989 / 1979, 1e-12);
    const Utilization tf32 = utilization_of(plan_on_h100("tf32"), 2.0, 0);
    EXPECT_EQ(tf32.type, DType::tf32);
    EXPECT_DOUBLE_EQ(tf32.peak_flops_per_s, 494.5e12);
}

TEST(Utilization, IsUnknownWithoutAPeak) {
    Plan plan = plan_on_h100("bf16");
    std::erase_if(plan.cluster.device.peaks, [](const auto& peak) { return peak.dtype == DType::bf16; });
    const Utilization utilization = utilization_of(plan, 2.0, 0);
    EXPECT_EQ(utilization.peak_flops_per_s, 0);
    EXPECT_EQ(utilization.mfu, 0);
    EXPECT_GT(utilization.model_flops_per_s_per_device, 0);
}

TEST(RecomputedFlops, EqualAForwardPassOfTheBlocks) {
    Plan plan = plan_on_h100("bf16");
    EXPECT_EQ(recomputed_flops(lower(plan)), 0);
    plan.training.memory.recompute = Recompute::full;
    const double whole = recomputed_flops(lower(plan));
    // 2 FLOPs per token and weight of the blocks, and attention's two GEMMs over the lower triangle.
    const models::ModelSpec& model = plan.model;
    const double tokens = 4.0 * 4096;
    const auto blocks = static_cast<double>(models::parameter_count(model) - 2 * model.vocab * model.hidden);
    const double attention = 2.0 * 2.0 * static_cast<double>(model.layers * model.q_width()) * 4096 / 2;
    EXPECT_NEAR(whole / (tokens * (2 * blocks + attention)), 1, 0.01);
    plan.training.memory.recompute_layers = 8;
    EXPECT_NEAR(recomputed_flops(lower(plan)) / whole, 8.0 / 32, 1e-9);
}

}  // namespace
}  // namespace orrery::program
