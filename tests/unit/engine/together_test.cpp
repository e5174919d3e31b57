// Several jobs on one cluster.
#include <gtest/gtest.h>

#include <numeric>

#include "sim/engine/simulate.h"
#include "sim/engine/symmetry.h"
#include "tests/unit/engine/hand_made.h"
#include "tests/unit/engine/table_communication.h"

namespace orrery::sim {
namespace {

using program::RunRecord;

std::vector<std::int64_t> devices(std::int64_t first, std::int64_t count, std::int64_t stride = 1) {
    std::vector<std::int64_t> list;
    for (std::int64_t i = 0; i < count; ++i) list.push_back(first + i * stride);
    return list;
}

/// Messages take a fixed time alone and use the whole NIC.
class WholeNic final : public CommunicationCost {
  public:
    explicit WholeNic(const topologies::ClusterSpec& cluster, std::int64_t duration_ps)
        : bytes_per_s_(cluster.nic.bandwidth_gb_per_s_per_direction.value * kGigabyte * cluster.nic.efficiency.value),
          duration_(duration_ps) {}
    [[nodiscard]] std::vector<OperationCost> costs(program::GroupAxis, std::span<const Operation> operations,
                                                   std::span<const std::int64_t>) const override {
        const auto bytes = static_cast<std::int64_t>(bytes_per_s_ * to_seconds(duration_) * 1.01);
        return std::vector<OperationCost>(operations.size(), {.duration = duration_, .nic_bytes = bytes});
    }

