// NCCL's choice of algorithm and protocol, and the times of each with round figures.
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "sim/network/nccl_time.h"
#include "tests/unit/network/round_cluster.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using rounded::kGiB;
using rounded::kMiB;
using rounded::place;
using rounded::round_cluster;
using rounded::strided;
using topologies::Cluster;
using topologies::ClusterSpec;
using topologies::load_cluster;

topologies::Figure figure(double value) {
    return {value, topologies::Provenance::fallback, "round"};
}

/// The round cluster (port 400 nominal, NIC 40 at 0.5) with round figures for NCCL: ring 300, NVLS 200.
ClusterSpec fitted_cluster(std::int64_t devices) {
    ClusterSpec spec = round_cluster(devices);
    topologies::NcclProfile nccl;
    nccl.channels = 16;
    nccl.ring = {{topologies::NodePart::node, figure(0.75)}};
    nccl.base_us = figure(5);
    nccl.step_us = figure(1);
    nccl.ll_channel_gb_per_s = figure(8);
    nccl.ll128_share = figure(0.9);
    nccl.simple_base_us = figure(10);
    nccl.simple_step_us = figure(4);
    nccl.copy_gb_per_s = figure(1000);
    nccl.fill = figure(0.5);
    nccl.grouped_share = figure(0.8);
    nccl.nvls_share = figure(0.5);
    nccl.nvls_rounds = figure(2);
    spec.device.nccl = nccl;
    spec.nic.nccl = topologies::NcclNetwork{figure(10), figure(0.5)};
    return spec;
}

double overlapped(double a, double b) {
    return std::pow(std::pow(a, 1.5) + std::pow(b, 1.5), 1 / 1.5);
}

/// Bytes that fill the pipeline: the first 16 channels * 2 MiB, and a falling share of the following ones.
double filled(double bytes) {
    return 32.0 * kMiB * std::log1p(bytes / (32.0 * kMiB));
}

/// NVLS: at most 16 channels * 8 heads * 128 KiB are in flight.
double saturated(double bytes) {
    return bytes * 16.0 * kMiB / (bytes + 16.0 * kMiB);
}

/// Time of one way, whichever NCCL would choose.
double seconds_on(const ClusterSpec& spec, CommKind kind, std::int64_t bytes, std::int64_t ranks, NcclWay way) {
    return fitted_seconds(way, kind, bytes, place(Cluster(spec), strided(0, ranks, 1)), spec, {});
}
double seconds(CommKind kind, std::int64_t bytes, std::int64_t ranks, std::int64_t devices, Algorithm algorithm,
               NcclProtocol protocol) {
    return seconds_on(fitted_cluster(devices), kind, bytes, ranks, {algorithm, protocol});
}

TEST(NcclTime, RingInsideANodeMatchesItsClosedForm) {
    const double s = 8.0 * kMiB;
    const auto time = [](CommKind kind, NcclProtocol protocol) {
        return seconds(kind, 8 * kMiB, 4, 8, Algorithm::ring, protocol);
    };
    // LL: base + steps + (steps + 1)/n S through 16 channels of 8 GB/s.
    EXPECT_DOUBLE_EQ(time(CommKind::all_reduce, NcclProtocol::ll), 11e-6 + s * 7 / 4 / 128e9);
    EXPECT_DOUBLE_EQ(time(CommKind::all_gather, NcclProtocol::ll), 8e-6 + s * 4 / 4 / 128e9);
    // LL128: steps of 1.9/0.6 us, 0.9 of the ring's 300 GB/s, and the copy of S/n.
    EXPECT_DOUBLE_EQ(time(CommKind::all_gather, NcclProtocol::ll128),
                     5e-6 + 3 * 1e-6 * (1.9 / 0.6) + s * 3 / 4 / 270e9 + s / 4 / 1000e9);
    // Simple: steps and data overlap; half of the pipeline's fill is not hidden.
    EXPECT_DOUBLE_EQ(time(CommKind::reduce_scatter, NcclProtocol::simple),
                     10e-6 + overlapped(12e-6, s * 3 / 4 / 300e9 + s / 4 / 1000e9 + 0.5 * filled(s / 4) / 300e9));
}

