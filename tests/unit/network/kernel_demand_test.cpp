#include "sim/network/kernel_demand.h"

#include <gtest/gtest.h>

#include "tests/unit/network/round_cluster.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using rounded::kMiB;
using rounded::place;
using rounded::round_cluster;
using rounded::strided;

topologies::ClusterSpec with_kernels() {
    topologies::ClusterSpec spec = round_cluster(16);
    topologies::CollectiveKernels kernels;
    kernels.compute_units.value = 20;
    kernels.compute_units_one_member.value = 5;
    kernels.compute_units_send.value = 3;
    kernels.memory_passes.value = 2.5;
    spec.device.collective_kernels = kernels;
    return spec;
}

KernelDemand demand(CommKind kind, std::int64_t bytes, const std::vector<std::int64_t>& devices,
                    const topologies::ClusterSpec& spec, std::int64_t channels = 0) {
    const GroupPlacement placement = place(topologies::Cluster(spec), devices);
    CollectiveCost cost = collective_cost(kind, bytes, placement, spec);
    cost.channels = channels;
    return kernel_demand(kind, bytes, cost, placement, spec);
}

TEST(KernelDemand, CollectivesTakeOneUnitPerChannel) {
    const topologies::ClusterSpec spec = with_kernels();
    EXPECT_EQ(demand(CommKind::all_reduce, kMiB, strided(0, 8, 1), spec).compute_units, 20);
    EXPECT_EQ(demand(CommKind::all_reduce, kMiB, strided(0, 8, 1), spec, 12).compute_units, 12);
    EXPECT_EQ(demand(CommKind::all_reduce, kMiB, strided(0, 16, 1), spec).compute_units, 20);
    EXPECT_EQ(demand(CommKind::all_reduce, kMiB, strided(0, 2, 8), spec).compute_units, 5);
}

TEST(KernelDemand, UnitsOfSendsGrowWithTheirSize) {
    const topologies::ClusterSpec spec = with_kernels();
    EXPECT_EQ(demand(CommKind::send, 1000, {0, 1}, spec).compute_units, 1);
    EXPECT_EQ(demand(CommKind::send, 4 * 65536, {0, 1}, spec).compute_units, 4);
    EXPECT_EQ(demand(CommKind::send, 100 * kMiB, {0, 1}, spec).compute_units, 32);
    EXPECT_EQ(demand(CommKind::send, 100 * kMiB, {0, 8}, spec).compute_units, 3);
    EXPECT_EQ(demand(CommKind::all_to_all, 8000, strided(0, 8, 1), spec).compute_units, 7);
    EXPECT_EQ(demand(CommKind::all_to_all, 8000, strided(0, 2, 8), spec).compute_units, 3);
    EXPECT_EQ(demand(CommKind::all_to_all, 100 * kMiB, strided(0, 16, 1), spec).compute_units, 32);
}

// Copy engines move a piece inside a node: one unit and two memory passes, whatever its size.
TEST(KernelDemand, PiecesTakeOneUnit) {
    const topologies::ClusterSpec spec = with_kernels();
    const auto piece = [&](std::int64_t bytes, const std::vector<std::int64_t>& devices) {
        const GroupPlacement placement = place(topologies::Cluster(spec), devices);
        return piece_demand(bytes, piece_cost(bytes, placement, spec), placement, spec);
    };
    EXPECT_EQ(piece(100 * kMiB, strided(0, 8, 1)).compute_units, 1);
    EXPECT_EQ(piece(8000, strided(0, 8, 1)).memory_bytes, 16'000);
    EXPECT_EQ(piece(100 * kMiB, {3}).compute_units, 0);
    // Between nodes NCCL moves the piece.
    EXPECT_EQ(piece(100 * kMiB, strided(0, 16, 1)).compute_units,
              demand(CommKind::exchange, 100 * kMiB, strided(0, 16, 1), spec).compute_units);
}

TEST(KernelDemand, PiecesTakeTheTimeOfThePort) {
    const topologies::ClusterSpec spec = topologies::load_cluster("dgx-h100", 16);
    const topologies::Cluster cluster(spec);
    const auto seconds = [&](std::int64_t bytes, const std::vector<std::int64_t>& devices) {
        return piece_cost(bytes, place(cluster, devices), spec).seconds;
    };
    const double reached = spec.intra_node.bandwidth_gb_per_s_per_direction.value * spec.intra_node.efficiency.value;
    EXPECT_NEAR(seconds(1'000'000'000, strided(0, 8, 1)), 1 / reached + 4e-6, 2e-6);
    EXPECT_NEAR(seconds(0, strided(0, 8, 1)), 4e-6, 2e-6);
    // NCCL has to fill its channels first.
    EXPECT_LT(seconds(8'000'000, strided(0, 8, 1)),
              collective_cost(CommKind::exchange, 8'000'000, place(cluster, strided(0, 8, 1)), spec).seconds);
    EXPECT_EQ(seconds(8'000'000, strided(0, 16, 1)),
              collective_cost(CommKind::exchange, 8'000'000, place(cluster, strided(0, 16, 1)), spec).seconds);
}

TEST(KernelDemand, MemoryTrafficFollowsTheBytesSent) {
    const topologies::ClusterSpec spec = with_kernels();
    // A ring of 8 sends 14/8 S.
    EXPECT_EQ(demand(CommKind::all_reduce, 8000, strided(0, 8, 1), spec).memory_bytes, 35'000);
    EXPECT_EQ(demand(CommKind::send, 8000, {0, 8}, spec).memory_bytes, 20'000);
}

TEST(KernelDemand, IsZeroWithoutFiguresOrPeers) {
    topologies::ClusterSpec spec = with_kernels();
    EXPECT_EQ(demand(CommKind::all_reduce, kMiB, {3}, spec).compute_units, 0);
    spec.device.collective_kernels.reset();
    EXPECT_EQ(demand(CommKind::all_reduce, kMiB, strided(0, 8, 1), spec).compute_units, 0);
    EXPECT_EQ(demand(CommKind::all_reduce, kMiB, strided(0, 8, 1), spec).memory_bytes, 0);
}

}  // namespace
}  // namespace orrery::sim