  private:
    double bytes_per_s_;
    Picoseconds duration_;
};

program::Program reduces_all_the_time() {
    return hand_made::one_body(2, {hand_made::reduce("tp")});
}

TEST(Together, JobsThatShareNothingTakeTheSameTimeAsAlone) {
    const topologies::ClusterSpec spec = hand_made::gpu_cluster(8, 2, 2);
    const topologies::Cluster cluster(spec);
    const hand_made::HashCommunication communication(spec, 5, 3000);
    const program::Program small = hand_made::make_program({.tp = 2, .dp = 2, .micro_batches = 3});
    const program::Program large =
        hand_made::make_program({.tp = 2, .dp = 2, .pp = 3, .micro_batches = 6, .layers = 2});
    const hand_made::HashCost cost(3, 1000), other_cost(4, 1000);
    const std::vector<Job> jobs{{&small, &cost, devices(0, 4)}, {&large, &other_cost, devices(4, 12)}};
    const std::vector<RunRecord> together = simulate_together(jobs, cluster, communication);
    for (std::size_t j = 0; j < 2; ++j) {
        const RunRecord alone = simulate_together(std::span(jobs).subspan(j, 1), cluster, communication).front();
        for (const double seconds : together[j].step_seconds) EXPECT_EQ(seconds, alone.step_time_s);
        EXPECT_EQ(together[j].idle_fraction, alone.idle_fraction);
    }
    EXPECT_EQ(together[1].step_seconds.size(), 2U);
    EXPECT_GT(together[0].step_seconds.size(), 2U);  // the small job kept running next to the large one
}

TEST(Together, JobsOnOneNicShareIt) {
    const topologies::ClusterSpec spec = hand_made::gpu_cluster(2, 2, 1);
    const topologies::Cluster cluster(spec);
    const WholeNic communication(spec, 1000);
    const program::Program program = reduces_all_the_time();
    const hand_made::ListCost cost(std::vector<std::int64_t>{0});
    // Devices 0 and 1 are the first node's, so each job reduces between the nodes.
    const std::vector<Job> jobs{{&program, &cost, {0, 2}}, {&program, &cost, {1, 3}}};
    const RunRecord alone = simulate_together(std::span(jobs).first(1), cluster, communication).front();
    EXPECT_EQ(alone.step_time_s, 1000e-12);
    for (const RunRecord& record : simulate_together(jobs, cluster, communication)) {
        EXPECT_NEAR(record.step_time_s, 2000e-12, 1e-12);
    }
}

TEST(Together, JobsShareTheNicNearestToBoth) {
    // Two NICs for two devices, but both devices and one NIC are on socket 0.
    topologies::ClusterSpec spec = hand_made::gpu_cluster(2, 2, 2);
    spec.inside.sockets = 2;
    spec.inside.socket_link = spec.host_link;
    spec.inside.device_ports = {0, 0};
    spec.inside.nic_ports = {0, 1};
    const topologies::Cluster cluster(spec);
    const WholeNic communication(spec, 1000);
    const program::Program program = reduces_all_the_time();
    const hand_made::ListCost cost(std::vector<std::int64_t>{0});
    const std::vector<Job> jobs{{&program, &cost, {0, 2}}, {&program, &cost, {1, 3}}};
    for (const RunRecord& record : simulate_together(jobs, cluster, communication)) {
        EXPECT_NEAR(record.step_time_s, 2000e-12, 1e-12);
    }
}

TEST(Together, JobsOnTheSameCoresShareThem) {
    const topologies::ClusterSpec spec = hand_made::cpu_cluster(1, 2, 1);
    const topologies::Cluster cluster(spec);
    const TableCommunication communication;
    const program::Program program = hand_made::one_body(1, {hand_made::compute("a")});
    const hand_made::ListCost slow(std::vector<std::int64_t>{4000}), fast(std::vector<std::int64_t>{1000});
    const std::vector<Job> jobs{{&program, &slow, {0}}, {&program, &fast, {1}}};
    const std::vector<RunRecord> records = simulate_together(jobs, cluster, communication, {.steps = 4});
    EXPECT_EQ(records[0].step_time_s, 8000e-12);
    EXPECT_EQ(records[1].step_time_s, 2000e-12);
    EXPECT_EQ(records[0].step_seconds.size(), 3U);
    EXPECT_EQ(records[1].step_seconds.size(), 15U);
}

void expect_equal(const std::vector<RunRecord>& quotient, const std::vector<RunRecord>& full) {
    ASSERT_EQ(quotient.size(), full.size());
    for (std::size_t j = 0; j < full.size(); ++j) {
        EXPECT_EQ(quotient[j].step_seconds, full[j].step_seconds);
        EXPECT_EQ(quotient[j].idle_fraction, full[j].idle_fraction);
    }
}

TEST(Together, AQuotientOfAllJobsIsExact) {
    const RandomStream random(17, "jobs together");
    std::uint64_t draw = 0;
    const auto pick = [&](std::uint64_t bound) { return static_cast<std::int64_t>(random.below(draw++, bound)); };
    std::size_t merged = 0, slowed = 0;
    for (int round = 0; round < 120 && !HasFailure(); ++round) {
        SCOPED_TRACE("round " + std::to_string(round));
        std::vector<program::Program> programs;
        std::int64_t ranks = 0;
        for (std::int64_t j = 0; j < 2 + pick(2); ++j) {
            const hand_made::Job job{
                .tp = 1 << pick(2), .dp = 1 + pick(3), .pp = 1 + pick(3), .micro_batches = 1 + pick(3)};
            programs.push_back(hand_made::make_program(job));
            ranks += programs.back().world_size();
        }
        const std::int64_t per_node = 1 + pick(6);
        const std::int64_t nodes = (ranks + per_node - 1) / per_node;
        const topologies::ClusterSpec spec = pick(3) > 0 ? hand_made::gpu_cluster(nodes, per_node, 1)
                                                         : hand_made::cpu_cluster(nodes, per_node, 1 + pick(3));
        const topologies::Cluster cluster(spec);
        const auto seed = static_cast<std::uint64_t>(round);
        const hand_made::HashCommunication communication(spec, seed, 3000);
        const hand_made::HashCost cost(seed, 1000);
        // Devices are assigned to jobs round-robin, so that jobs share nodes, or job by job.
        std::vector<std::vector<std::int64_t>> given(programs.size());
        std::vector<std::int64_t> missing;
        for (const program::Program& program : programs) missing.push_back(program.world_size());
        const bool by_turns = pick(2) == 0;
        for (std::int64_t device = 0, j = 0; device < ranks; ++device, j += by_turns ? 1 : 0) {
            const auto next = [&] { return static_cast<std::size_t>(j) % programs.size(); };
            while (missing[next()] == 0) ++j;
            --missing[next()];
            given[next()].push_back(device);
        }
        std::vector<Job> jobs;
        for (std::size_t j = 0; j < programs.size(); ++j) jobs.push_back({&programs[j], &cost, given[j]});
        SimulateOptions options{.steps = static_cast<int>(1 + pick(3))};
        const std::vector<RunRecord> quotient = simulate_together(jobs, cluster, communication, options);
        options.full = true;
        const std::vector<RunRecord> full = simulate_together(jobs, cluster, communication, options);
        expect_equal(quotient, full);
        for (std::size_t j = 0; j < jobs.size(); ++j) {
            merged += full[j].ranks.size() - quotient[j].ranks.size();
            options.full = false;
            const RunRecord alone =
                simulate_together(std::span(jobs).subspan(j, 1), cluster, communication, options).front();
            slowed += full[j].step_time_s > alone.step_time_s * 1.01 ? 1U : 0U;
        }
    }
    EXPECT_GT(merged, 100U);
    EXPECT_GT(slowed, 20U);
}

}  // namespace
}  // namespace orrery::sim
