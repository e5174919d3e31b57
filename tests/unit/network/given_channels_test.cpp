// The channels that NCCL's graph files give to collectives.
#include "sim/network/given_channels.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "sim/network/nccl_tuner.h"
#include "tests/unit/network/round_cluster.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using rounded::kGiB;
using rounded::place;
using rounded::strided;
using topologies::Cluster;
using topologies::ClusterSpec;

/// A graph with this many channels over 8 GPUs.
std::string graph(int id, int pattern, int channels, const std::string& net = "", const std::string& inter = "0") {
    std::string text = "<graph id=\"" + std::to_string(id) + "\" pattern=\"" + std::to_string(pattern) +
                       "\" nchannels=\"" + std::to_string(channels) + "\" speedintra=\"20\" speedinter=\"" + inter +
                       "\" typeintra=\"NVL\" typeinter=\"PIX\">";
    for (int i = 0; i < channels; ++i) {
        text += "<channel>" + net;
        for (int gpu = 0; gpu < 8; ++gpu) text += "<gpu dev=\"" + std::to_string(gpu) + "\"/>";
        text += "</channel>";
    }
    return text + "</graph>";
}

CollectiveOptions given(const std::string& graphs, const GroupPlacement& p) {
    CollectiveOptions options;
    options.given_channels = given_channels(
        topologies::nccl_graphs_from_text("<graphs version=\"1\">" + graphs + "</graphs>", "my.xml"), "my.xml", p);
    return options;
}

std::string refusal(const std::string& graphs, const GroupPlacement& p) {
    try {
        (void)given(graphs, p);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(GivenChannels, AreReadFromTheFile) {
    const ClusterSpec spec = topologies::load_cluster("dgx-h100", 8);
    const GroupPlacement p = place(Cluster(spec), strided(0, 8, 1));
    const CollectiveOptions options = given(graph(0, 4, 2) + graph(1, 1, 0) + graph(3, 5, 4), p);
    ASSERT_EQ(options.given_channels.size(), 4U);
    EXPECT_EQ(options.given_channels[0], (GivenChannels{Algorithm::ring, 2, 20e9}));
    EXPECT_EQ(given_for(Algorithm::double_binary_tree, options)->channels, 0);
    EXPECT_EQ(given_for(Algorithm::nvls_tree, options)->channels, 4);
    EXPECT_EQ(given_for(Algorithm::pat, options), nullptr);
}

TEST(GivenChannels, AlgorithmsWithoutChannelsAreNotChosen) {
    const ClusterSpec spec = topologies::load_cluster("dgx-h100", 8);
    const GroupPlacement p = place(Cluster(spec), strided(0, 8, 1));
    const CollectiveOptions only_ring = given(graph(0, 4, 16) + graph(1, 1, 0) + graph(3, 5, 0), p);
    for (std::int64_t bytes = 8; bytes <= kGiB; bytes *= 8) {
        const CollectiveCost cost = collective_cost(CommKind::all_reduce, bytes, p, spec, only_ring);
        EXPECT_EQ(cost.algorithm_name(), "ring") << bytes;
        EXPECT_EQ(cost.channels, 16) << bytes;
    }
    EXPECT_EQ(collective_cost(CommKind::all_reduce, kGiB, p, spec).algorithm_name(), "nvls");
    CollectiveOptions tree = only_ring;
    tree.algorithm = Algorithm::double_binary_tree;
    EXPECT_THROW((void)collective_cost(CommKind::all_reduce, kGiB, p, spec, tree), InputError);
}

TEST(GivenChannels, FewerTakeLonger) {
    const ClusterSpec spec = topologies::load_cluster("dgx-h100", 8);
    const GroupPlacement p = place(Cluster(spec), strided(0, 8, 1));
    const auto seconds = [&](int channels) {
        return collective_cost(CommKind::all_gather, kGiB, p, spec, given(graph(0, 4, channels), p)).seconds;
    };
    EXPECT_LT(seconds(16), seconds(4));
    EXPECT_NEAR(seconds(1) / seconds(2), 2, 0.1);
}

TEST(GivenChannels, TheTunerUsesTheirBandwidth) {
    // Without figures for the device the estimate is the time: 4 channels of 20 GB/s instead of 300 GB/s of NVLink.
    const ClusterSpec spec = rounded::round_cluster(8);
    const GroupPlacement p = place(Cluster(spec), strided(0, 8, 1));
    const NcclWay ring{Algorithm::ring, NcclProtocol::simple};
    EXPECT_DOUBLE_EQ(published_time(ring, CommKind::all_gather, p, spec, {}).seconds_per_byte, 7.0 / 8 / 300e9);
    EXPECT_DOUBLE_EQ(published_time(ring, CommKind::all_gather, p, spec, given(graph(0, 4, 4), p)).seconds_per_byte,
                     7.0 / 8 / 80e9);
    // Up to two nodes the speed inside the node counts, for more nodes the one between them.
    const std::string net = "<net dev=\"0\"/>";
    const ClusterSpec more = rounded::round_cluster(32);
    const Cluster cluster(more);
    EXPECT_EQ(given(graph(0, 4, 4, net, "10"), place(cluster, strided(0, 16, 1))).given_channels[0].bytes_per_s_each,
              20e9);
    EXPECT_EQ(given(graph(0, 4, 4, net, "10"), place(cluster, strided(0, 32, 1))).given_channels[0].bytes_per_s_each,
              10e9);
}

TEST(GivenChannels, RefuseFilesForOtherNodes) {
    const ClusterSpec spec = rounded::round_cluster(32);
    const Cluster cluster(spec);
    EXPECT_NE(
        refusal(graph(0, 4, 2), place(cluster, {0, 1})).find("my.xml: ring: <gpu> of a channel: got 8; allowed: 2"),
        std::string::npos);
    EXPECT_NE(refusal(graph(0, 4, 2), place(cluster, strided(0, 12, 1))).find("allowed: 4 to 8"), std::string::npos);
    EXPECT_NE(refusal(graph(1, 1, 2), place(cluster, strided(0, 16, 1))).find("tree: a channel without a <net>"),
              std::string::npos);
    EXPECT_NE(refusal(graph(0, 4, 2, "<net dev=\"0\"/>"), place(cluster, strided(0, 32, 1))).find("speedinter"),
              std::string::npos);
}

}  // namespace
}  // namespace orrery::sim
