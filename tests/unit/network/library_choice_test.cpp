// Algorithms that Open MPI, Gloo and our transport choose, and times of collectives between CPU nodes.
#include "sim/network/algorithms/library_choice.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/unit/network/closed_form.h"
#include "tests/unit/network/round_cluster.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;
using topologies::ClusterSpec;
using topologies::CollectiveLibrary;

Algorithm open_mpi(CommKind kind, std::int64_t ranks, std::int64_t bytes) {
    return library_choice(CollectiveLibrary::openmpi, kind, ranks, bytes).algorithm;
}

TEST(LibraryChoice, OpenMpiChangesAlgorithmsAtItsBounds) {
    // Two and three ranks: {8, ring}, {4096, recursive doubling}, {8192, ring} … Rabenseifner from 256 KiB.
    EXPECT_EQ(open_mpi(CommKind::all_reduce, 2, 7), Algorithm::ring);
    EXPECT_EQ(open_mpi(CommKind::all_reduce, 3, 8), Algorithm::recursive_doubling);
    EXPECT_EQ(open_mpi(CommKind::all_reduce, 3, 4095), Algorithm::recursive_doubling);
    EXPECT_EQ(open_mpi(CommKind::all_reduce, 3, 4096), Algorithm::ring);
    EXPECT_EQ(open_mpi(CommKind::all_reduce, 3, 262144), Algorithm::halving_doubling);
    EXPECT_EQ(open_mpi(CommKind::all_reduce, 8, 8191), Algorithm::recursive_doubling);
    EXPECT_EQ(open_mpi(CommKind::all_reduce, 8, 8192), Algorithm::halving_doubling);
    EXPECT_EQ(open_mpi(CommKind::all_reduce, 128, 131071), Algorithm::binomial_tree);
    EXPECT_EQ(open_mpi(CommKind::all_reduce, 5000, 1 << 30), Algorithm::halving_doubling);
    // By the block of one rank: with 32 ranks neighbour exchange from 1 KiB, ring from 64 KiB.
    EXPECT_EQ(open_mpi(CommKind::all_gather, 32, 32 * 1023), Algorithm::halving_doubling);
    EXPECT_EQ(open_mpi(CommKind::all_gather, 32, 32 * 1024), Algorithm::neighbor_exchange);
    EXPECT_EQ(open_mpi(CommKind::all_gather, 33, 33 * 1024), Algorithm::ring);  // odd
    EXPECT_EQ(open_mpi(CommKind::all_gather, 32, 32 * 65536), Algorithm::ring);
    EXPECT_EQ(open_mpi(CommKind::all_gather, 2, 1 << 20), Algorithm::direct);
    EXPECT_EQ(open_mpi(CommKind::all_gather, 6, 600), Algorithm::bruck);  // not a power of two
    EXPECT_EQ(open_mpi(CommKind::all_to_all, 64, 64 * 1023), Algorithm::bruck);
    EXPECT_EQ(open_mpi(CommKind::all_to_all, 64, 64 * 262144), Algorithm::pairwise);
    EXPECT_EQ(open_mpi(CommKind::reduce_scatter, 16, 262143), Algorithm::halving_doubling);
    EXPECT_EQ(open_mpi(CommKind::reduce_scatter, 16, 262144), Algorithm::ring);
    EXPECT_EQ(open_mpi(CommKind::broadcast, 100, 1 << 20), Algorithm::knomial_tree);
    EXPECT_EQ(open_mpi(CommKind::broadcast, 20, 1 << 20), Algorithm::halving_doubling);
    EXPECT_EQ(open_mpi(CommKind::reduce, 10, 8191), Algorithm::binary_tree);
    EXPECT_EQ(open_mpi(CommKind::reduce, 10, 8192), Algorithm::binomial_tree);
    EXPECT_EQ(open_mpi(CommKind::exchange, 10, 8192), Algorithm::direct);
    EXPECT_THROW((void)open_mpi(CommKind::all_reduce, 1, 8), BugError);
}

TEST(LibraryChoice, AlwaysImplementsTheRequestedCollective) {
    for (const CollectiveLibrary library :
         {CollectiveLibrary::openmpi, CollectiveLibrary::gloo, CollectiveLibrary::orrery}) {
        for (std::size_t k = 0; k < program::kCommKinds; ++k) {
            const auto kind = static_cast<CommKind>(k);
            for (std::int64_t ranks = 2; ranks < 9000; ranks += ranks / 3 + 1) {
                if ((kind == CommKind::send || kind == CommKind::recv) && ranks > 2) continue;
                for (std::int64_t bytes = 0; bytes < (std::int64_t{1} << 32); bytes = 3 * bytes + 1) {
                    const LibraryChoice choice = library_choice(library, kind, ranks, bytes);
                    ASSERT_EQ(why_not(choice.algorithm, kind, Group::flat(ranks)), "");
                    ASSERT_TRUE(choice.chunks == 1 || row_of(choice.algorithm).manner.chunks);
                }
            }
        }
    }
}

TEST(LibraryChoice, GlooAndOurTransportFollowTheirRules) {
    const auto gloo = [](CommKind kind) { return library_choice(CollectiveLibrary::gloo, kind, 8, 1 << 20).algorithm; };
    EXPECT_EQ(gloo(CommKind::all_reduce), Algorithm::ring);
    EXPECT_EQ(gloo(CommKind::broadcast), Algorithm::binomial_tree);
    EXPECT_EQ(gloo(CommKind::all_to_all), Algorithm::direct);
    const auto own = [](CommKind kind, std::int64_t bytes) {
        return library_choice(CollectiveLibrary::orrery, kind, 8, bytes);
    };
    EXPECT_EQ(own(CommKind::all_reduce, 65536).algorithm, Algorithm::halving_doubling);
    EXPECT_EQ(own(CommKind::all_reduce, 65537).algorithm, Algorithm::ring);
    EXPECT_EQ(own(CommKind::broadcast, 131072).algorithm, Algorithm::binomial_tree);
    EXPECT_EQ(own(CommKind::broadcast, 14 << 20).algorithm, Algorithm::chain);
    EXPECT_EQ(own(CommKind::broadcast, 14 << 20).chunks, 14);
}

