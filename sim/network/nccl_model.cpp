#include "sim/network/nccl_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>

#include "core/error.h"
#include "sim/network/fraction.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using topologies::ClusterSpec;

enum Protocol : std::size_t { kLl, kLl128, kSimple, kProtocolCount };
constexpr std::array<const char*, kProtocolCount> kProtocolNames{"LL", "LL128", "Simple"};

/// Microseconds by protocol. Base: once an operation; NVLink and network: a step, beyond the links' own latency.
using ByProtocol = std::array<double, kProtocolCount>;
constexpr ByProtocol kRingBaseUs{6.6, 14.0, 8.4};
constexpr ByProtocol kTreeBaseUs{6.8, 14.0, 8.4};
constexpr ByProtocol kRingNvlinkUs{0.6, 1.9, 3.4};
constexpr ByProtocol kTreeNvlinkUs{0.6, 1.25, 4.0};
constexpr ByProtocol kRingNetworkUs{2.7, 4.0, 14.0};
constexpr ByProtocol kTreeNetworkUs{5.0, 8.5, 14.0};
/// Handing data to the network costs at least this much a step once a ring leaves the node.
constexpr ByProtocol kNetworkOverheadUs{1.0, 1.0, 3.0};
/// Steps of a Simple ring all-reduce across nodes pile up on each other (Ampere and later).
constexpr double kRingPlateau = 1.4;
/// Share of the ring's bandwidth. LL stores a flag beside every 4 bytes of data; LL128 beside every 120 of 128.
constexpr double kLlShare = 0.5;
constexpr double kLl128Share = 0.92;
constexpr double kTreeShare = 0.92;
constexpr double kTreeLlDivisor = 3.8;
constexpr double kTreeLl128OneNode = 7.0 / 9.0;
constexpr double kTreeLl128 = 120.0 / 128.0;
/// Largest transfer for which point-to-point operations take LL (NCCL_P2P_LL_THRESHOLD).
constexpr std::int64_t kTransferLlBytes = 16384;
/// Share of a ring's port that large grouped sends reach in Simple. Fitted: all-to-all of 8 GPUs at 512 MiB
/// (nccl-tests, ai-dynamo/aiconfigurator) has 203 of 240 GB/s on A100, 315 of 371 on H100.
constexpr double kGroupedPortShare = 0.85;

double microseconds(Picoseconds time) {
    return to_seconds(time) * 1e6;
}

double low_latency_limit(const GroupPlacement& placement, const ClusterSpec& cluster) {
    const auto& limits = cluster.low_latency;
    const auto& figure = placement.nodes == 1   ? limits.one_node_gb_per_s
                         : placement.nodes == 2 ? limits.two_nodes_gb_per_s
                                                : limits.more_nodes_gb_per_s;
    ORRERY_CHECK(figure.value > 0, "cluster " + cluster.name + " has no LL ceiling");
    return figure.value * kGigabyte;
}

/// What one member can pass to its ring neighbour: its port inside the node, or its node's share of the fabric.
double ring_bandwidth(const GroupPlacement& p) {
    double bandwidth = std::numeric_limits<double>::infinity();
    if (p.max_members > 1) bandwidth = p.intra_bandwidth.value();
    if (p.nodes > 1) {
        bandwidth = std::min(bandwidth, static_cast<double>(p.min_nics) * p.inter_bandwidth.value());
    }
    ORRERY_CHECK(bandwidth > 0 && bandwidth < std::numeric_limits<double>::infinity(),
                 "a group of " + std::to_string(p.ranks) + " without links between its members");
    return bandwidth;
}

bool is_chain(CommKind kind) {
    return kind == CommKind::broadcast || kind == CommKind::reduce;
}

