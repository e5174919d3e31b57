// The engine on lowered plans.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "sim/cost/roofline_cost.h"
#include "sim/cost/table_cost.h"
#include "sim/engine/critical_path.h"
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

Plan plan_of(const std::string& model, std::int64_t dp, std::int64_t tp, std::int64_t pp, std::int64_t micro_batches,
             Schedule schedule) {
    Plan plan;
    plan.name = "test";
    plan.model = models::load_model(model);
    plan.model.layers = 8;
    plan.cluster = topologies::load_cluster("dgx-h100", 16);
    plan.implementation = models::load_implementation("orrery");
    plan.parallelism.dp = dp;
    plan.parallelism.tp = tp;
    plan.parallelism.pp = pp;
    plan.parallelism.schedule = schedule;
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, pp);
    plan.training.sequence_length = 64;
    plan.training.global_batch_size = dp * micro_batches;
    plan.training.precision = program::precision_named("bf16");
    return plan;
}

/// Step time minus the m (F + B) that each stage computes, in units of F = I = W, with B = I + W.
std::int64_t bubble(std::int64_t pp, std::int64_t micro_batches, Schedule schedule, int steps) {
    constexpr std::int64_t kForward = 1'000'000'000;
    const Plan plan = plan_of("tiny-gpt", 1, 1, pp, micro_batches, schedule);
    topologies::ClusterSpec spec = plan.cluster;
    spec.device.launch_us.value = 0;
    const ActionTableCost cost(
        {{ActionKind::forward, Picoseconds(kForward)}, {ActionKind::backward, Picoseconds(2 * kForward)}});
    const RunRecord record =
        simulate(program::lower(plan), Cluster(spec), cost, TableCommunication(), {.steps = steps});
    const std::int64_t step = std::llround(record.step_time_s * kPicosecondsPerSecond);
    const std::int64_t rest = step - 3 * micro_batches * kForward;
    EXPECT_EQ(rest % kForward, 0);
    return rest / kForward;
}

TEST(LoweredPipeline, BubblesOfThePublishedTable) {
    for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
        for (const int steps : {1, 3}) {
            EXPECT_EQ(bubble(4, 8, schedule, steps), 9);
            EXPECT_EQ(bubble(8, 16, schedule, steps), 21);
        }
    }
}

RunRecord simulate_plan(const Plan& plan, SimulateOptions options) {
    const Cluster cluster(plan.cluster);
    const program::Program program = program::lower(plan);
    return simulate(program, cluster, RooflineCost(plan.cluster), NetworkCommunication(cluster), options);
}

TEST(Lowered, FullAndQuotientAgreeToThePicosecond) {
    for (const std::string model : {"tiny-gpt", "tiny-llama"}) {
        for (const bool sequence_parallel : {false, true}) {
            Plan plan = plan_of(model, 4, 2, 2, 4, Schedule::one_f_one_b);
            plan.parallelism.sequence_parallel = sequence_parallel;
            const RunRecord quotient = simulate_plan(plan, {.full = false});
            const RunRecord full = simulate_plan(plan, {.full = true});
            EXPECT_EQ(quotient.step_time_s, full.step_time_s);
            EXPECT_EQ(quotient.idle_fraction, full.idle_fraction);
            ASSERT_EQ(full.ranks.size(), 16U);
            EXPECT_EQ(quotient.ranks.size(), 2U);
            for (const program::RankRecord& rank : full.ranks) {
                const program::RankRecord& stand_in = quotient.ranks[rank.rank_class.position()];
                for (const program::Stream stream : program::kStreams) {
                    EXPECT_EQ(rank.streams[stream].busy_ps, stand_in.streams[stream].busy_ps);
                    EXPECT_EQ(rank.streams[stream].exposed_ps, stand_in.streams[stream].exposed_ps);
                }
            }
        }
    }
}

/// Plans of 16 ranks that use techniques beyond basic data, tensor and pipeline parallelism.
std::vector<Plan> varied_plans() {
    std::vector<Plan> plans;
    const auto add = [&](const std::string& name, std::int64_t dp, std::int64_t tp, std::int64_t pp, auto&& change) {
        Plan plan = plan_of("tiny-llama", dp, tp, pp, 8, Schedule::one_f_one_b);
        change(plan);
        plan.name = name;
        const std::int64_t stages = plan.parallelism.virtual_stages();
        plan.parallelism.stage_layers = program::even_stages(plan.model.layers, stages);
        plans.push_back(plan);
    };
    add("fsdp", 16, 1, 1, [](Plan& plan) { plan.parallelism.data_parallel = program::DataParallel::zero3; });
    add("sets of shards", 16, 1, 1, [](Plan& plan) {
        plan.parallelism.data_parallel = program::DataParallel::zero3;
        plan.parallelism.dp_shard = 4;
    });
    add("zero-1 over stages", 8, 1, 2,
        [](Plan& plan) { plan.parallelism.data_parallel = program::DataParallel::zero1; });
    add("context parallel", 4, 1, 2, [](Plan& plan) { plan.parallelism.cp = 2; });
    add("interleaved", 4, 1, 4, [](Plan& plan) {
        plan.parallelism.schedule = Schedule::interleaved;
        plan.parallelism.chunks = 2;
    });
    for (const Schedule schedule : {Schedule::zb_v, Schedule::dualpipe_v, Schedule::dualpipe}) {
        add(program::name_of(schedule), 2, 2, 4, [&](Plan& plan) {
            plan.parallelism.schedule = schedule;
            plan.parallelism.chunks = 2;
        });
    }
    add("zb-h1", 4, 1, 4, [](Plan& plan) { plan.parallelism.schedule = Schedule::zb_h1; });
    add("offloaded activations", 8, 2, 1, [](Plan& plan) { plan.training.memory.offload_layers = 2; });
    add("offloaded optimizer", 8, 2, 1, [](Plan& plan) { plan.training.memory.offload_optimizer = true; });
    add("numbered by stages", 4, 2, 2, [](Plan& plan) {
        using program::MeshAxis;
        plan.parallelism.order = {MeshAxis::pp, MeshAxis::tp, MeshAxis::cp, MeshAxis::ep, MeshAxis::dp};
        for (std::int64_t rank = 0; rank < 16; ++rank) plan.parallelism.placement.push_back(15 - rank);
    });
    return plans;
}

