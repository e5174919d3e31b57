// Simulating a quotient of the job gives the same times as simulating every rank, to the picosecond.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <tuple>

#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/engine/symmetry.h"
#include "tests/unit/engine/hand_made.h"
#include "tests/unit/engine/random_program.h"

namespace orrery::sim {
namespace {

using MadeJob = hand_made::Job;
using program::RunRecord;

/// Compares both simulations; returns the number of ranks that the quotient saves.
std::size_t expect_equal(const program::Program& program, const topologies::Cluster& cluster,
                         const CommunicationCost& communication, std::uint64_t seed, int steps) {
    const topologies::ClusterSpec& spec = cluster.spec();
    const hand_made::HashCost cost(seed, 1000);
    SimulateOptions options{.full = false, .steps = steps, .record_spans = true};
    const RunRecord quotient = simulate(program, cluster, cost, communication, options);
    const RunRecord again = simulate(program, cluster, cost, communication, options);
    options.full = true;
    const RunRecord full = simulate(program, cluster, cost, communication, options);

    EXPECT_EQ(full.step_time_s, quotient.step_time_s);
    EXPECT_EQ(full.idle_fraction, quotient.idle_fraction);
    EXPECT_EQ(static_cast<std::int64_t>(full.ranks.size()), program.world_size());
    EXPECT_EQ(again.ranks.size(), quotient.ranks.size());
    for (std::size_t r = 0; r < quotient.ranks.size(); ++r) {
        const std::vector<program::Span>& spans = quotient.ranks[r].spans;
        EXPECT_EQ(spans.size(), again.ranks[r].spans.size());
        for (std::size_t s = 0; s < spans.size(); ++s) EXPECT_EQ(spans[s].end_ps, again.ranks[r].spans[s].end_ps);
    }
    const Quotient symmetry = hand_made::quotient_of(program, spec);
    for (std::size_t rank = 0; rank < full.ranks.size(); ++rank) {
        const program::RankRecord& real = full.ranks[rank];
        const program::RankRecord& stand_in = quotient.ranks[symmetry.colour_of[rank].position()];
        EXPECT_EQ(real.rank_class, stand_in.rank_class);
        for (const program::Stream stream : program::kStreams) {
            EXPECT_EQ(real.streams[stream].busy_ps, stand_in.streams[stream].busy_ps);
            EXPECT_EQ(real.streams[stream].exposed_ps, stand_in.streams[stream].exposed_ps);
        }
        EXPECT_EQ(real.spans.size(), stand_in.spans.size());
        using Place = std::tuple<program::ActionIndex, program::SegmentIndex, program::InstructionIndex>;
        std::map<Place, std::array<std::int64_t, 3>> times;
        for (const program::Span& span : real.spans) {
            times[{span.action, span.segment, span.instruction}] = {span.ready_ps, span.begin_ps, span.end_ps};
        }
        for (const program::Span& span : stand_in.spans) {
            const std::array<std::int64_t, 3> expected = {span.ready_ps, span.begin_ps, span.end_ps};
            EXPECT_EQ((times.at({span.action, span.segment, span.instruction})), expected);
        }
    }
    return full.ranks.size() - quotient.ranks.size();
}

std::size_t expect_equal(const program::Program& program, const topologies::ClusterSpec& spec, std::uint64_t seed,
                         int steps) {
    const topologies::Cluster cluster(spec);
    return expect_equal(program, cluster, hand_made::HashCommunication(spec, seed, 3000), seed, steps);
}

TEST(Equality, EveryRankEqualsItsRepresentative) {
    const RandomStream random(11, "jobs");
    std::uint64_t draw = 0;
    const auto pick = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random.below(draw++, bound)); };
    std::size_t merged = 0;
    for (int round = 0; round < 150 && !HasFailure(); ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        MadeJob job;
        job.tp = 1 << pick(3);
        job.dp = 1 + pick(4);
        job.pp = 1 + pick(4);
        job.micro_batches = 1 + pick(5);
        job.layers = 1 + pick(3);
        job.schedule = pick(2) == 0 ? program::Schedule::gpipe : program::Schedule::one_f_one_b;
        job.tied_embeddings = pick(2) == 0;
        job.norms_over_tp = pick(2) == 0;
        const program::Program program = hand_made::make_program(job);
        const std::int64_t per_node = 1 + pick(8);
        const std::int64_t nodes = (program.world_size() + per_node - 1) / per_node;
        topologies::ClusterSpec spec = pick(2) == 0
                                           ? hand_made::gpu_cluster(nodes, per_node, 1 + pick(2) * (per_node - 1))
                                           : hand_made::cpu_cluster(nodes, per_node, 1 + pick(4));
        spec.device.launch_us.value = pick(2) == 0 ? 0.0 : 0.0003;
        if (pick(3) == 0) spec.slow_devices = {{pick(static_cast<std::uint64_t>(spec.device_count())), 0.75}};
        merged += expect_equal(program, spec, static_cast<std::uint64_t>(round), static_cast<int>(1 + pick(3)));
    }
    EXPECT_GT(merged, 300U);  // quotients are smaller than the jobs
}

