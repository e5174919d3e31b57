// Stragglers: devices whose computation is slower than that of the others.
#include <gtest/gtest.h>

#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "tests/unit/engine/hand_made.h"

namespace orrery::sim {
namespace {

using program::RunRecord;

/// The step of 8 ranks with two slow ones on a network that takes no time.
RunRecord with_slow(const hand_made::Job& job, std::vector<topologies::SlowDevice> slow) {
    topologies::ClusterSpec spec = hand_made::gpu_cluster(1, 8, 8);
    spec.device.launch_us.value = 0;
    spec.slow_devices = std::move(slow);
    const topologies::Cluster cluster(spec);
    const program::Program program = hand_made::make_program(job);
    return simulate(program, cluster, hand_made::HashCost(5, 1000000), hand_made::HashCommunication(spec, 5, 1));
}

TEST(SlowDevice, ReplicasWaitForTheSlowest) {
    hand_made::Job job;
    job.dp = 8;
    job.micro_batches = 2;
    const double even = with_slow(job, {}).step_time_s;
    const double one = with_slow(job, {{3, 0.8}}).step_time_s;
    EXPECT_NEAR(one / even, 1 / 0.8, 1e-3);
    // The slowest counts, whatever else is slow; all at that speed take as long.
    EXPECT_NEAR(with_slow(job, {{3, 0.8}, {5, 0.9}}).step_time_s, one, 1e-3 * one);
    std::vector<topologies::SlowDevice> all;
    for (std::int64_t device = 0; device < 8; ++device) all.push_back({device, 0.8});
    EXPECT_NEAR(with_slow(job, all).step_time_s, one, 1e-3 * one);
    EXPECT_EQ(with_slow(job, {{3, 1.0}}).step_time_s, even);
}

TEST(SlowDevice, OnlyItsStageOfAPipelineIsSlow) {
    hand_made::Job job;
    job.pp = 4;
    job.micro_batches = 16;
    job.layers = 4;
    const double even = with_slow(job, {}).step_time_s;
    const RunRecord slow = with_slow(job, {{1, 0.5}});
    EXPECT_GT(slow.step_time_s, 1.3 * even);
    EXPECT_LT(slow.step_time_s, 2 * even);
    // A device without a rank does not matter.
    EXPECT_EQ(with_slow(job, {{6, 0.5}}).step_time_s, even);
}

}  // namespace
}  // namespace orrery::sim
