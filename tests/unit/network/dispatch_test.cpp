// Tokens that travel to each node and rank only once: bytes against tokens that are sent one by one, time against
// DeepEP's published measurements, load on links against the bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "sim/network/algorithms/link_loads.h"
#include "sim/network/operation.h"
#include "sim/program/token_dispatch.h"
#include "tests/unit/network/round_cluster.h"
#include "topologies/cluster_variant.h"

namespace orrery::sim {
namespace {

using models::TokenRouting;
using program::CommKind;
using program::DispatchBytes;
using program::GroupAxis;
using rounded::kMiB;
using rounded::place;
using rounded::round_cluster;
using rounded::strided;
using topologies::Cluster;
using topologies::ClusterSpec;

constexpr TokenRouting kDeepseek{.experts = 256, .top_k = 8, .groups = 8, .top_k_groups = 4};

OperationPrice price(const TokenRouting& routing, std::int64_t bytes, const std::vector<std::int64_t>& devices,
                     const ClusterSpec& spec) {
    const Operation operation{.kind = CommKind::all_to_all, .bytes = bytes, .tokens_once = routing};
    return price_of(operation, GroupAxis::ep, place(Cluster(spec), devices), spec);
}

/// Transfers of one token of `tokens` bytes each through NICs and ports, sent and forwarded one by one.
struct Counted {
    double nic = 0, port = 0, own = 0;  // tokens for each token of a member
};
Counted count(const TokenRouting& routing, std::int64_t nodes, std::int64_t members, std::int64_t tokens) {
    const RandomStream stream(3, "dispatch");
    std::uint64_t drawn = 0;
    const std::int64_t ranks = nodes * members;
    Counted counted;
    std::vector<std::int64_t> experts(static_cast<std::size_t>(routing.experts));
    for (std::int64_t token = 0; token < tokens; ++token) {
        const std::int64_t sender = token % ranks;
        std::iota(experts.begin(), experts.end(), 0);
        std::set<std::int64_t> to_nodes, to_ranks;
        for (std::int64_t i = 0; i < routing.top_k; ++i) {
            const std::int64_t at =
                i + static_cast<std::int64_t>(stream.below(drawn++, static_cast<std::uint64_t>(routing.experts - i)));
            std::swap(experts[static_cast<std::size_t>(i)], experts[static_cast<std::size_t>(at)]);
            const std::int64_t rank = experts[static_cast<std::size_t>(i)] * ranks / routing.experts;
            to_ranks.insert(rank);
            to_nodes.insert(rank / members);
        }
        for (const std::int64_t node : to_nodes) counted.nic += node != sender / members ? 1 : 0;
        for (const std::int64_t rank : to_ranks) {
            const std::int64_t first = rank / members * members + sender % members;  // of its node, reached first
            counted.port += rank != first ? 1 : 0;
            counted.own += rank == sender ? 1 : 0;
        }
    }
    for (double* sum : {&counted.nic, &counted.port, &counted.own}) *sum /= static_cast<double>(tokens);
    return counted;
}

TEST(Dispatch, BytesAreThoseOfTokensSentOneByOne) {
    constexpr std::int64_t kToken = 1'000'000, kTokens = 40'000;
    for (const TokenRouting& routing : {TokenRouting{64, 8}, TokenRouting{64, 1}, TokenRouting{64, 2}}) {
        for (const std::int64_t nodes : {1, 2, 4, 8}) {
            for (const std::int64_t members : {1, 2, 8}) {
                const DispatchBytes bytes = program::dispatch_bytes(
                    routing, routing.top_k * kToken, {.ranks = nodes * members, .nodes = nodes, .members = members});
                const Counted counted = count(routing, nodes, members, kTokens);
                EXPECT_NEAR(static_cast<double>(bytes.nic) / kToken, counted.nic, 0.02) << nodes << " x " << members;
                EXPECT_NEAR(static_cast<double>(bytes.port) / kToken, counted.port, 0.03) << nodes << " x " << members;
                EXPECT_NEAR(static_cast<double>(bytes.own) / kToken, counted.own, 0.02) << nodes << " x " << members;
            }
        }
    }
}

TEST(Dispatch, NicsCarryATokenOnceForEachNode) {
    const ClusterSpec spec = round_cluster(64);
    const std::vector<std::int64_t> all = strided(0, 64, 1);
    constexpr std::int64_t kBytes = 800 * kMiB;  // 100 MiB of tokens
    const OperationPrice once = price(kDeepseek, kBytes, all, spec);
    const CollectiveCost copies = collective_cost(CommKind::all_to_all, kBytes, place(Cluster(spec), all), spec);
    const double nodes = models::expected_places(kDeepseek, 8), ranks = models::expected_places(kDeepseek, 64);
    EXPECT_NEAR(static_cast<double>(once.cost.nic_bytes), 100 * kMiB * nodes * 7 / 8, 1);
    EXPECT_NEAR(static_cast<double>(once.cost.intra_node_bytes), 100 * kMiB * ranks * 7 / 8, 1);
    EXPECT_EQ(copies.nic_bytes, kBytes / 8 * 7);
    EXPECT_NEAR(once.cost.seconds, static_cast<double>(once.cost.nic_bytes) / 20e9, 50e-6);
    EXPECT_NEAR(copies.seconds / once.cost.seconds, 8 / nodes, 0.02);
    // With one expert a token there is nothing to save.
    const TokenRouting one{.experts = 256, .top_k = 1};
    EXPECT_EQ(price(one, kBytes, all, spec).cost.nic_bytes, copies.nic_bytes);
    // Inside a node only ports carry tokens.
    const OperationPrice inside = price(kDeepseek, kBytes, strided(0, 8, 1), spec);
    EXPECT_EQ(inside.cost.nic_bytes, 0);
    EXPECT_NEAR(static_cast<double>(inside.cost.intra_node_bytes),
                100 * kMiB * models::expected_places(kDeepseek, 8) * 7 / 8, 1);
    EXPECT_EQ(price(kDeepseek, kBytes, {5}, spec).cost.seconds, 0);
}

/// deepseek-ai/DeepEP docs/legacy.md: 4,096 tokens of 7,168, 8 of 256 experts, H800 with a 400 Gb/s NIC each. Its
/// bandwidths are those of tokens to all ranks of one node, or to all nodes, the sender's own included
/// (tests/legacy/test_intranode.py, test_internode.py); groups are the nodes, of which a token chooses up to 4.
TEST(Dispatch, TimesAreNearThoseOfDeepEp) {
    struct Row {
        std::int64_t ranks = 0;
        double dispatch_gb_per_s = 0, combine_gb_per_s = 0;
    };
    constexpr double kFp8 = (1 + 4.0 / 128) / 2;  // bytes with scales, relative to bf16
    for (const Row& row : {Row{8, 153, 158}, Row{16, 43, 43}, Row{32, 58, 57}, Row{64, 51, 50}}) {
        const ClusterSpec spec = topologies::make_cluster(
            {.base = "dgx-h100", .device = "h800-sxm-80gb", .intra_node = "nvlink-400"}, row.ranks);
        const std::int64_t nodes = row.ranks / 8;
        const TokenRouting routing{
            .experts = 256, .top_k = 8, .groups = nodes, .top_k_groups = std::min<std::int64_t>(nodes, 4)};
        const double counted = models::expected_places(routing, nodes > 1 ? nodes : row.ranks);
        for (const double bytes_each : {kFp8, 1.0}) {
            const double tokens = 4096.0 * 7168 * 2 * bytes_each;
            const double measured =
                tokens * counted / (1e9 * (bytes_each < 1 ? row.dispatch_gb_per_s : row.combine_gb_per_s));
            const OperationPrice found = price(routing, std::llround(8 * tokens), strided(0, row.ranks, 1), spec);
            EXPECT_GT(found.cost.seconds, 0.85 * measured) << row.ranks << ": " << 1e3 * found.cost.seconds << " ms";
            EXPECT_LT(found.cost.seconds, measured) << row.ranks << ": " << 1e3 * found.cost.seconds << " ms";
            RecordProperty("ranks " + std::to_string(row.ranks) + (bytes_each < 1 ? " dispatch" : " combine"),
                           std::to_string(1e3 * measured) + " ms measured, " +
                               std::to_string(1e3 * found.cost.seconds) + " ms predicted");
        }
    }
}

TEST(Dispatch, LoadsNicsWithItsBytes) {
    const ClusterSpec spec = round_cluster(64);
    const Cluster cluster(spec);
    const std::vector<std::int64_t> all = strided(0, 64, 1);
    const OperationPrice once = price(kDeepseek, 800 * kMiB, all, spec);
    algorithms::LinkLoads loads(cluster);
    int nics = 0;
    for (const algorithms::LinkLoad& load : loads.of(*once.cost.algorithm, CommKind::all_to_all, all).links) {
        if (cluster.link(load.link).kind != topologies::LinkKind::nic) continue;
        ++nics;
        EXPECT_NEAR(load.coefficient * static_cast<double>(once.loading_bytes),
                    static_cast<double>(once.cost.nic_bytes), 2);
    }
    EXPECT_EQ(nics, 2 * 64);
}

/// Nodes of 3 and 5 members: the fullest node's port counts.
TEST(Dispatch, AcceptsUnequalNodes) {
    const ClusterSpec spec = round_cluster(16);
    const OperationPrice once = price({64, 8}, 800 * kMiB, {0, 1, 2, 8, 9, 10, 11, 12}, spec);
    EXPECT_GT(once.cost.seconds, 0);
    EXPECT_NEAR(static_cast<double>(once.cost.intra_node_bytes),
                100 * kMiB * models::expected_places({64, 8}, 8) * 4 / 5, 1);
}

TEST(Dispatch, OccupiesTwentyUnits) {
    ClusterSpec spec = round_cluster(16);
    topologies::CollectiveKernels kernels;
    kernels.memory_passes.value = 2.5;
    spec.device.collective_kernels = kernels;
    const OperationPrice once = price(kDeepseek, 800 * kMiB, strided(0, 16, 1), spec);
    EXPECT_EQ(once.demand.compute_units, 20);
    EXPECT_NEAR(static_cast<double>(once.demand.memory_bytes),
                2.5 * static_cast<double>(once.cost.nic_bytes + once.cost.intra_node_bytes), 2);
    EXPECT_EQ(price(kDeepseek, 800 * kMiB, {5}, spec).demand.compute_units, 0);
    spec.device.collective_kernels.reset();
    EXPECT_EQ(price(kDeepseek, 800 * kMiB, strided(0, 16, 1), spec).demand.compute_units, 0);
}

}  // namespace
}  // namespace orrery::sim
