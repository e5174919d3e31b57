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

TEST(ClassMeans, RepresentativesAreWeightedByMultiplicity) {
    program::RunRecord record = sample::measured();
    record.ranks = {sample::rank(0, 3, 10, 4, 0), sample::rank(1, 1, 30, 8, 0)};
    const auto classes = class_means(record);
    ASSERT_EQ(classes.size(), 1U);
    EXPECT_EQ(classes[0].ranks, 4);
    EXPECT_DOUBLE_EQ(classes[0].busy_s[program::Stream::compute], (3 * 10e-6 + 30e-6) / 4);
    EXPECT_EQ(classes[0].bytes_sent[program::Stream::tp], 4000);
    record.ranks.push_back(sample::rank(2, 4, 10, 4, 0));
    const ClassMeans overall = overall_means(record);
    EXPECT_EQ(overall.ranks, 8);
    EXPECT_DOUBLE_EQ(overall.busy_s[program::Stream::compute], (3 * 10e-6 + 30e-6 + 4 * 10e-6) / 8);
    EXPECT_EQ(overall.memory_peak_bytes, 7 << 20);
}

TEST(UtilizationWords, SayConventionAndPeak) {
    const program::Plan plan = sample::plan();
    const std::string words = utilization_words(plan, program::utilization_of(plan, 0.5, 0));
    for (const char* part : {"palm", "6 N + 12 L h s", "2 TFLOP/s (dense fp32, datasheet)", "HFU"}) {
        EXPECT_TRUE(contains(words, part)) << words;
    }
}

TEST(UtilizationWords, WithoutAPeakThereIsNoMfu) {
    program::Plan plan = sample::plan();
    plan.training.precision.compute = DType::bf16;
    const std::string words = utilization_words(plan, program::utilization_of(plan, 0.5, 0));
    EXPECT_TRUE(contains(words, "card has no bf16 peak")) << words;
}

TEST(SizeText, NodesAreShownIfThereAreSeveral) {
    EXPECT_TRUE(contains(size_text(topologies::load_cluster("dgx-h100", 512)), "64 nodes of 8 (512 h100")) << "nodes";
    EXPECT_EQ(size_text(topologies::load_cluster("dgx-h100", 8)), "dgx-h100, 8 h100-sxm-80gb");
}

TEST(Summary, ShowsTimesMemoryAndNotes) {
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

TEST(Summary, OfManyStagesTheExtremesAreShown) {
    program::Program program = sample::program();
    program::RunRecord record = sample::predicted();
    program.classes.push_back(program.classes.back());
    program.classes.back().name = "stage 2";
    record.ranks.push_back(sample::rank(2, 2, 40, 4, 0));
    record.ranks.back().rank_class = 2;
    record.ranks.back().memory_peak_bytes = 9 << 20;
    const std::string brief = summary_text(program, record);
    for (const char* part : {"of 3 stages (--details: of each)", "stage 2", "40.0 us", "fullest and emptiest stage"}) {
        EXPECT_TRUE(contains(brief, part)) << part << "\n" << brief;
    }
    EXPECT_TRUE(contains(brief, "9.00 MiB")) << brief;
    EXPECT_FALSE(contains(brief, "7.00 MiB")) << "neither the fullest nor the emptiest\n" << brief;
    const std::string each = summary_text(program, record, Stages::each);
    EXPECT_TRUE(contains(each, "7.00 MiB")) << each;
    EXPECT_FALSE(contains(each, "--details")) << each;
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
    EXPECT_FALSE(contains(text, "moments")) << text;
    plan.training.precision.moments = DType::bf16;
    plan.training.optimizer = {.clip_norm = 1, .post_validation = true};
    const std::string other = summary_text(sample::program(plan), sample::predicted());
    EXPECT_TRUE(contains(other, "1f1b, 1 chunk a rank; updates validated later\n")) << other;
    EXPECT_TRUE(contains(other, "on the host; moments in bf16\n")) << other;
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
