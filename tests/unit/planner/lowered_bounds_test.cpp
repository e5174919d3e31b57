#include "sim/planner/lowered_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/units.h"
#include "sim/planner/timing.h"
#include "sim/program/schedule.h"
#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::Plan;
using program::PlanResult;
using program::Recompute;
using program::Schedule;

struct Shape {
    const char* model = "gpt2";
    const char* cluster = "dgx-h100";
    std::int64_t dp = 1, tp = 1, pp = 1, micro_batches = 8, sequence = 512;
    bool sequence_parallel = false;
    Schedule schedule = Schedule::one_f_one_b;
    std::vector<std::int64_t> stage_layers;  // empty: even
    std::int64_t chunks = 1;
};

Plan make_plan(const Shape& shape) {
    PlanRequest request = request_for(shape.model, shape.dp * shape.tp * shape.pp, 1, shape.sequence);
    Plan plan{.name = "plan", .model = request.model, .implementation = request.implementation};
    plan.cluster = topologies::load_cluster(shape.cluster, request.devices);
    plan.parallelism = {.dp = shape.dp,
                        .tp = shape.tp,
                        .pp = shape.pp,
                        .sequence_parallel = shape.sequence_parallel,
                        .schedule = shape.schedule,
                        .stage_layers = shape.stage_layers};
    plan.parallelism.chunks = shape.chunks;
    if (shape.stage_layers.empty()) {
        plan.parallelism.stage_layers = program::even_stages(plan.model.layers, plan.parallelism.virtual_stages());
    }
    plan.training = request.training;
    plan.training.global_batch_size = shape.dp * shape.micro_batches;
    return plan;
}

RooflineCost cost_of(const Plan& plan) {
    return RooflineCost(plan.cluster);
}

TEST(LoweredBounds, MemoryEqualsThatOfTheWholePlan) {
    struct Case {
        Schedule schedule{};
        std::int64_t chunks = 1;
    };
    for (const auto& [schedule, chunks] :
         {Case{Schedule::naive}, Case{Schedule::gpipe}, Case{Schedule::one_f_one_b}, Case{Schedule::interleaved, 2},
          Case{Schedule::interleaved, 3}, Case{Schedule::zb_h1}, Case{Schedule::zb_h2}, Case{Schedule::zb_v, 2},
          Case{Schedule::dualpipe, 2}, Case{Schedule::dualpipe_v, 2}}) {
        for (const std::int64_t pp : {1, 2, 3, 4}) {
            for (const std::int64_t micro_batches : {1, 2, 4, 5, 6, 7, 8, 9, 10, 12, 15, 24, 33}) {
                Shape shape{.dp = 2, .tp = 2, .pp = pp, .micro_batches = micro_batches, .schedule = schedule};
                shape.chunks = chunks;
                if (pp == 3) shape.tp = 4, shape.dp = 2;
                Plan plan = make_plan(shape);
                if (!program::schedule_problem(program::schedule_shape(plan)).empty()) continue;
                EXPECT_EQ(lowered_memory_bytes(plan), peak_of(plan))
                    << program::name_of(schedule) << ", " << pp << " stages, " << micro_batches << " micro-batches";
                plan.implementation = models::load_implementation("torch-fsdp2");  // an allocator
                EXPECT_NEAR(static_cast<double>(lowered_memory_bytes(plan)), static_cast<double>(peak_of(plan)), 64)
                    << program::name_of(schedule) << ", " << pp << " stages, " << micro_batches << " micro-batches";
                plan.cluster.device.host_runs_compute = true;  // arenas instead of an allocator
                EXPECT_EQ(lowered_memory_bytes(plan), peak_of(plan));
            }
        }
    }
}