TEST(Equality, HoldsForAnyStreamsAxesMeshOrdersAndPlacements) {
    std::size_t merged = 0;
    for (std::uint64_t seed = 0; seed < 250 && !HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const hand_made::RandomJob job = hand_made::random_job(seed);
        merged += expect_equal(job.program, job.cluster, seed, static_cast<int>(1 + seed % 3));
    }
    EXPECT_GT(merged, 500U);
}

/// 16 nodes of 2 GPUs, on fabrics where routes between nodes differ to various degrees.
std::vector<topologies::ClusterSpec> clusters_of_16_nodes() {
    topologies::ClusterSpec rails = topologies::load_cluster("dgx-h100", 8);
    rails.devices_per_node = rails.nics_per_node = 2;
    rails.nodes = 16;
    rails.nodes_per_scalable_unit = 2;
    rails.fabric_shape = {};
    topologies::ClusterSpec pods = rails;
    pods.fabric_shape.radix = 8;  // pods of two units
    topologies::ClusterSpec tree = rails;
    tree.fabric = topologies::FabricKind::fat_tree;
    tree.fabric_shape.levels = 3;
    tree.fabric_shape.radix = 8;
    topologies::ClusterSpec torus = rails;
    torus.fabric = topologies::FabricKind::torus;
    torus.fabric_shape.dimensions = {4, 4};
    topologies::ClusterSpec fly = rails;
    fly.fabric = topologies::FabricKind::dragonfly;
    fly.fabric_shape.groups = 4;
    fly.fabric_shape.routers_per_group = 2;
    fly.fabric_shape.nodes_per_router = 2;
    fly.fabric_shape.global_links_per_router = 2;
    topologies::ClusterSpec slower = rails;
    slower.overrides = {{"nic", 5, 1, 0.125}, {"leaf 6 - spine 1", -1, -1, 0}};
    topologies::ClusterSpec mesh = rails;
    mesh.node_switches = 0;
    mesh.inside.nvlink_pairs = {{0, 1, 3}};
    return {rails, pods, tree, torus, fly, slower, mesh};
}

TEST(Equality, HoldsOnEveryFabricAndWithDegradedLinks) {
    std::vector<std::size_t> merged;
    for (const topologies::ClusterSpec& spec : clusters_of_16_nodes()) {
        SCOPED_TRACE(name_of(spec.fabric) + " with " + std::to_string(spec.overrides.size()) + " overrides");
        MadeJob job;
        job.tp = 4;
        job.dp = 4;
        job.pp = 2;
        const program::Program program = hand_made::make_program(job);
        const topologies::Cluster cluster(spec);
        const NetworkCommunication communication(cluster);
        merged.push_back(expect_equal(program, cluster, communication, 3, 1));
    }
    EXPECT_GT(merged.front(), 0U);  // if all pairs are alike, the quotient is smaller than the job
}

TEST(Equality, ADegradedLinkOfOneGroupSlowsTheJob) {
    MadeJob job;
    job.tp = 4;
    job.dp = 4;
    job.pp = 2;
    const program::Program program = hand_made::make_program(job);
    const auto step_time = [&](const topologies::ClusterSpec& spec) {
        const topologies::Cluster cluster(spec);
        return simulate(program, cluster, hand_made::HashCost(3, 1000), NetworkCommunication(cluster), {}).step_time_s;
    };
    topologies::ClusterSpec rails = clusters_of_16_nodes().front();
    const double alike = step_time(rails);
    rails.overrides = {{"nic", 5, -1, 0.01}};  // other groups are placed like node 5's, before and after it
    EXPECT_GT(step_time(rails), alike);
}

}  // namespace
}  // namespace orrery::sim
