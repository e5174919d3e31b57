// Compares steps extrapolated from two shorter ones with the same steps simulated whole.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sim/planner/timing.h"
#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::Schedule;

struct LongStep {
    const char* name;
    Schedule schedule;
    std::int64_t pp = 4, chunks = 1, micro_batches = 160;
    std::int64_t largest_stage = 0;  // 0: even
    double tolerance = 1e-4;
    bool fuses = true;  // as the implementation does
};

Plan plan_of_case(const LongStep& one) {
    PlanRequest request = request_for("llama2-7b", one.pp * 2, one.micro_batches, 2048);
    if (!one.fuses) request = unfused(request);
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

class LongSteps : public testing::TestWithParam<LongStep> {};

TEST_P(LongSteps, ArePredictedAsIfSimulatedWhole) {
    const Plan plan = plan_of_case(GetParam());
    ASSERT_EQ(plan.micro_batches(), GetParam().micro_batches);
    const topologies::Cluster cluster(plan.cluster);
    const Evaluation whole = evaluate(program::lower(plan), cluster, {.derivatives = true});
    const Evaluation one = evaluate_from(extrapolated_from(plan), plan, cluster, {.derivatives = true});
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

INSTANTIATE_TEST_SUITE_P(All, LongSteps,
                         testing::Values(LongStep{"one_rank", Schedule::one_f_one_b, 1, 1, 64},
                                         LongStep{"even", Schedule::one_f_one_b},
                                         LongStep{"uneven", Schedule::one_f_one_b, 4, 1, 160, 10, 2e-3},
                                         LongStep{"gpipe", Schedule::gpipe, 4, 1, 160, 0, 1e-4, false},
                                         LongStep{"interleaved", Schedule::interleaved, 4, 2},
                                         LongStep{"zero_bubble", Schedule::zb_h1},
                                         LongStep{"zero_bubble_v", Schedule::zb_v, 4, 2}),
                         [](const auto& one) { return std::string(one.param.name); });

TEST(LongStep, StepsAboveTheInstructionLimitAreExtrapolated) {
    LongStep one{"", Schedule::one_f_one_b};
    EXPECT_FALSE(shorter_steps(plan_of_case(one)));
    one.micro_batches = 1 << 20;
    const Plan plan = plan_of_case(one);
    const auto steps = shorter_steps(plan);
    ASSERT_TRUE(steps);
    EXPECT_EQ(steps->few, 48);
    EXPECT_EQ(steps->more, 80);
    // With a million micro-batches the ramp is negligible, so the step time is proportional to their number.
    const topologies::Cluster cluster(plan.cluster);
    const Evaluation few = evaluate(program::lower(with_micro_batches(plan, 1000)), cluster);
    const Evaluation all = evaluate_from(*steps, plan, cluster);
    EXPECT_NEAR(all.result.step_time_s / few.result.step_time_s / (1 << 20) * 1000, 1, 5e-3);
    EXPECT_EQ(all.memory.needed_bytes, few.memory.needed_bytes);
}

/// Random plans of the request for which a brief step is worth its time, none of them large.
std::vector<Plan> draw_long(PlanRequest request, int count) {
    allow_full_space(request);
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    const CandidateList list = list_candidates(request);
    std::mt19937 random(11);
    std::vector<Plan> plans;
    while (static_cast<int>(plans.size()) < count) {
        const Choice choice = draw_choice(list, random);
        Plan plan = plan_of(request, choice);
        const bool is_small = choice.tp <= 16 && choice.pp * choice.chunks * plan.micro_batches() <= 4000;
        if (is_small && has_brief(plan)) plans.push_back(std::move(plan));
    }
    return plans;
}

TEST(BriefSteps, AreBelowTheStepAndCloseToIt) {
    double sum = 0;
    int count = 0;
    for (const PlanRequest& request :
         {request_for("llama3-70b", 256, 1024, 4096, "megatron-core"),
          request_for("deepseek-v3", 256, 1920, 4096, "megatron-core"),
          request_for("llama3-70b", 64, 512, 4096, "torch-fsdp2"), request_for("llama3-8b", 32, 512, 4096),
          request_for("mixtral-8x7b", 32, 512, 4096), request_for("gpt3-175b", 64, 512, 2048, "deepspeed")}) {
        const topologies::Cluster cluster(request.cluster);
        for (const Plan& plan : draw_long(request, 12)) {
            const RooflineCost cost(request.cluster, plan.rates);
            const double step = timed(plan, cluster, cost).step_time_s, least = brief_step_s(plan, cluster, cost);
            EXPECT_LE(least, step) << plan.implementation.name << " " << plan.name;
            sum += least / step;
            ++count;
        }
    }
    EXPECT_GT(sum / count, 0.985);
}

TEST(BriefSteps, AreTakenOnlyOfStepsWithManyMicroBatchesForTheirDepth) {
    LongStep one{"", Schedule::one_f_one_b};
    EXPECT_TRUE(has_brief(plan_of_case(one)));
    one.micro_batches = 47;
    EXPECT_FALSE(has_brief(plan_of_case(one)));
    one.micro_batches = 48;  // 12 times the depth; the two short ones have 6 times the depth together
    EXPECT_TRUE(has_brief(plan_of_case(one)));
    Plan plan = plan_of_case(one);
    plan.parallelism.vocabulary_parallel = program::VocabularyParallel::one_barrier;
    EXPECT_FALSE(has_brief(plan));
}

}  // namespace
}  // namespace orrery::sim