TEST(NcclTime, LowLatencyOpensOneChannelPer4KiBAndMember) {
    const auto time = [](std::int64_t bytes) {
        return seconds(CommKind::all_gather, bytes, 4, 8, Algorithm::ring, NcclProtocol::ll);
    };
    EXPECT_DOUBLE_EQ(time(8192), 8e-6 + 8192.0 / 8e9);    // one channel
    EXPECT_DOUBLE_EQ(time(65536), 8e-6 + 16384.0 / 8e9);  // four
    EXPECT_DOUBLE_EQ(time(262144), 8e-6 + 16384.0 / 8e9);
    EXPECT_DOUBLE_EQ(time(524288), 8e-6 + 32768.0 / 8e9);  // all sixteen
}

TEST(NcclTime, RingAcrossNodesMatchesItsClosedForm) {
    const double s = 64.0 * kMiB;
    // 16 members on 2 nodes: 14 steps inside, 1 between, over 8 NICs of 20 GB/s.
    EXPECT_DOUBLE_EQ(seconds(CommKind::all_gather, 64 * kMiB, 16, 16, Algorithm::ring, NcclProtocol::simple),
                     10e-6 + overlapped(14 * 4e-6 + 10e-6 * (14.0 / 5),
                                        s * 15 / 16 / 160e9 + s / 16 / 1000e9 + 0.5 * filled(s / 16) / 160e9));
    EXPECT_DOUBLE_EQ(seconds(CommKind::all_gather, 65536, 16, 16, Algorithm::ring, NcclProtocol::ll),
                     5e-6 + 14e-6 + 10e-6 + 65536.0 / 8e9);
    // LL's limit between two nodes is 20 GB/s, below half of 160.
    EXPECT_DOUBLE_EQ(seconds(CommKind::all_gather, 64 * kMiB, 16, 16, Algorithm::ring, NcclProtocol::ll),
                     5e-6 + 14e-6 + 10e-6 + s * 15 / 16 / 20e9);
}

TEST(NcclTime, TreeUsesNcclsBandwidthAndTheProfilesSteps) {
    // 7 steps up and down in each of 2 nodes, one between. LL: 0.92 * 160 / 3.8 limited to 20, and two thirds of the
    // first MiB fill the pipeline.
    const double filled = 2.0 / 3 * kMiB * std::log1p(65536.0 / kMiB);
    EXPECT_DOUBLE_EQ(seconds(CommKind::all_reduce, 65536, 16, 16, Algorithm::double_binary_tree, NcclProtocol::ll),
                     5e-6 + 14e-6 + 2 * 10e-6 + 2 * (65536 + filled) / 20e9);
    // Inside a node both passes use as many channels of 8 GB/s as a ring opens.
    EXPECT_DOUBLE_EQ(seconds(CommKind::all_reduce, 65536, 8, 8, Algorithm::double_binary_tree, NcclProtocol::ll),
                     5e-6 + 14e-6 + 2 * 32768 / 8e9);
}

TEST(NcclTime, NvlsMatchesItsClosedForm) {
    const auto time = [](std::int64_t bytes, std::int64_t ranks, Algorithm algorithm) {
        return seconds(CommKind::all_reduce, bytes, ranks, ranks, algorithm, NcclProtocol::simple);
    };
    const double s = kGiB, base = 10e-6 + 2 * 4e-6, fill = 2 * saturated(s) / 200e9;
    // Two steps, to the switch and back; 2 rounds fill the pipeline; then 9/8 of S at 200 GB/s.
    EXPECT_DOUBLE_EQ(time(kGiB, 8, Algorithm::nvls), base + fill + s * 9 / 8 / 200e9);
    EXPECT_DOUBLE_EQ(time(kMiB, 8, Algorithm::nvls), base + 2 * saturated(kMiB) / 200e9 + 1.0 * kMiB * 9 / 8 / 200e9);
    // Two nodes: half as much fill again, and S over 8 NICs of 20 GB/s, which takes as long as 10/8 of S through the
    // ports.
    EXPECT_DOUBLE_EQ(time(kGiB, 16, Algorithm::nvls_tree), base + 2 * 28e-6 + 1.5 * fill + s / 160e9);
    // Four nodes: the NICs of a node that is inner in one tree and a leaf in the other carry 2 S; with three nodes 1.5
    // S.
    EXPECT_DOUBLE_EQ(time(kGiB, 32, Algorithm::nvls_tree), base + 4 * 28e-6 + 2.5 * fill + 2 * s / 160e9);
    EXPECT_DOUBLE_EQ(time(kGiB, 24, Algorithm::nvls_tree), base + 4 * 28e-6 + 2.5 * fill + 1.5 * s / 160e9);
}

