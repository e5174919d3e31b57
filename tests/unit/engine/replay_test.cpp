// Simulations that replay the durations of a record.
#include <gtest/gtest.h>

#include "core/error.h"
#include "sim/cost/roofline_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "tests/unit/program/random_plans.h"

namespace orrery::sim {
namespace {

using program::RunRecord;
using program::Span;

/// `kernels`: collectives take compute units and memory bandwidth from concurrent computation. Steps then need not
/// repeat to the picosecond, and the record does not show how earlier steps differed.
RunRecord simulated(const program::Program& program, bool kernels) {
    topologies::ClusterSpec spec = program.plan->cluster;
    if (!kernels) spec.device.collective_kernels.reset();
    const topologies::Cluster cluster(spec);
    return simulate(program, cluster, RooflineCost(spec), NetworkCommunication(cluster),
                    {.full = true, .record_spans = true});
}

/// The first legal plan of the seed with at most 16 ranks.
program::Program random_program(std::uint64_t seed) {
    program::samples::RandomPlans plans(seed);
    while (true) {
        const program::Plan plan = plans.make();
        if (plan.parallelism.world_size() > 16) continue;
        try {
            program::check_plan(plan, plan.name);
        } catch (const InputError&) {
            continue;
        }
        return program::lower(plan);
    }
}

class Replays : public testing::TestWithParam<std::uint64_t> {};

TEST_P(Replays, GiveTheTimesOfTheRecord) {
    const program::Program program = random_program(GetParam());
    SCOPED_TRACE(program::to_json_text(*program.plan));
    const RunRecord record = simulated(program, false);
    const RunRecord replayed =
        replay(program, program::durations_of(program, record, "record"), {.record_spans = true});
    EXPECT_EQ(replayed.step_time_s, record.step_time_s);
    ASSERT_EQ(replayed.ranks.size(), record.ranks.size());
    for (std::size_t rank = 0; rank < record.ranks.size(); ++rank) {
        ASSERT_EQ(replayed.ranks[rank].spans.size(), record.ranks[rank].spans.size());
        for (std::size_t i = 0; i < record.ranks[rank].spans.size(); ++i) {
            const Span& got = replayed.ranks[rank].spans[i];
            const Span& wanted = record.ranks[rank].spans[i];
            ASSERT_EQ(program::key_of(program, record.ranks[rank].rank_class, got),
                      program::key_of(program, record.ranks[rank].rank_class, wanted));
            ASSERT_EQ(got.begin_ps, wanted.begin_ps) << rank << " " << i;
            ASSERT_EQ(got.end_ps, wanted.end_ps) << rank << " " << i;
        }
    }
}

TEST_P(Replays, IncludeContentionBetweenKernels) {
    const program::Program program = random_program(GetParam());
    SCOPED_TRACE(program::to_json_text(*program.plan));
    const RunRecord record = simulated(program, true);
    const RunRecord replayed =
        replay(program, program::durations_of(program, record, "record"), {.record_spans = true});
    EXPECT_NEAR(replayed.step_time_s / record.step_time_s, 1.0, 0.01);
}
INSTANTIATE_TEST_SUITE_P(Seeds, Replays, testing::Range(std::uint64_t{0}, std::uint64_t{40}));

}  // namespace
}  // namespace orrery::sim