TEST(LoweredBounds, StepBoundIsBelowTheSimulatedStep) {
    for (const Shape& shape :
         {Shape{.micro_batches = 4}, Shape{.tp = 2, .pp = 4}, Shape{.dp = 4, .pp = 2, .micro_batches = 3},
          Shape{.pp = 4, .schedule = Schedule::gpipe}, Shape{.pp = 4, .stage_layers = {1, 2, 8, 1}},
          Shape{.model = "llama3-8b", .dp = 2, .tp = 4, .pp = 4, .micro_batches = 20, .sequence_parallel = true}}) {
        const Plan plan = make_plan(shape);
        const RooflineCost cost = cost_of(plan);
        const double step = timed(plan, topologies::Cluster(plan.cluster), cost).step_time_s;
        const double least = lowered_bounds(plan, topologies::Cluster(plan.cluster), cost).least_step_s;
        EXPECT_LE(least, step) << plan.parallelism.pp << " stages";
        EXPECT_GT(least, 0.3 * step);
    }
    // For a single rank without launch overhead the bound is exact.
    Plan alone = make_plan({.micro_batches = 5});
    alone.cluster.device.launch_us.value = 0;
    const double step = timed(alone, topologies::Cluster(alone.cluster), cost_of(alone)).step_time_s;
    EXPECT_NEAR(lowered_bounds(alone, topologies::Cluster(alone.cluster), cost_of(alone)).least_step_s, step,
                2e-6 * step);
}

TEST(Timing, ExtrapolationAgreesWithTheWholeSimulation) {
    struct Case {
        Shape shape;
        double tolerance = 1e-4;
    };
    // The last two need many times their depth to reach steady state: 80 layers over 11 and over 32 stages.
    for (const auto& [shape, tolerance] :
         {Case{{.micro_batches = 100}}, Case{{.tp = 2, .pp = 4, .micro_batches = 200}},
          Case{{.dp = 2, .pp = 4, .micro_batches = 150, .stage_layers = {2, 3, 4, 3}}},
          Case{{.dp = 2, .pp = 4, .micro_batches = 150, .stage_layers = {5, 1, 4, 2}}},
          Case{{.pp = 4, .micro_batches = 130, .schedule = Schedule::gpipe, .stage_layers = {4, 2, 3, 3}}},
          Case{{.model = "llama3-8b", .dp = 2, .tp = 4, .pp = 12, .micro_batches = 400, .sequence_parallel = true},
               1e-3},
          Case{{.model = "llama3-70b",
          .dp = 4,
          .tp = 4,
          .pp = 11,
          .micro_batches = 453,
          .sequence = 1024,
          .sequence_parallel = true},
               2e-3},
          Case{{.model = "llama3-70b",
          .cluster = "dgx-a100",
          .dp = 4,
          .tp = 4,
          .pp = 32,
          .micro_batches = 1293,
          .sequence_parallel = true},
               2e-3}}) {
        const Plan plan = make_plan(shape);
        ASSERT_FALSE(is_simulated_whole(plan));
        const topologies::Cluster cluster(plan.cluster);
        const PlanResult quick = timed(plan, cluster, cost_of(plan));
        const PlanResult whole = evaluate(program::lower(plan), cluster).result;
        EXPECT_NEAR(quick.step_time_s / whole.step_time_s, 1, tolerance) << shape.model << " " << shape.pp;
        EXPECT_NEAR(quick.idle_fraction, whole.idle_fraction, tolerance) << shape.model << " " << shape.pp;
        EXPECT_NEAR(quick.exposed_communication_s, whole.exposed_communication_s, tolerance * whole.step_time_s);
    }
}

/// Experts that are sharded within a node exchange tokens and gather them on one stream, and the gather holds more of
/// the compute units.
TEST(LoweredBounds, CommunicationDelaysComputationOnlyWhileItRuns) {
    const PlanRequest request = request_for("mixtral-8x7b", 32, 32, 4096);
    const topologies::Cluster cluster(request.cluster);
    const Choice choice{.dp = 1, .tp = 8, .pp = 4, .ep = 2, .etp = 4, .sequence_parallel = true, .micro_batch = 2};
    const Plan plan = plan_of(request, choice);
    const double step = timed(plan, cluster, cost_of(plan)).step_time_s;
    const double least = lowered_bounds(plan, cluster, cost_of(plan)).least_step_s;
    EXPECT_LE(least, step);
    EXPECT_GT(least, 0.97 * step);
}

}  // namespace
}  // namespace orrery::sim