TEST(NcclTime, InnerNodesOfAnNvlsTreeAreSlowerByNcclsTable) {
    ClusterSpec spec = fitted_cluster(32);
    spec.nic.bandwidth_gb_per_s_per_direction.value = 1000;
    const double s = kGiB, fixed = 18e-6 + 4 * 28e-6 + 2.5 * 2 * saturated(s) / 200e9;
    const NcclWay tree{Algorithm::nvls_tree, NcclProtocol::simple};
    EXPECT_DOUBLE_EQ(seconds_on(spec, CommKind::all_reduce, kGiB, 32, tree),
                     fixed + 57.7 / 45.5 * (s * 10 / 8 / 200e9));
    spec.device.compute_capability = 100;
    EXPECT_DOUBLE_EQ(seconds_on(spec, CommKind::all_reduce, kGiB, 32, tree), fixed + 96 / 43.8 * (s * 10 / 8 / 200e9));
}

TEST(NcclTime, GroupedSendsOpenChannelsToo) {
    const ClusterSpec spec = fitted_cluster(8);
    const Cluster cluster(spec);
    const double s = 64.0 * kMiB;
    EXPECT_DOUBLE_EQ(collective_cost(CommKind::all_to_all, 64 * kMiB, place(cluster, strided(0, 8, 1)), spec).seconds,
                     5e-6 + (4e-6 + 65536.0 / (240e9 / 32) + 4.0 * kMiB / 240e9 + s * 7 / 8 / 240e9 + s / 8 / 1000e9));
}

TEST(NcclTime, ASendIsOneGroupedTransfer) {
    const ClusterSpec spec = fitted_cluster(8);
    const Cluster cluster(spec);
    const auto time = [&](std::int64_t bytes) {
        return collective_cost(CommKind::send, bytes, place(cluster, {0, 1}), spec).seconds;
    };
    EXPECT_DOUBLE_EQ(time(0), 7e-6);
    EXPECT_DOUBLE_EQ(time(8 * kMiB), 7e-6 + (65536.0 * 32 + 1.25 * 8 * kMiB) / 240e9);
}

TEST(NcclTime, AChainForwardsTheWholeMessage) {
    const double s = 64.0 * kMiB;
    for (const CommKind kind : {CommKind::broadcast, CommKind::reduce}) {
        EXPECT_DOUBLE_EQ(seconds(kind, 64 * kMiB, 4, 8, Algorithm::ring, NcclProtocol::simple),
                         10e-6 + overlapped(12e-6, s / 300e9 + 0.5 * filled(s / 4) / 300e9));
        EXPECT_DOUBLE_EQ(seconds(kind, 64 * kMiB, 4, 8, Algorithm::ring, NcclProtocol::ll), 8e-6 + s / 128e9);
    }
}

TEST(NcclTime, PatScalesWithTheNetworksSteps) {
    // 4 nodes with one member each: NCCL's 14 us per step are 28 us here.
    const ClusterSpec spec = fitted_cluster(32);
    const Cluster cluster(spec);
    const CollectiveOptions pat{.algorithm = Algorithm::pat};
    EXPECT_DOUBLE_EQ(collective_cost(CommKind::all_gather, kMiB, place(cluster, strided(0, 4, 8)), spec, pat).seconds,
                     8e-6 + 2 * (2 * 14e-6 / 3.5 + 4 * 2.8e-6) + 1.0 * kMiB / (0.75 * 20e9));
}

TEST(NcclTime, NvlsTreeCountsBytesOfPortAndNic) {
    const ClusterSpec spec = fitted_cluster(16);
    const Cluster cluster(spec);
    const CollectiveOptions tree{.algorithm = Algorithm::nvls_tree};
    const CollectiveCost cost =
        collective_cost(CommKind::all_reduce, 8000, place(cluster, strided(0, 16, 1)), spec, tree);
    EXPECT_EQ(cost.intra_node_bytes, 9000);
    EXPECT_EQ(cost.nic_bytes, 1000);
}