/// nsteps of 2(n-1) or n-1; of these 2(k-1) or k-1 cross from node to node. A chain passes the whole message on where
/// the other collectives pass an n-th of it. (NCCL's tuner counts a single step's latency for a chain, and says that it
/// waits for a better model; here each of its steps counts.)
AlphaBeta ring(CommKind kind, Protocol protocol, const GroupPlacement& p, const ClusterSpec& cluster) {
    const bool all_reduce = kind == CommKind::all_reduce;
    const std::int64_t passes = all_reduce ? 2 : 1;
    const std::int64_t steps = passes * (p.ranks - 1);
    const std::int64_t crossings = passes * (p.nodes - 1);
    double intra = kRingNvlinkUs[protocol] + microseconds(p.intra_latency);
    // With one member a node nothing hides the network's latency; NCCL then takes the tree's figure.
    const ByProtocol& network = p.max_members == 1 ? kTreeNetworkUs : kRingNetworkUs;
    const double inter = network[protocol] + microseconds(p.inter_latency);
    if (p.nodes > 1) intra = std::max(intra, kNetworkOverheadUs[protocol]);
    double latency =
        kRingBaseUs[protocol] + static_cast<double>(steps - crossings) * intra + static_cast<double>(crossings) * inter;
    if (all_reduce && protocol == kSimple && p.nodes > 1) latency *= kRingPlateau;

    double bandwidth = ring_bandwidth(p);
    if (protocol == kLl) bandwidth = std::min(low_latency_limit(p, cluster), kLlShare * bandwidth);
    if (protocol == kLl128) bandwidth *= kLl128Share;
    const double share = is_chain(kind) ? 1.0 : static_cast<double>(steps) / static_cast<double>(p.ranks);
    return {latency * 1e-6, share / bandwidth, is_chain(kind) ? "chain" : "ring", kProtocolNames[protocol]};
}

/// Up and down a chain inside each node and a binary tree over the nodes, twice with halves of the data.
AlphaBeta tree(Protocol protocol, const GroupPlacement& p, const ClusterSpec& cluster) {
    const double intra = kTreeNvlinkUs[protocol] + microseconds(p.intra_latency);
    const double inter = kTreeNetworkUs[protocol] + microseconds(p.inter_latency);
    const auto depth = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(p.nodes - 1)));
    const auto chain = static_cast<double>(p.max_members - 1);
    const double latency = kTreeBaseUs[protocol] + 2 * (chain * intra + depth * inter);

    double bandwidth = kTreeShare * ring_bandwidth(p);
    if (protocol == kLl) bandwidth = std::min(low_latency_limit(p, cluster), bandwidth / kTreeLlDivisor);
    if (protocol == kLl128) bandwidth *= p.nodes == 1 ? kTreeLl128OneNode : kTreeLl128;
    return {latency * 1e-6, 2 / bandwidth, "tree", kProtocolNames[protocol]};
}

void keep_faster(AlphaBeta& best, const AlphaBeta& candidate, std::int64_t bytes) {
    if (candidate.seconds(bytes) < best.seconds(bytes)) best = candidate;
}

}  // namespace

AlphaBeta nccl_collective(CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                          const ClusterSpec& cluster) {
    AlphaBeta best = ring(kind, kLl, placement, cluster);
    keep_faster(best, ring(kind, kLl128, placement, cluster), bytes);
    keep_faster(best, ring(kind, kSimple, placement, cluster), bytes);
    if (kind == CommKind::all_reduce) {
        for (const Protocol protocol : {kLl, kLl128, kSimple}) {
            keep_faster(best, tree(protocol, placement, cluster), bytes);
        }
    }
    return best;
}

