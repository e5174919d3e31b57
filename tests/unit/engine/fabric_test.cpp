// Links between switches that groups and jobs share, and link changes while jobs run.
#include <gtest/gtest.h>

#include <memory>

#include "core/error.h"
#include "sim/engine/simulate.h"
#include "sim/network/flow_engine.h"
#include "tests/unit/engine/hand_made.h"
#include "topologies/bisection.h"

namespace orrery::sim {
namespace {

using program::GroupAxis;
using program::RunRecord;
using topologies::Cluster;
using topologies::ClusterSpec;
using topologies::FabricKind;

constexpr std::int64_t kBytes = 32;  // of hand_made::reduce

/// Rings of a fixed duration, independent of their links.
class Rings final : public CommunicationCost {
  public:
    explicit Rings(std::int64_t duration_ps) : duration_(duration_ps) {}
    [[nodiscard]] std::vector<OperationCost> costs(GroupAxis, std::span<const Operation> operations,
                                                   std::span<const std::int64_t>) const override {
        OperationCost cost{.duration = duration_};
        cost.algorithm = algorithms::Algorithm::ring;
        return std::vector<OperationCost>(operations.size(), cost);
    }

  private:
    Picoseconds duration_;
};

/// Two leaves with two nodes of one device each, joined by one spine. All links, including NICs, carry kBytes in 1000
/// ps.
ClusterSpec narrow() {
    ClusterSpec spec = hand_made::gpu_cluster(4, 1, 1);
    spec.fabric = FabricKind::fat_tree;
    spec.nodes_per_scalable_unit = 0;
    spec.fabric_shape.levels = 2;
    spec.fabric_shape.nodes_per_leaf = 2;
    spec.fabric_shape.uplinks_per_leaf = 1;
    spec.nic.bandwidth_gb_per_s_per_direction.value = static_cast<double>(kBytes);  // kBytes per nanosecond
    spec.nic.efficiency.value = 1;
    return spec;
}

TEST(MayBlock, IfATierIsOversubscribed) {
    const auto blocks = [](const ClusterSpec& spec) { return topologies::may_block(Cluster(spec)); };
    ClusterSpec spec = narrow();
    EXPECT_TRUE(blocks(spec));
    spec.fabric_shape.uplinks_per_leaf = 2;
    EXPECT_FALSE(blocks(spec));
    spec.routing.spread = topologies::Spread::hash;
    EXPECT_TRUE(blocks(spec));
    spec.routing = {};
    spec.overrides = {{"leaf 0 - spine 1", -1, -1, 0.5}};
    EXPECT_TRUE(blocks(spec));
    spec.overrides.clear();
    spec.fabric_shape.trunk = spec.nic;
    spec.fabric_shape.trunk.bandwidth_gb_per_s_per_direction.value /= 2;
    EXPECT_TRUE(blocks(spec));
    EXPECT_FALSE(blocks(hand_made::gpu_cluster(8, 2, 2)));
    EXPECT_FALSE(blocks(hand_made::gpu_cluster(1, 8, 0)));
    ClusterSpec three = hand_made::gpu_cluster(16, 2, 2);
    three.fabric = FabricKind::fat_tree;
    three.nodes_per_scalable_unit = 0;
    three.fabric_shape.levels = 3;
    three.fabric_shape.nodes_per_leaf = 2;
    three.fabric_shape.uplinks_per_leaf = 4;
    three.fabric_shape.leaves_per_pod = 4;
    three.fabric_shape.uplinks_per_spine = 4;
    EXPECT_FALSE(blocks(three));
    three.fabric_shape.uplinks_per_spine = 3;
    EXPECT_TRUE(blocks(three));
}

/// Two jobs on four devices, two on either side of a link. A ring of two sends 32 bytes in each direction in 1000 ps,
/// which uses the whole link.
void expect_shared_when_crossed(const Cluster& cluster) {
    const Rings communication(1000);
    const program::Program program = hand_made::one_body(2, {hand_made::reduce("tp")});
    const hand_made::ListCost cost(std::vector<std::int64_t>{0});
    const std::vector<Job> crossing{{&program, &cost, {0, 2}}, {&program, &cost, {1, 3}}};
    const RunRecord alone = simulate_together(std::span(crossing).first(1), cluster, communication).front();
    EXPECT_EQ(alone.step_time_s, 1000e-12);
    for (const RunRecord& record : simulate_together(crossing, cluster, communication)) {
        EXPECT_NEAR(record.step_time_s, 2000e-12, 1e-12);
    }
    const std::vector<Job> apart{{&program, &cost, {0, 1}}, {&program, &cost, {2, 3}}};
    for (const RunRecord& record : simulate_together(apart, cluster, communication)) {
        EXPECT_EQ(record.step_time_s, 1000e-12);
    }
}

TEST(FabricLinks, JobsShareACommonUplink) {
    expect_shared_when_crossed(Cluster(narrow()));
}

TEST(FabricLinks, JobsShareACommonPcieSwitch) {
    ClusterSpec spec = hand_made::gpu_cluster(1, 4, 0);
    spec.node_switches = 0;
    spec.inside.sockets = 1;
    spec.inside.pcie_switches = 2;
    spec.host_link.bandwidth_gb_per_s_per_direction.value = static_cast<double>(kBytes);
    spec.host_link.efficiency.value = 1;
    expect_shared_when_crossed(Cluster(spec));
}

TEST(FabricLinks, AreSharedByLargeMessagesAfterEmptyOnes) {
    const Cluster cluster(narrow());
    const Rings communication(1000);
    program::Instruction empty = hand_made::reduce("empty");
    empty.communication.elements = 0;
    const program::Program program = hand_made::one_body(2, {empty, hand_made::reduce("tp", {0})});
    const hand_made::ListCost cost(std::vector<std::int64_t>{0, 0});
    const std::vector<Job> jobs{{&program, &cost, {0, 2}}, {&program, &cost, {1, 3}}};
    for (const RunRecord& record : simulate_together(jobs, cluster, communication)) {
        EXPECT_NEAR(record.step_time_s, (1000 + 2000) * 1e-12, 1e-12);
    }
}

TEST(FabricLinks, GroupsOfOneJobShareThemToo) {
    const Cluster cluster(narrow());
    const program::Program program = hand_made::make_program({.tp = 2, .dp = 2, .layers = 1});
    const hand_made::HashCost cost(3, 10);
    ClusterSpec wide = narrow();
    wide.fabric_shape.uplinks_per_leaf = 2;
    const Cluster full(wide);
    // 4 KiB over links of 32 GB/s in 100 ns: an uplink is too narrow for two pairs at once.
    const Rings communication(200'000);
    const std::vector<Job> jobs{{&program, &cost, {}}};
    const double shared = simulate_together(jobs, cluster, communication).front().step_time_s;
    const double alone = simulate_together(jobs, full, communication).front().step_time_s;
    EXPECT_GT(shared, 1.1 * alone);
}

TEST(FabricLinks, TimesEqualThoseOfTheFlowEngine) {
    const ClusterSpec spec = narrow();
    const Cluster cluster(spec);
    const program::Program early = hand_made::one_body(2, {hand_made::reduce("tp")});
    const program::Program late = hand_made::one_body(2, {hand_made::compute("first"), hand_made::reduce("tp", {0})});
    const hand_made::ListCost none(std::vector<std::int64_t>{0}), wait(std::vector<std::int64_t>{400, 0});
    const Rings communication(1000);
    const std::vector<Job> jobs{{&early, &none, {0, 2}}, {&late, &wait, {1, 3}}};
    const std::vector<RunRecord> records = simulate_together(jobs, cluster, communication, {.steps = 1});

    // Each ring crosses the uplinks of both leaves with one byte per byte of the message.
    FlowEngine flows({{"up", kBytes * 1e9}});
    const std::int32_t path = flows.add_path(std::vector<PathLink>{{0, 1.0}});
    flows.start({.tag = 0, .path = path, .bytes = kBytes}, 0);
    flows.start({.tag = 1, .path = path, .bytes = kBytes}, 400);
    flows.run([&](const FlowEnd& end) {
        if (end.tag > 1) return;
        // The first job continues with its next step until the second job has ended.
        if (end.tag == 0) flows.start({.tag = 2, .path = path, .bytes = kBytes}, end.end_ps);
        const double seconds = records[static_cast<std::size_t>(end.tag)].step_seconds.front();
        EXPECT_NEAR(seconds * 1e12, static_cast<double>(end.end_ps), 1.5);
    });
}

/// Steps of one job whose links change.
class ChangingLinks : public testing::Test {
  protected:
    /// Runs the job with one ClusterState per link change.
    std::vector<RunRecord> run(const ClusterSpec& spec, const std::vector<std::int64_t>& devices, int steps) {
        clusters_.clear();
        clusters_.push_back(std::make_unique<Cluster>(spec));
        std::vector<ClusterState> states{{Picoseconds(0), clusters_.back().get(), &communication_}};
        for (const double seconds : topologies::change_times(spec)) {
            clusters_.push_back(std::make_unique<Cluster>(topologies::cluster_at(spec, seconds)));
            states.push_back({picoseconds_from_seconds(seconds), clusters_.back().get(), &communication_});
        }
        const std::vector<Job> jobs{{&program_, &cost_, devices}};
        return simulate_together(jobs, states, {.steps = steps});
    }
    const program::Program program_ = hand_made::one_body(2, {hand_made::reduce("tp")});
    const hand_made::ListCost cost_{std::vector<std::int64_t>{0}};
    const Rings communication_{1000};
    std::vector<std::unique_ptr<Cluster>> clusters_;
};

TEST_F(ChangingLinks, SlowDownOperationsInFlightAndLaterOnes) {
    ClusterSpec spec = narrow();
    spec.changes = {{2500e-12, {"leaf 0 - spine 0", -1, -1, 0.25}}, {6500e-12, {"leaf 0 - spine 0", -1, -1, 1}}};
    // Rings take 1000 ps. The third is halfway at 2500; at a quarter of the bandwidth its second half takes 2000 ps.
    // The fourth, started at 4500, has half of its bytes left at 6500.
    const std::vector<double> seconds = run(spec, {0, 2}, 5).front().step_seconds;
    ASSERT_EQ(seconds.size(), 4U);
    EXPECT_NEAR(seconds[0] * 1e12, 1000, 1);
    EXPECT_NEAR(seconds[1] * 1e12, 500 + 2000, 2);
    EXPECT_NEAR(seconds[2] * 1e12, 2000 + 500, 2);
    EXPECT_NEAR(seconds[3] * 1e12, 1000, 1);
    EXPECT_EQ(run(spec, {0, 1}, 3).front().step_seconds, (std::vector<double>{1000e-12, 1000e-12}));
}

TEST_F(ChangingLinks, FailedOnesAreAvoided) {
    ClusterSpec spec = narrow();
    spec.fabric_shape.uplinks_per_leaf = 2;
    spec.changes = {{1500e-12, {"leaf 0 - spine 0", -1, -1, 0}}};
    const std::vector<RunRecord> records = run(spec, {0, 2}, 4);
    for (const double seconds : records.front().step_seconds) EXPECT_NEAR(seconds * 1e12, 1000, 1);
}

TEST_F(ChangingLinks, LosingTheLastRouteIsAnErrorOnlyOnceItHappens) {
    ClusterSpec spec = narrow();
    spec.changes = {{2500e-12, {"leaf 0 - spine 0", -1, -1, 0}}};
    EXPECT_EQ(run(spec, {0, 2}, 2).front().step_seconds.size(), 1U);
    try {
        (void)run(spec, {0, 2}, 3);
        FAIL();
    } catch (const InputError& error) {
        const std::string text = error.what();
        EXPECT_NE(text.find("from 2.5e-09 s on"), std::string::npos) << text;
        EXPECT_NE(text.find("device 0"), std::string::npos) << text;
    }
}

/// A cluster of nodes * per_node devices on which traffic may block, of one of four kinds.
ClusterSpec blocking_cluster(std::int64_t kind, std::int64_t nodes, std::int64_t per_node) {
    ClusterSpec spec = hand_made::gpu_cluster(nodes, per_node, per_node);
    spec.nodes_per_scalable_unit = 0;
    switch (kind) {
        case 0:
            spec.fabric = FabricKind::fat_tree;
            spec.fabric_shape.levels = 2;
            spec.fabric_shape.nodes_per_leaf = 2;
            spec.fabric_shape.uplinks_per_leaf = 1;
            break;
        case 1:
            spec.nodes_per_scalable_unit = 4;
            spec.fabric_shape.oversubscription = {2};
            break;
        case 2:
            spec.fabric = FabricKind::torus;
            spec.fabric_shape.dimensions = {2, (nodes + 1) / 2};
            break;
        default:
            spec.nodes_per_scalable_unit = 2;
            spec.overrides = {{"nic", 0, -1, 0.5}, {"node 1 nic 0 - leaf 0", -1, -1, 0}};
            break;
    }
    return spec;
}

TEST(FabricLinks, AQuotientIsExact) {
    const RandomStream random(23, "fabric links");
    std::uint64_t draw = 0;
    const auto pick = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random.below(draw++, bound)); };
    std::size_t merged = 0, slowed = 0;
    for (int round = 0; round < 80 && !HasFailure(); ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        const std::int64_t kind = pick(4), per_node = kind == 3 ? 2 : 1 + pick(2);
        std::vector<program::Program> programs;
        for (std::int64_t j = 0; j < 1 + pick(2); ++j) {
            programs.push_back(hand_made::make_program(
                {.tp = 1 << pick(2), .dp = 1 << pick(3), .pp = 1 + pick(3), .micro_batches = 1 + pick(3)}));
        }
        std::int64_t nodes = 0;
        for (const program::Program& one : programs) nodes += (one.world_size() + per_node - 1) / per_node;
        nodes = std::max<std::int64_t>(nodes, 2);
        ClusterSpec spec = blocking_cluster(kind, nodes, per_node);
        ClusterSpec idle = spec;
        for (topologies::LinkProfile* link : {&idle.nic, &idle.fabric_shape.trunk}) {
            *link = spec.nic;
            link->bandwidth_gb_per_s_per_direction.value = 1e5;
        }
        if (pick(2) == 0) spec.changes = {{1e-6, {"nic", 1, -1, 0.3}}};
        const Cluster cluster(spec), later(topologies::cluster_at(spec, 1)), wide(idle);
        const auto seed = static_cast<std::uint64_t>(round);
        const hand_made::HashCommunication communication(spec, seed, 1'000'000, true);
        const hand_made::HashCost cost(seed, 100'000);
        std::vector<ClusterState> states{{Picoseconds(0), &cluster, &communication}};
        if (!spec.changes.empty()) states.push_back({Picoseconds(1'000'000), &later, &communication});
        std::vector<Job> jobs;
        std::int64_t first = 0;
        for (const program::Program& program : programs) {
            std::vector<std::int64_t> devices;
            for (std::int64_t d = 0; d < program.world_size(); ++d) devices.push_back(first + d);
            first += (program.world_size() + per_node - 1) / per_node * per_node;
            jobs.push_back({&program, &cost, std::move(devices)});
        }
        const std::vector<RunRecord> quotient = simulate_together(jobs, states);
        const std::vector<RunRecord> full = simulate_together(jobs, states, {.full = true});
        const std::vector<RunRecord> unhindered = simulate_together(jobs, wide, communication);
        for (std::size_t j = 0; j < jobs.size(); ++j) {
            EXPECT_EQ(quotient[j].step_seconds, full[j].step_seconds);
            EXPECT_EQ(quotient[j].idle_fraction, full[j].idle_fraction);
            merged += full[j].ranks.size() - quotient[j].ranks.size();
            slowed += full[j].step_time_s > 1.01 * unhindered[j].step_time_s ? 1U : 0U;
        }
    }
    EXPECT_GT(merged, 60U);
    EXPECT_GT(slowed, 20U);
}

}  // namespace
}  // namespace orrery::sim
