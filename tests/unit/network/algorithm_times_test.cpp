#include "sim/network/algorithms/algorithm_times.h"

#include <gtest/gtest.h>

#include "tests/unit/network/round_cluster.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;
using rounded::kMiB;
using rounded::round_cluster;
using rounded::strided;

constexpr double kStep = 10e-6;

TEST(AlgorithmTimes, EqualTheTimesOfTheLinkLoads) {
    const topologies::Cluster cluster(round_cluster(64));
    const std::vector<std::int64_t> devices = strided(0, 64, 1);
    for (const Algorithm algorithm : {Algorithm::ring, Algorithm::halving_doubling, Algorithm::direct}) {
        AlgorithmTimes times(cluster, algorithm, CommKind::all_reduce, devices, kStep);
        const CollectiveLoads loads = links_of(algorithm, CommKind::all_reduce, devices, cluster);
        for (const std::int64_t bytes : {std::int64_t{0}, std::int64_t{1}, kMiB, 64 * kMiB}) {
            const AlgorithmTimes::Time time = times.of(bytes);
            EXPECT_EQ(time.chunks, 1);
            EXPECT_DOUBLE_EQ(time.seconds, loads.seconds(static_cast<double>(bytes), kStep));
            EXPECT_DOUBLE_EQ(time.latency_seconds, loads.seconds(0, kStep));
        }
    }
}

TEST(AlgorithmTimes, TakeTheBestNumberOfChunks) {
    const topologies::Cluster cluster(round_cluster(64));
    const std::vector<std::int64_t> devices = strided(0, 64, 1);
    AlgorithmTimes times(cluster, Algorithm::chain, CommKind::broadcast, devices, kStep);
    EXPECT_EQ(times.of(1000).chunks, 1);
    const AlgorithmTimes::Time large = times.of(1024 * kMiB);
    EXPECT_GT(large.chunks, 8);
    for (std::int64_t chunks = 1; chunks <= AlgorithmTimes::kMostChunks; chunks *= 2) {
        const CollectiveLoads loads = links_of(Algorithm::chain, CommKind::broadcast, devices, cluster, chunks);
        EXPECT_LE(large.seconds, loads.seconds(1024.0 * kMiB, kStep) * (1 + 1e-12)) << chunks;
    }
}

}  // namespace
}  // namespace orrery::sim::algorithms