AlphaBeta nccl_transfer(std::int64_t bytes, const GroupPlacement& p, const ClusterSpec& cluster) {
    ORRERY_CHECK(p.ranks == 2, "a transfer between " + std::to_string(p.ranks) + " members");
    const bool inside = p.nodes == 1;
    const double link = microseconds(inside ? p.intra_latency : p.inter_latency);
    const double bandwidth = ring_bandwidth(p);
    const auto step = [&](Protocol protocol, double rate) {
        const double hop = inside ? kRingNvlinkUs[protocol] : kRingNetworkUs[protocol];
        return AlphaBeta{(kRingBaseUs[protocol] + hop + link) * 1e-6, 1 / rate, "direct", kProtocolNames[protocol]};
    };
    AlphaBeta best = step(kLl, std::min(low_latency_limit(p, cluster), kLlShare * bandwidth));
    keep_faster(best, step(kSimple, bandwidth), bytes);
    return best;
}

GroupedTransfers grouped_transfers(CommKind kind, std::int64_t bytes, const GroupPlacement& p) {
    GroupedTransfers result;
    if (kind == CommKind::exchange) {
        result.message_bytes = bytes;
        result.port_transfers = p.has_inner_neighbours ? 1 : 0;
        result.nic_transfers = p.neighbour_nic_sharers > 0 ? 1 : 0;
        result.port_bytes = result.port_transfers * bytes;
        result.nic_bytes = result.nic_transfers * bytes;
        result.nic_sharers = std::max<std::int64_t>(p.neighbour_nic_sharers, 1);
        result.inter_latency = p.neighbour_inter_latency;
        return result;
    }
    ORRERY_CHECK(kind == CommKind::all_to_all || kind == CommKind::scatter || kind == CommKind::gather,
                 std::string(program::name_of(kind)) + " does not consist of grouped transfers");
    result.message_bytes = fraction_of(bytes, 1, p.ranks);
    result.port_transfers = p.max_members - 1;
    result.nic_transfers = p.ranks - p.min_members;
    result.port_bytes = fraction_of(bytes, result.port_transfers, p.ranks);
    result.nic_bytes = fraction_of(bytes, result.nic_transfers, p.ranks);
    result.nic_sharers = kind == CommKind::all_to_all ? std::max<std::int64_t>(p.nic_sharers, 1) : 1;
    result.inter_latency = p.inter_latency;
    return result;
}

TransferTime nccl_grouped(const GroupedTransfers& transfers, const GroupPlacement& p, const ClusterSpec& cluster) {
    const auto in = [&](Protocol protocol) {
        double port_rate = kGroupedPortShare * p.intra_bandwidth.value();
        double nic_rate = p.inter_bandwidth.value() / static_cast<double>(transfers.nic_sharers);
        if (protocol == kLl) {
            const double limit = low_latency_limit(p, cluster);
            port_rate = std::min(limit, kLlShare * p.intra_bandwidth.value());
            nic_rate = std::min(limit, kLlShare * nic_rate);
        }
        double latency = 0, seconds = 0;
        if (transfers.port_transfers > 0) {
            ORRERY_CHECK(port_rate > 0, "transfers inside a node without links");
            latency = (kRingNvlinkUs[protocol] + microseconds(p.intra_latency)) * 1e-6;
            seconds = latency + static_cast<double>(transfers.port_bytes) / port_rate;
        }
        if (transfers.nic_transfers > 0) {
            ORRERY_CHECK(nic_rate > 0, "transfers between nodes without links");
            const double step = (kRingNetworkUs[protocol] + microseconds(transfers.inter_latency)) * 1e-6;
            const double handing =
                static_cast<double>(transfers.nic_transfers - 1) * kNetworkOverheadUs[protocol] * 1e-6;
            latency = std::max(latency, step + handing);
            seconds = std::max(seconds, step + std::max(handing, static_cast<double>(transfers.nic_bytes) / nic_rate));
        }
        const double base = kRingBaseUs[protocol] * 1e-6;
        return TransferTime{base + latency, base + seconds, kProtocolNames[protocol]};
    };
    const TransferTime simple = in(kSimple);
    if (transfers.message_bytes > kTransferLlBytes) return simple;
    const TransferTime low_latency = in(kLl);
    return low_latency.seconds <= simple.seconds ? low_latency : simple;
}

}  // namespace orrery::sim
