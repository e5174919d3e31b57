#include "reports/summary.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "reports/class_means.h"
#include "tests/unit/reports/sample.h"

namespace orrery::reports {
namespace {

bool contains(const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
}

TEST(ClassMeans, RepresentativesStandForTheirRanks) {
    program::RunRecord record = sample::measured();
    record.ranks = {sample::rank(0, 3, 10, 4, 0), sample::rank(1, 1, 30, 8, 0)};
    const auto classes = class_means(record);
    ASSERT_EQ(classes.size(), 1U);
    EXPECT_EQ(classes[0].ranks, 4);
    EXPECT_DOUBLE_EQ(classes[0].busy_s[0], (3 * 10e-6 + 30e-6) / 4);
    EXPECT_EQ(classes[0].bytes_sent[static_cast<std::size_t>(program::Stream::tp)], 4000);
    record.ranks.push_back(sample::rank(2, 4, 10, 4, 0));
    const ClassMeans overall = overall_means(record);
    EXPECT_EQ(overall.ranks, 8);
    EXPECT_DOUBLE_EQ(overall.busy_s[0], (3 * 10e-6 + 30e-6 + 4 * 10e-6) / 8);
    EXPECT_EQ(overall.memory_peak_bytes, 7 << 20);
}

TEST(Throughput, FollowsFromStepTime) {
    const program::Plan plan = sample::plan();
    const Throughput rates = throughput_of(plan, 0.5, models::FlopsConvention::palm);
    EXPECT_DOUBLE_EQ(rates.tokens_per_s, 4 * 16 / 0.5);
    EXPECT_DOUBLE_EQ(rates.tokens_per_s_per_device, 4 * 16 / 0.5 / 4);
    const double flops = models::model_flops_per_sequence(plan.model, 16, models::FlopsConvention::palm) * 4;
    ASSERT_TRUE(rates.mfu.has_value());
    EXPECT_DOUBLE_EQ(*rates.mfu, flops / (0.5 * 4 * 2e12));
    EXPECT_TRUE(contains(rates.statement, models::name_of(models::FlopsConvention::palm))) << rates.statement;
    EXPECT_TRUE(contains(rates.statement, "peak 2 TFLOP/s fp32 dense, datasheet")) << rates.statement;
    EXPECT_THROW((void)throughput_of(plan, 0), BugError);
}

TEST(Throughput, WithoutAPeakThereIsNoMfu) {
    program::Plan plan = sample::plan();
    plan.training.precision.activation = DType::bf16;
    const Throughput rates = throughput_of(plan, 0.5);
    EXPECT_FALSE(rates.mfu.has_value());
    EXPECT_TRUE(contains(rates.statement, "card has no bf16 peak")) << rates.statement;
}

TEST(Summary, NamesWhatMatters) {
    const std::string text = summary_text(sample::program(), sample::predicted());
    for (const char* part :
         {"sample (predicted)", "dp 1 x tp 2 x pp 2", "20.0 us", "MFU ", "25.0%", "stage 0", "stage 1",
          "pp_send_forward", "6.00 MiB", "7.00 MiB", "forward c0 mb0", "no efficiency was measured for mlp"}) {
        EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
    }
    EXPECT_FALSE(contains(text, "nan")) << text;
    const std::string measured = summary_text(sample::program(), sample::measured());
    EXPECT_TRUE(contains(measured, "25.0 us (median of 3; 24.0 us to 30.0 us)")) << measured;
}

TEST(Summary, LayoutAndMemorySavings) {
    program::Plan plan = sample::plan();
    plan.parallelism.dp = 4;
    plan.parallelism.ep = 2;
    plan.parallelism.data_parallel = program::DataParallel::zero3;
    plan.parallelism.dp_shard = 2;
    plan.parallelism.order = program::mesh_order_named("pp,tp,cp,ep,dp");
    plan.training.memory.recompute = program::Recompute::selective;
    plan.training.memory.offload_layers = 1;
    program::Program program = sample::program(plan);
    program.classes[1].memory.gathered = 1 << 20;
    program.classes[0].memory.peak_action = -1;
    const std::string text = summary_text(program, sample::predicted());
    for (const char* part :
         {"rank order pp,tp,cp,ep,dp; tp 2, cp 1, dp 4, pp 2; experts: etp 1, ep 2, edp 4\n",
          "zero3: parameters, gradients and optimizer states sharded over 2 ranks\n", "1f1b, 1 chunk a rank\n",
          "recomputation selective (attention_core); activations of 1 block a chunk on the host\n", "gathered"}) {
        EXPECT_TRUE(contains(text, part)) << part << "\n" << text;
    }
    EXPECT_FALSE(contains(text, "offload window")) << "no stage has one\n" << text;
}

TEST(Summary, StrategyLine) {
    program::Plan plan = sample::plan();
    plan.parallelism.sequence_parallel = true;
    EXPECT_EQ(strategy_of(plan),
              "dp 1 x tp 2 x pp 2, sequence parallel, " + program::name_of(program::Schedule::one_f_one_b));
    plan.parallelism.pp = 1;
    plan.parallelism.sequence_parallel = false;
    EXPECT_EQ(strategy_of(plan), "dp 1 x tp 2 x pp 1");
    plan.parallelism.dp = 8;
    plan.parallelism.cp = 2;
    plan.parallelism.ep = 4;
    plan.parallelism.data_parallel = program::DataParallel::zero1;
    EXPECT_EQ(strategy_of(plan), "dp 8 x tp 2 x cp 2 x pp 1, ep 4, zero1");
}

}  // namespace
}  // namespace orrery::reports