CollectiveCost chosen(const char* preset, CommKind kind, std::int64_t bytes, std::int64_t ranks,
                      const CollectiveOptions& how = {}) {
    const ClusterSpec spec = load_cluster(preset, ranks <= 8 ? 8 : ranks);
    return collective_cost(kind, bytes, place(Cluster(spec), strided(0, ranks, 1)), spec, how);
}

/// A plugin's tuner chooses by measurements, so the fastest way is taken.
TEST(NcclChoice, APluginTakesTheFastestWay) {
    ClusterSpec spec = fitted_cluster(16);
    spec.nic.nccl->plugin_tuner = true;
    const Cluster cluster(spec);
    const GroupPlacement p = place(cluster, strided(0, 16, 1));
    for (std::int64_t bytes = 1024; bytes <= kGiB; bytes *= 8) {
        const double free = collective_cost(CommKind::all_reduce, bytes, p, spec).seconds;
        for (const Algorithm algorithm : {Algorithm::ring, Algorithm::double_binary_tree, Algorithm::nvls_tree}) {
            for (const NcclProtocol protocol : {NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple}) {
                if (algorithm == Algorithm::nvls_tree && protocol != NcclProtocol::simple) continue;
                const CollectiveOptions how{.algorithm = algorithm, .protocol = protocol};
                EXPECT_LE(free, collective_cost(CommKind::all_reduce, bytes, p, spec, how).seconds) << bytes;
            }
        }
    }
}

/// The largest power of two of bytes for which NCCL chooses the protocol with a ring; 0: none.
std::int64_t most_taken(const char* preset, CommKind kind, std::int64_t ranks, NcclProtocol protocol,
                        const CollectiveOptions& how = {}) {
    const ClusterSpec spec = load_cluster(preset, 8);
    for (const TakenWay& taken : taken_ways(kind, place(Cluster(spec), strided(0, ranks, 1)), spec, how)) {
        if (taken.way == NcclWay{Algorithm::ring, protocol}) return taken.most_bytes;
    }
    return 0;
}

/// 8 B200 keep LL up to 2 MiB (stas00/ml-engineering), although their NVLink adds latency to each step that NCCL's
/// tuner does not know. 2 H100 do too, since the search for channels finds 360 of 371 GB/s.
TEST(NcclChoice, TheTunerUsesNcclsOwnEstimates) {
    EXPECT_EQ(chosen("dgx-b200", CommKind::all_reduce, 32768, 8).detail, "LL");
    EXPECT_EQ(chosen("dgx-b200", CommKind::all_reduce, kMiB, 8).detail, "LL");
    EXPECT_EQ(chosen("dgx-b200", CommKind::all_reduce, 4 * kMiB, 8).algorithm_name(), "nvls");
    EXPECT_EQ(most_taken("dgx-h100", CommKind::reduce_scatter, 2, NcclProtocol::ll), 2 * kMiB);
    EXPECT_EQ(most_taken("dgx-h100", CommKind::reduce_scatter, 2, NcclProtocol::ll128), 0);
}

/// Sizes at which NVIDIA's measurements jump: 2 A100 change from LL to Simple at 1 MiB, 4 H100 at 4 MiB, 8 H100 from
/// LL128 at 32 MiB.
TEST(NcclChoice, ProtocolsChangeWhereTheMeasurementsJump) {
    EXPECT_EQ(most_taken("dgx-a100", CommKind::all_reduce, 2, NcclProtocol::ll), kMiB / 2);
    EXPECT_EQ(most_taken("dgx-h100", CommKind::all_gather, 4, NcclProtocol::ll), 2 * kMiB);
    EXPECT_EQ(most_taken("dgx-h100", CommKind::all_gather, 8, NcclProtocol::ll128), 16 * kMiB);
    // NCCL 2.29 has a lower ceiling for LL128 on Blackwell.
    EXPECT_EQ(most_taken("dgx-b200", CommKind::all_reduce, 4, NcclProtocol::ll128), 0);
    EXPECT_GE(most_taken("dgx-b200", CommKind::all_reduce, 4, NcclProtocol::ll128, {.nccl_version = 22809}), 8 * kMiB);
}