/// Nodes of 4 cores with 8 GB/s and 1 us between them, and one NIC with 2 GB/s and 3 us to any other node.
ClusterSpec cpu_nodes(std::int64_t nodes) {
    ClusterSpec spec = rounded::cpu_cluster();
    spec.name = "cpu nodes";
    spec.nodes = nodes;
    spec.devices_per_node = 4;
    spec.nics_per_node = 1;
    spec.nodes_per_scalable_unit = nodes;
    spec.fabric = topologies::FabricKind::rail_optimised;
    const auto link = [](double gb_per_s, double latency_us) {
        topologies::LinkProfile profile;
        profile.bandwidth_gb_per_s_per_direction.value = gb_per_s;
        profile.efficiency.value = 1;
        profile.latency_us.value = latency_us;
        return profile;
    };
    spec.intra_node = link(8, 0.5);
    spec.nic = link(2, 1.5);
    spec.host_link = link(64, 0);
    return spec;
}

CollectiveCost cost_of(CommKind kind, std::int64_t bytes, const std::vector<std::int64_t>& devices,
                       const ClusterSpec& spec) {
    return collective_cost(kind, bytes, rounded::place(topologies::Cluster(spec), devices), spec);
}

TEST(CpuNodes, UseTheLibrarysAlgorithmOnTheirLinks) {
    ClusterSpec spec = cpu_nodes(4);
    // Four ranks on nodes of their own, 1 MB: Rabenseifner, 4 steps of 3.5 us and 1.5 MB through a NIC.
    CollectiveCost cost = cost_of(CommKind::all_reduce, 1'000'000, {0, 4, 8, 12}, spec);
    EXPECT_EQ(cost.algorithm_name(), "halving_doubling");
    EXPECT_EQ(cost.detail, "openmpi");
    EXPECT_NEAR(cost.seconds, 4 * 3.5e-6 + 1.5e6 / 2e9, 1e-12);
    EXPECT_EQ(cost.latency, picoseconds_from_seconds(4 * 3.5e-6));

    // Sixteen ranks: steps over distances 8 and 4 leave the node, whose four ranks share its NIC; distances 2 and 1
    // stay inside.
    cost = cost_of(CommKind::all_reduce, 1'600'000, rounded::strided(0, 16, 1), spec);
    EXPECT_EQ(cost.algorithm_name(), "halving_doubling");
    const double leaving = 4 * (0.8e6 + 0.4e6) / 2e9;
    const double staying = (0.2e6 + 0.1e6) / 8e9;
    EXPECT_NEAR(cost.seconds, 2 * (2 * 3.5e-6 + 2 * 1.5e-6 + leaving + staying), 1e-12);

    // Gloo's ring: 30 steps, each with a sixteenth of the message through each NIC; four of the sixteen links are
    // between nodes; 10 us overhead per step.
    spec.collective_library = CollectiveLibrary::gloo;
    cost = cost_of(CommKind::all_reduce, 1'600'000, rounded::strided(0, 16, 1), spec);
    EXPECT_EQ(cost.algorithm_name(), "ring");
    EXPECT_EQ(cost.detail, "gloo");
    EXPECT_NEAR(cost.seconds, 30 * (10e-6 + (4 * 3e-6 + 12 * 1e-6) / 16 + 1e5 / 2e9), 1e-9);
}

TEST(CpuNodes, UseLocalSamplesInsideANode) {
    const ClusterSpec spec = cpu_nodes(2);
    EXPECT_EQ(cost_of(CommKind::all_reduce, 1000, {0, 1}, spec).algorithm_name(), "measured");
    EXPECT_EQ(cost_of(CommKind::all_reduce, 1000, {0, 1}, spec).seconds, 1e-6);
    EXPECT_EQ(cost_of(CommKind::all_reduce, 1000, {0, 4}, spec).detail, "openmpi");
    ClusterSpec unmeasured = spec;
    unmeasured.transport_samples.clear();
    EXPECT_EQ(cost_of(CommKind::all_reduce, 1000, {0, 1}, unmeasured).detail, "openmpi");
    unmeasured.nodes = 1;  // a single node without samples asks for calibration
    EXPECT_THROW((void)cost_of(CommKind::all_reduce, 1000, {0, 1}, unmeasured), InputError);
}

TEST(CpuNodes, TimesOfEveryKindGrowWithTheMessage) {
    const ClusterSpec spec = cpu_nodes(3);
    for (std::size_t k = 0; k < program::kCommKinds; ++k) {
        const auto kind = static_cast<CommKind>(k);
        const bool is_pair = kind == CommKind::send || kind == CommKind::recv;
        const std::vector<std::int64_t> devices = is_pair ? std::vector<std::int64_t>{0, 4} : rounded::strided(0, 9, 1);
        const double empty = cost_of(kind, 0, devices, spec).seconds;
        EXPECT_GT(empty, 0);
        EXPECT_GT(cost_of(kind, 100'000'000, devices, spec).seconds, empty);
    }
}

}  // namespace
}  // namespace orrery::sim::algorithms
