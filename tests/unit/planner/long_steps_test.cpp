// Compares steps extrapolated from two shorter ones with the same steps simulated whole.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::Schedule;

struct Case {
    const char* name;
    Schedule schedule;
    std::int64_t pp = 4, chunks = 1, micro_batches = 160;
    std::int64_t largest_stage = 0;  // 0: even
    double tolerance = 1e-4;
};

Plan plan_of_case(const Case& one) {
    PlanRequest request = request_for("llama2-7b", one.pp * 2, one.micro_batches, 2048);
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    Choice choice{.tp = 2, .pp = one.pp};
    choice.schedule = one.schedule;
    choice.chunks = one.chunks;
    Plan plan = plan_of(request, choice);
    if (one.largest_stage > 0) {
        std::vector<std::int64_t>& layers = plan.parallelism.stage_layers;
        const std::int64_t moved = one.largest_stage - layers[1];
        layers[1] += moved;
        layers[0] -= moved;
    }
    return plan;
}

class LongSteps : public testing::TestWithParam<Case> {};

TEST_P(LongSteps, ArePredictedAsIfSimulatedWhole) {
    const Plan plan = plan_of_case(GetParam());
    ASSERT_EQ(plan.micro_batches(), GetParam().micro_batches);
    const topologies::Cluster cluster(plan.cluster);
    const Evaluation whole = evaluate(program::lower(plan), cluster, {.derivatives = true});
    const std::int64_t pp = plan.parallelism.pp;
    const Evaluation one = evaluate_from({8 * pp, 20 * pp}, plan, cluster, {.derivatives = true});
    const double tolerance = GetParam().tolerance;
    const auto expect_near = [&](double got, double expected, const std::string& what, double looser = 1) {
        EXPECT_NEAR(got, expected, looser * tolerance * std::abs(expected) + 1e-12) << what;
    };
    expect_near(one.record.step_time_s, whole.record.step_time_s, "step");
    expect_near(one.result.step_time_s, whole.result.step_time_s, "step of the result");
    expect_near(one.record.step_time_low_s, whole.record.step_time_low_s, "interval", 10);
    expect_near(1 - one.record.idle_fraction, 1 - whole.record.idle_fraction, "busy");
    expect_near(one.result.utilization.mfu, whole.result.utilization.mfu, "MFU");
    expect_near(one.result.utilization.hfu, whole.result.utilization.hfu, "HFU");
    EXPECT_NEAR(static_cast<double>(one.memory.needed_bytes), static_cast<double>(whole.memory.needed_bytes), 4096);
    EXPECT_EQ(one.result.feasible, whole.result.feasible);
    ASSERT_EQ(one.record.ranks.size(), whole.record.ranks.size());
    for (std::size_t r = 0; r < whole.record.ranks.size(); ++r) {
        const program::RankRecord &got = one.record.ranks[r], &expected = whole.record.ranks[r];
        for (const program::Stream stream : program::kStreams) {
            // Receives are posted early, so their busy time depends on how far ranks run ahead.
            if (is_pipeline(stream)) continue;
            expect_near(static_cast<double>(got.streams[stream].busy_ps),
                        static_cast<double>(expected.streams[stream].busy_ps),
                        "busy time of " + std::string(program::name_of(stream)));
        }
        EXPECT_EQ(got.bytes_sent, expected.bytes_sent);
        EXPECT_EQ(got.collectives, expected.collectives);
        EXPECT_NEAR(static_cast<double>(got.memory_peak_bytes), static_cast<double>(expected.memory_peak_bytes), 4096);
    }
}

INSTANTIATE_TEST_SUITE_P(
    All, LongSteps,
    testing::Values(Case{"one_rank", Schedule::one_f_one_b, 1, 1, 64}, Case{"even", Schedule::one_f_one_b},
                    Case{"uneven", Schedule::one_f_one_b, 4, 1, 160, 10, 2e-3}, Case{"gpipe", Schedule::gpipe},
                    Case{"interleaved", Schedule::interleaved, 4, 2}, Case{"zero_bubble", Schedule::zb_h1},
                    Case{"zero_bubble_v", Schedule::zb_v, 4, 2}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(LongStep, StepsAboveTheInstructionLimitAreExtrapolated) {
    Case one{"", Schedule::one_f_one_b};
    EXPECT_FALSE(shorter_steps(plan_of_case(one)));
    one.micro_batches = 1 << 20;
    const Plan plan = plan_of_case(one);
    const auto steps = shorter_steps(plan);
    ASSERT_TRUE(steps);
    EXPECT_EQ(steps->few, 32);
    EXPECT_EQ(steps->more, 80);
    // With a million micro-batches the ramp is negligible, so the step time is proportional to their number.
    const topologies::Cluster cluster(plan.cluster);
    const Evaluation few = evaluate(program::lower(with_micro_batches(plan, 1000)), cluster);
    const Evaluation all = evaluate_from(*steps, plan, cluster);
    EXPECT_NEAR(all.result.step_time_s / few.result.step_time_s / (1 << 20) * 1000, 1, 5e-3);
    EXPECT_EQ(all.memory.needed_bytes, few.memory.needed_bytes);
}

}  // namespace
}  // namespace orrery::sim