/// In the measurements the time more than doubles with the message there; the prediction keeps the bandwidth.
TEST(NcclChoice, BeyondItsLargestMessageAWayKeepsItsBandwidth) {
    const double largest = chosen("dgx-a100", CommKind::all_reduce, kMiB / 2, 2).seconds;
    EXPECT_DOUBLE_EQ(chosen("dgx-a100", CommKind::all_reduce, kMiB, 2).seconds, 2 * largest);
    EXPECT_EQ(chosen("dgx-a100", CommKind::all_reduce, 4 * kMiB, 2).detail, "Simple");
    // A way that NCCL never chooses is no faster than its choice.
    EXPECT_GE(chosen("dgx-h100", CommKind::all_reduce, 4096, 8, {.algorithm = Algorithm::double_binary_tree}).seconds,
              chosen("dgx-h100", CommKind::all_reduce, 4096, 8).seconds);
}

/// 64 H100: from 2 GiB on close to the 384 GB/s of their NICs, less the fill of the pipeline.
TEST(NcclChoice, EightNodesReachTheBandwidthOfTheirNics) {
    for (const std::int64_t bytes : {2 * kGiB, 4 * kGiB, 8 * kGiB, 16 * kGiB}) {
        const double seconds = chosen("dgx-h100", CommKind::all_reduce, bytes, 64).seconds;
        const double bus = 2.0 * 63 / 64 * static_cast<double>(bytes) / seconds / 1e9;
        EXPECT_GT(bus, 350) << bytes;
        EXPECT_LT(bus, 390) << bytes;
    }
}

/// stas00/ml-engineering: NVLS from 5 H200 up, and from 6 B200 with NCCL 2.27.
TEST(NcclChoice, SwitchesReduceForLargeGroupsOfFloats) {
    EXPECT_EQ(chosen("hgx-h200", CommKind::all_reduce, kGiB, 4).algorithm_name(), "ring");
    EXPECT_EQ(chosen("hgx-h200", CommKind::all_reduce, kGiB, 5).algorithm_name(), "nvls");
    EXPECT_EQ(chosen("dgx-b200", CommKind::all_reduce, kGiB, 5, {.nccl_version = 22707}).algorithm_name(), "ring");
    EXPECT_EQ(chosen("dgx-b200", CommKind::all_reduce, kGiB, 6, {.nccl_version = 22707}).algorithm_name(), "nvls");
    EXPECT_EQ(chosen("hgx-h200", CommKind::all_reduce, kGiB, 8, {.dtype = DType::uint8}).algorithm_name(), "ring");
    EXPECT_EQ(chosen("hgx-h200", CommKind::all_reduce, kGiB, 8, {.nvls = false}).algorithm_name(), "ring");
    EXPECT_EQ(chosen("hgx-h200", CommKind::all_reduce, 4096, 8).detail, "LL");
    EXPECT_EQ(chosen("dgx-a100", CommKind::all_reduce, kGiB, 8).algorithm_name(), "ring");
    EXPECT_EQ(chosen("dgx-h100", CommKind::all_reduce, kGiB, 16).algorithm_name(), "nvls_tree");
    EXPECT_EQ(chosen("dgx-h100", CommKind::all_gather, kGiB, 16).algorithm_name(), "ring");
}

