// Blocks whose two passes take turns, in the engine: the tokens of one pass travel while the other computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/cost/roofline_cost.h"
#include "sim/cost/table_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "tests/unit/engine/table_communication.h"

namespace orrery::sim {
namespace {

using program::ActionKind;
using program::Plan;
using program::RunRecord;
using program::Schedule;
using topologies::Cluster;

/// A model of experts on two ranks a stage, padded to capacity, so that only tokens travel and no counts.
Plan plan_of(Schedule schedule, std::int64_t pp, std::int64_t layers, std::int64_t micro_batches, bool overlaps) {
    Plan plan;
    plan.name = "test";
    plan.model = models::load_model("mixtral-8x7b");
    plan.model.layers = layers;
    plan.cluster = topologies::load_cluster("dgx-h100", 8);
    plan.implementation = models::load_implementation("orrery");
    program::Parallelism& p = plan.parallelism;
    p = {.dp = 2,
         .pp = pp,
         .ep = 2,
         .overlaps_experts = overlaps,
         .schedule = schedule,
         .chunks = schedule == Schedule::one_f_one_b ? 1 : 2,
         .data_parallel = program::DataParallel::zero1};
    p.stage_layers = program::even_stages(layers, p.virtual_stages());
    plan.training.sequence_length = 4096;
    plan.training.global_batch_size = p.dp * micro_batches;
    plan.training.precision = program::precision_named("bf16");
    plan.training.expert_load.capacity_factor = 1;
    plan.training.expert_load.pads_to_capacity = true;
    return plan;
}

constexpr std::int64_t kPart = 1'000'000'000;  // ps: the computation between two all-to-alls

/// Step time if each part of a pass takes kPart and an all-to-all `travel`, in ps.
std::int64_t overlapped_step_ps(std::int64_t layers, std::int64_t micro_batches, std::int64_t travel, bool overlaps) {
    const Plan plan = plan_of(Schedule::one_f_one_b, 1, layers, micro_batches, overlaps);
    topologies::ClusterSpec spec = plan.cluster;
    spec.device.launch_us.value = 0;
    const Picoseconds pass((2 * layers + 1) * kPart);  // two all-to-alls a layer
    const RunRecord record =
        simulate(program::lower(plan), Cluster(spec),
                 ActionTableCost({{ActionKind::forward, pass}, {ActionKind::backward, pass}}),
                 TableCommunication({{{program::GroupAxis::ep, program::CommKind::all_to_all}, Picoseconds(travel)}}));
    return std::llround(record.step_time_s * kPicosecondsPerSecond);
}

// One all-to-all is under way at a time. In a block they wait for the first part and are awaited by the last one; in
// between, the longer of computation and communication decides. The first forward and the last backward have no other
// pass beside them.
TEST(ExpertOverlap, ABlockTakesTheLongerOfComputationAndCommunication) {
    constexpr std::int64_t kMicroBatches = 4;
    for (const std::int64_t layers : {1, 3}) {
        const std::int64_t parts = 2 * layers + 1;
        for (const std::int64_t travel : {std::int64_t{0}, kPart / 2, kPart, 2 * kPart, 5 * kPart}) {
            const std::int64_t alone = parts * kPart + 2 * layers * travel;
            const std::int64_t computation = 2 * parts * kPart, communication = 4 * layers * travel;
            const std::int64_t block = std::max(computation, 2 * kPart + communication);
            EXPECT_EQ(overlapped_step_ps(layers, kMicroBatches, travel, false), 2 * kMicroBatches * alone);
            EXPECT_EQ(overlapped_step_ps(layers, kMicroBatches, travel, true), 2 * alone + (kMicroBatches - 1) * block)
                << layers << " layers, " << travel << " ps";
        }
    }
}

RunRecord simulate_plan(const Plan& plan, SimulateOptions options = {}) {
    const Cluster cluster(plan.cluster);
    const program::Program program = program::lower(plan);
    program::validate(program);
    return simulate(program, cluster, RooflineCost(plan.cluster), NetworkCommunication(cluster), options);
}

TEST(ExpertOverlap, HidesTokensInEveryPipelineThatHasPairs) {
    for (const Schedule schedule :
         {Schedule::one_f_one_b, Schedule::interleaved, Schedule::dualpipe, Schedule::dualpipe_v}) {
        SCOPED_TRACE(program::name_of(schedule));
        const std::int64_t pp = schedule == Schedule::one_f_one_b ? 1 : 2;
        const RunRecord apart = simulate_plan(plan_of(schedule, pp, 4, 16, false));
        const RunRecord together = simulate_plan(plan_of(schedule, pp, 4, 16, true));
        EXPECT_LT(together.step_time_s, apart.step_time_s);
        for (std::size_t rank = 0; rank < apart.ranks.size(); ++rank) {
            const program::StreamTime before = apart.ranks[rank].streams[program::Stream::ep];
            const program::StreamTime after = together.ranks[rank].streams[program::Stream::ep];
            EXPECT_LT(after.exposed_ps, before.exposed_ps / 2);
        }
        const RunRecord full = simulate_plan(plan_of(schedule, pp, 4, 16, true), {.full = true});
        EXPECT_EQ(full.step_time_s, together.step_time_s);
    }
}

}  // namespace
}  // namespace orrery::sim
