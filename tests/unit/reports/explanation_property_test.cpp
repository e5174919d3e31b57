// Properties of explanations of simulated random plans that mix all techniques.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "reports/explanation.h"
#include "reports/summary.h"
#include "sim/cost/roofline_cost.h"
#include "sim/engine/critical_path.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "tests/unit/program/random_plans.h"

namespace orrery::reports {
namespace {

/// Enough for steps to repeat exactly.
constexpr int kSteps = 20;

std::int64_t sum_of(const PartTimes& times) {
    return std::accumulate(times.begin(), times.end(), std::int64_t{0});
}

std::int64_t computing(const PartTimes& times) {
    std::int64_t sum = 0;
    for (const TimePart part : kTimeParts) sum += is_compute(part) ? times[part] : 0;
    return sum;
}

/// Without `kernels`, collectives take no resources from concurrent computation, and steps repeat exactly.
program::RunRecord simulated(const program::Program& program, bool full = false, bool kernels = true) {
    topologies::ClusterSpec spec = program.plan->cluster;
    if (!kernels) spec.device.collective_kernels.reset();
    const topologies::Cluster cluster(spec);
    return sim::simulate(program, cluster, sim::RooflineCost(spec), sim::NetworkCommunication(cluster),
                         {.full = full, .steps = kSteps, .record_spans = true});
}

Explanation explained(const program::Program& program, const program::RunRecord& record) {
    std::vector<PathElement> path;
    for (const sim::PathElement& one : sim::critical_path(program, record).elements) {
        const TimePart delay = one.cause == sim::PathCause::earlier_step ? TimePart::idle : TimePart::host;
        path.push_back({one.record, one.span, delay, one.from_ps, one.start_ps, one.to_ps});
    }
    const sim::RooflineCost cost(program.plan->cluster);
    return explain(
        program, record, [&](const models::Operator& op) { return cost.operator_seconds(op); }, path);
}

/// `slack`: tolerance for steps that do not repeat exactly.
void expect_lawful(const Breakdown& one, std::int64_t step, std::int64_t slack = 0) {
    EXPECT_EQ(sum_of(one.parts), step);
    EXPECT_LE(one.parts[TimePart::idle], slack) << "every idle interval has a cause";
    for (const TimePart part : kTimeParts) {
        EXPECT_GE(one.parts[part], 0) << name_of(part);
        EXPECT_GE(one.waiting[part], 0) << name_of(part);
        EXPECT_LE(one.waiting[part], one.parts[part]) << name_of(part);
        EXPECT_GE(one.hidden[part], 0) << name_of(part);
        EXPECT_LE(one.hidden[part], one.busy[part]) << name_of(part);
    }
}

/// Mean busy time over the class's ranks, rounded down.
std::int64_t busy_of(program::Stream stream, const program::RunRecord& record, program::ClassIndex rank_class) {
    std::int64_t busy = 0, ranks = 0;
    for (const program::RankRecord& rank : record.ranks) {
        if (rank.rank_class != rank_class) continue;
        busy += rank.streams[stream].busy_ps * rank.multiplicity;
        ranks += rank.multiplicity;
    }
    return busy / ranks;
}

void expect_peak_explained(const program::MemoryFootprint& memory, const program::PeakContents& peak) {
    std::int64_t bytes = memory.fixed();
    for (const program::LiveSlots& slots : peak.slots) {
        EXPECT_GT(slots.count, 0) << slots.name;
        EXPECT_GT(slots.bytes, 0) << slots.name;
        bytes += slots.bytes;
    }
    EXPECT_EQ(bytes, memory.live_peak);
}

/// Calls `check` with `plans` lowered random plans.
template <typename Check>
void for_random_plans(std::uint64_t seed, int plans, Check&& check) {
    program::samples::RandomPlans random(seed);
    for (int made = 0; made < plans; ++made) {
        const program::Plan plan = random.make_legal();
        SCOPED_TRACE(plan.name + ": " + strategy_of(plan) + ", " + plan.implementation.name);
        check(program::lower(plan));
        if (testing::Test::HasFailure()) return;
    }
}

TEST(ExplanationOfRandomPlans, PartsSumToTheStepTime) {
    bool kernels = false;  // alternates
    for_random_plans(7, 400, [&](const program::Program& program) {
        kernels = !kernels;
        const program::RunRecord record = simulated(program, false, kernels);
        const Explanation explanation = explained(program, record);
        const auto step = static_cast<std::int64_t>(std::llround(record.step_time_s * 1e12));
        const std::int64_t slack = kernels ? step / 50 : 0;
        expect_lawful(explanation.time.mean, step, slack);
        for (const ClassBreakdown& one : explanation.time.classes) {
            expect_lawful(one.mean, step, slack);
            // Waits of the compute stream for the side stream count as the work of the side stream.
            const std::int64_t busy = busy_of(program::Stream::compute, record, one.rank_class);
            const std::int64_t side = busy_of(program::Stream::side, record, one.rank_class);
            EXPECT_GE(computing(one.mean.parts), busy - slack) << one.name;
            EXPECT_LE(computing(one.mean.parts), busy + side + slack) << one.name;
        }
        EXPECT_EQ(sum_of(explanation.path.parts), explanation.path.length_ps);
        for (const program::ClassIndex c : program.classes.indices()) {
            expect_peak_explained(program.classes[c].memory, explanation.memory[c.position()].peak);
        }
    });
}

TEST(ExplanationOfRandomPlans, FullSimulationsGiveTheSameExplanation) {
    for_random_plans(8, 40, [](const program::Program& program) {
        const PartTable table(program, [](const models::Operator& op) { return op.bytes_read; });
        const StepBreakdown classes = breakdown_of(program, simulated(program), table);
        const StepBreakdown full = breakdown_of(program, simulated(program, true), table);
        EXPECT_EQ(classes.mean.parts, full.mean.parts);
        EXPECT_EQ(classes.mean.hidden, full.mean.hidden);
        ASSERT_EQ(classes.classes.size(), full.classes.size());
        for (std::size_t c = 0; c < full.classes.size(); ++c) {
            EXPECT_EQ(classes.classes[c].ranks, full.classes[c].ranks);
            EXPECT_EQ(classes.classes[c].mean.parts, full.classes[c].mean.parts);
        }
    });
}

}  // namespace
}  // namespace orrery::reports