void expect_impossible(const char* preset, CommKind kind, std::int64_t ranks, const CollectiveOptions& how,
                       const std::string& word) {
    try {
        (void)chosen(preset, kind, kMiB, ranks, how);
        FAIL() << word;
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
}

TEST(NcclChoice, ImpossibleOptionsNameTheReason) {
    expect_impossible("dgx-h100", CommKind::all_reduce, 8, {.algorithm = Algorithm::pat}, "PAT");
    expect_impossible("dgx-h100", CommKind::all_gather, 8, {.algorithm = Algorithm::pat}, "one member on each node");
    expect_impossible("dgx-h100", CommKind::all_gather, 8, {.algorithm = Algorithm::double_binary_tree},
                      "all-reduce only");
    expect_impossible("dgx-a100", CommKind::all_reduce, 8, {.algorithm = Algorithm::nvls}, "90 or more");
    expect_impossible("dgx-h100", CommKind::all_reduce, 8, {.algorithm = Algorithm::nvls_tree}, "one node");
    expect_impossible("dgx-h100", CommKind::all_reduce, 16, {.algorithm = Algorithm::nvls}, "SHARP");
    expect_impossible("dgx-h100", CommKind::all_reduce, 8, {.algorithm = Algorithm::nvls, .protocol = NcclProtocol::ll},
                      "Simple only");
    expect_impossible("pcie-l40s", CommKind::all_reduce, 8, {.protocol = NcclProtocol::ll128}, "NVLink");
    expect_impossible("dgx-h100", CommKind::all_to_all, 8, {.algorithm = Algorithm::ring}, "sends and receives");
    expect_impossible("dgx-h100", CommKind::all_reduce, 8, {.algorithm = Algorithm::bcube}, "NCCL has no bcube");
}

TEST(NcclChoice, FewerChannelsCarryLess) {
    const double all = chosen("dgx-h100", CommKind::all_gather, kGiB, 8).seconds;
    const CollectiveCost half = chosen("dgx-h100", CommKind::all_gather, kGiB, 8, {.channels = 8});
    EXPECT_EQ(half.channels, 8);
    EXPECT_GT(half.seconds, 1.8 * all);
    EXPECT_LT(half.seconds, 2.1 * all);
}

/// PCIe: pairs behind one switch, on one socket, and across sockets.
TEST(NcclTime, PartsOfAPcieNode) {
    const ClusterSpec spec = load_cluster("pcie-l40s", 8);
    const Cluster cluster(spec);
    const auto time = [&](const std::vector<std::int64_t>& devices) {
        return collective_cost(CommKind::all_reduce, 64 * kMiB, place(cluster, devices), spec).seconds;
    };
    EXPECT_EQ(place(cluster, {2, 3}).within, topologies::NodePart::pcie_switch);
    EXPECT_EQ(place(cluster, {1, 2}).within, topologies::NodePart::socket);
    EXPECT_EQ(place(cluster, {3, 4}).within, topologies::NodePart::node);
    EXPECT_GT(time({1, 2}), 3 * time({0, 1}));
    EXPECT_GT(time({3, 4}), 3 * time({1, 2}));
}

/// The kind of a link decides its price, not its name.
TEST(NcclTime, AUsersPcieLinkIsPricedAsPcie) {
    const ClusterSpec known = load_cluster("pcie-l40s", 8);
    std::string text = topologies::to_json_text(known);
    for (std::size_t at = text.find("pcie-gen4-x16"); at != std::string::npos; at = text.find("pcie-gen4-x16")) {
        text.replace(at, std::string("pcie-gen4-x16").size(), "my-bus");
    }
    ClusterSpec own = topologies::sized_for(topologies::cluster_from_json_text(text, "own.json"), 8);
    ASSERT_EQ(own.intra_node.name, "my-bus");
    const auto seconds = [](const ClusterSpec& spec, CommKind kind, std::int64_t bytes) {
        return collective_cost(kind, bytes, place(Cluster(spec), strided(0, 8, 1)), spec).seconds;
    };
    for (const CommKind kind : {CommKind::all_reduce, CommKind::all_gather, CommKind::all_to_all}) {
        for (const std::int64_t bytes : {std::int64_t{4096}, kMiB, 64 * kMiB}) {
            EXPECT_EQ(seconds(own, kind, bytes), seconds(known, kind, bytes));
        }
    }
    own.intra_node.kind = topologies::LinkMedium::nvlink;
    EXPECT_NE(seconds(own, CommKind::all_to_all, kMiB), seconds(known, CommKind::all_to_all, kMiB));
}

TEST(NcclTime, PcieLinksBoundTheRingBandwidth) {
    ClusterSpec spec = load_cluster("pcie-rtx-pro-6000", 8);
    const auto bandwidth = [&](const std::vector<std::int64_t>& devices) {
        return fitted_ring_bandwidth(place(Cluster(spec), devices), spec);
    };
    const auto& rings = spec.device.nccl->ring;
    const double port = spec.intra_node.bandwidth_gb_per_s_per_direction.value * kGigabyte;
    EXPECT_DOUBLE_EQ(bandwidth({0, 1}), port * rings.front().share_of_port.value);
    EXPECT_DOUBLE_EQ(bandwidth({0, 4}), port * rings.back().share_of_port.value);
    spec.inside.socket_link.bandwidth_gb_per_s_per_direction.value = 10;
    spec.inside.socket_link.efficiency.value = 1;
    EXPECT_DOUBLE_EQ(bandwidth({0, 1}), port * rings.front().share_of_port.value);
    EXPECT_DOUBLE_EQ(bandwidth({0, 4}), 10 * kGigabyte);
}

}  // namespace
}  // namespace orrery::sim