TEST(Lowered, VariedPlansAgreeToThePicosecondAndHaveCriticalPaths) {
    for (const Plan& plan : varied_plans()) {
        SCOPED_TRACE(plan.name);
        const RunRecord quotient = simulate_plan(plan, {.full = false, .record_spans = true});
        const RunRecord full = simulate_plan(plan, {.full = true, .record_spans = true});
        EXPECT_EQ(quotient.step_time_s, full.step_time_s);
        EXPECT_EQ(quotient.idle_fraction, full.idle_fraction);
        EXPECT_LT(quotient.ranks.size(), full.ranks.size());
        const program::Program program = program::lower(plan);
        const CriticalPath path = critical_path(program, quotient);
        EXPECT_EQ(path.length_ps, critical_path(program, full).length_ps);
        std::int64_t here = 0;
        for (const PathElement& element : path.elements) {
            EXPECT_EQ(element.from_ps, here);
            here = element.to_ps;
        }
        EXPECT_EQ(here, path.length_ps);
    }
}

TEST(Lowered, EveryInstructionHasItsSpan) {
    const Plan plan = plan_of("tiny-llama", 2, 2, 2, 3, Schedule::one_f_one_b);
    const program::Program program = program::lower(plan);
    const RunRecord record = simulate_plan(plan, {.record_spans = true});
    for (const program::RankRecord& rank : record.ranks) {
        const program::RankClass& source = program.classes[rank.rank_class];
        std::size_t instructions = 0;
        for (const program::Action& action : source.actions) {
            for (const program::Segment& segment : source.segment_lists[action.segments]) {
                instructions += program.bodies[segment.body].instructions.size();
            }
        }
        EXPECT_EQ(rank.spans.size(), instructions);
        for (const program::Span& span : rank.spans) {
            EXPECT_GE(span.ready_ps, 0);
            EXPECT_GE(span.begin_ps, span.ready_ps);
            EXPECT_GE(span.end_ps, span.begin_ps);
        }
    }
}

/// DeepSeek-V3's first blocks with its experts on 64 devices.
Plan with_experts(const char* implementation) {
    Plan plan = plan_of("deepseek-v3", 64, 1, 1, 2, Schedule::one_f_one_b);
    plan.implementation = models::load_implementation(implementation);
    plan.cluster = topologies::load_cluster("dgx-h100", 64);
    plan.parallelism.ep = 64;
    plan.training.sequence_length = 4096;
    return plan;
}

TEST(Lowered, TokensThatTravelOnceTakeLessTimeAndLessOfSharedLinks) {
    const auto times = [](Plan plan, bool narrow) {
        if (narrow) {
            plan.cluster.nodes_per_scalable_unit = 4;
            plan.cluster.fabric_shape.oversubscription = {4};
        }
        const RunRecord record = simulate_plan(plan, {});
        const RunRecord full = simulate_plan(plan, {.full = true});
        EXPECT_EQ(record.step_time_s, full.step_time_s);
        return record;
    };
    const auto on_ep = [](const RunRecord& record) {
        return static_cast<double>(record.ranks.front().streams[program::Stream::ep].busy_ps);
    };
    const Plan once = with_experts("megatron-core-flex"), copies = with_experts("megatron-core");
    const RunRecord fast = times(once, false), slow = times(copies, false);
    EXPECT_LT(fast.step_time_s, slow.step_time_s);
    const RunRecord fast_narrow = times(once, true), slow_narrow = times(copies, true);
    EXPECT_GT(on_ep(fast_narrow), 1.5 * on_ep(fast));  // four NICs share an uplink
    // Both cross the uplinks in proportion to what leaves a node: the distinct nodes of a token or its 8 experts.
    const double nodes = models::expected_places(models::routing_of(once.model.moe), 8);
    EXPECT_NEAR(on_ep(fast_narrow) / on_ep(slow_narrow), nodes / 8, 0.05);
    // Bytes of the step, NIC and port, relative to one copy for each of 8 experts.
    const std::vector<program::StreamVolume> volumes = program::volumes(program::lower(once), 0);
    const auto tokens = std::find_if(volumes.begin(), volumes.end(), [](const program::StreamVolume& volume) {
        return volume.stream == program::Stream::ep;
    });
    ASSERT_NE(tokens, volumes.end());
    const double ranks = models::expected_places(models::routing_of(once.model.moe), 64);
    EXPECT_NEAR(static_cast<double>(tokens->wire_bytes) / static_cast<double>(tokens->message_bytes),
                (nodes + ranks) / 8 * 7 / 8, 1e-3);
    EXPECT_EQ(fast.ranks.front().bytes_sent[program::Stream::ep], tokens->wire_bytes);
}

}  // namespace
}  // namespace orrery::sim
