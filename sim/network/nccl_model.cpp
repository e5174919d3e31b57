#include "sim/network/nccl_model.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>

#include "core/error.h"
#include "sim/network/fraction.h"
#include "sim/network/given_channels.h"
#include "sim/network/nccl_time.h"
#include "sim/network/nccl_tuner.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using topologies::ClusterSpec;

/// Largest transfer for which point-to-point operations take LL (NCCL_P2P_LL_THRESHOLD).
constexpr std::int64_t kTransferLlBytes = 16384;
/// Share of a ring's port bandwidth that large grouped sends reach in Simple, for devices without figures of their own:
/// all-to-all of 8 GPUs at 512 MiB (nccl-tests, ai-dynamo/aiconfigurator) has 203 of 240 GB/s on A100, 315 of 371 on
/// H100.
constexpr double kGroupedPortShare = 0.85;
/// Grouped sends over PCIe: channels per pair.
constexpr double kTransferChannelsPcie = 2;
/// A channel's first chunk in Simple, and the share of it that is not hidden over NVLink.
constexpr double kTransferChunk = 512.0 * 1024, kTransferFill = 0.25;

/// The time with the channels that a graph file gives the algorithm, if any.
NcclTime timed(NcclWay way, CommKind kind, std::int64_t bytes, const GroupPlacement& p, const ClusterSpec& cluster,
               CollectiveOptions options) {
    if (const GivenChannels* given = given_for(way.algorithm, options)) options.channels = given->channels;
    NcclTime time;
    time.algorithm = is_chain(kind) ? Algorithm::chain : way.algorithm;
    time.protocol = way.protocol;
    if (has_fitted_time(way, p, cluster)) {
        time.latency_seconds = fitted_seconds(way, kind, 0, p, cluster, options);
        time.seconds = fitted_seconds(way, kind, bytes, p, cluster, options);
        time.channels = channels_used(way, bytes, p, cluster, options);
        return time;
    }
    const AlphaBeta published = published_time(way, kind, p, cluster, options);
    time.latency_seconds = published.latency_seconds;
    time.seconds = published.seconds(bytes);
    time.channels = options.channels;
    return time;
}

/// timed() up to `most`, the largest message for which NCCL chooses this way. Larger messages were never measured in
/// it; its bandwidth is taken to stay constant.
NcclTime within_bounds(NcclWay way, CommKind kind, std::int64_t bytes, std::int64_t most, const GroupPlacement& p,
                       const ClusterSpec& cluster, const CollectiveOptions& options) {
    if (bytes <= most) return timed(way, kind, bytes, p, cluster, options);
    NcclTime time = timed(way, kind, most, p, cluster, options);
    time.seconds *= static_cast<double>(bytes) / static_cast<double>(most);
    return time;
}

/// Whether the fastest way is taken instead of the tuner's choice: for devices without figures, where the network's
/// plugin chooses by measurements (aws-ofi-nccl, src/tuner), and for chains, which the tuner counts as one step.
bool goes_by_time(CommKind kind, const GroupPlacement& p, const ClusterSpec& cluster) {
    const bool by_plugin = p.nodes > 1 && cluster.nic.nccl && cluster.nic.nccl->plugin_tuner;
    return !cluster.device.nccl || by_plugin || is_chain(kind);
}

/// The fastest of the ways that NCCL chooses for some message size; the first among equals.
NcclTime least_time(CommKind kind, std::int64_t bytes, const GroupPlacement& p, const ClusterSpec& cluster,
                    const CollectiveOptions& options) {
    const bool by_time = goes_by_time(kind, p, cluster);
    std::optional<NcclTime> best;
    const auto consider = [&](NcclWay way, std::int64_t most) {
        if (!cluster.device.nccl && by_switches(way.algorithm) && !options.algorithm) return;
        const NcclTime time = within_bounds(way, kind, bytes, most, p, cluster, options);
        if (!best || time.seconds < best->seconds) best = time;
    };
    if (by_time) {
        for (const NcclWay way : possible_ways(kind, p, cluster, options)) consider(way, bytes);
    } else {
        for (const TakenWay& taken : taken_ways(kind, p, cluster, options)) consider(taken.way, taken.most_bytes);
    }
    ORRERY_CHECK(best.has_value(), "no way to run a collective");
    return *best;
}

}  // namespace

double nccl_step_seconds(const GroupPlacement& placement) {
    const RingLatencies simple = ring_latencies(NcclProtocol::simple);
    return (placement.nodes == 1 ? simple.nvlink_us : simple.network_us) * 1e-6;
}

NcclTime nccl_collective(CommKind kind, std::int64_t bytes, const GroupPlacement& p, const ClusterSpec& cluster,
                         const CollectiveOptions& options) {
    if ((!options.algorithm && !options.protocol) || goes_by_time(kind, p, cluster)) {
        return least_time(kind, bytes, p, cluster, options);
    }
    CollectiveOptions free = options;
    free.algorithm.reset();
    free.protocol.reset();
    const NcclTime chosen = least_time(kind, bytes, p, cluster, free);
    const std::vector<TakenWay> taken = taken_ways(kind, p, cluster, free);
    std::optional<NcclTime> best;
    for (const NcclWay way : possible_ways(kind, p, cluster, options)) {
        const auto found =
            std::find_if(taken.begin(), taken.end(), [&](const TakenWay& one) { return one.way == way; });
        NcclTime time =
            within_bounds(way, kind, bytes, found == taken.end() ? bytes : found->most_bytes, p, cluster, options);
        // NCCL never chooses this way, so it is assumed to be no faster than the chosen one.
        if (found == taken.end()) time.seconds = std::max(time.seconds, chosen.seconds);
        if (!best || time.seconds < best->seconds) best = time;
    }
    ORRERY_CHECK(best.has_value(), "no way to run a collective");
    return *best;
}

NcclTime nccl_transfer(std::int64_t bytes, const GroupPlacement& p, const ClusterSpec& cluster) {
    ORRERY_CHECK(p.ranks == 2, "a transfer between " + std::to_string(p.ranks) + " members");
    const bool inside = p.nodes == 1;
    if (inside && cluster.device.nccl) {
        return nccl_grouped({.message_bytes = bytes, .port_transfers = 1, .port_bytes = bytes}, p, cluster);
    }
    const double link = microseconds(inside ? p.intra_latency : p.inter_latency);
    const double bandwidth = ring_bandwidth(p);
    const auto step = [&](NcclProtocol protocol, double rate) {
        const RingLatencies figures = ring_latencies(protocol);
        const double hop = inside ? figures.nvlink_us : figures.network_us;
        const double latency = (figures.base_us + hop + link) * 1e-6;
        return NcclTime{latency, latency + static_cast<double>(bytes) / rate, Algorithm::direct, protocol, 0};
    };
    const NcclTime low = step(NcclProtocol::ll, std::min(low_latency_limit(p, cluster), kLlShare * bandwidth));
    const NcclTime simple = step(NcclProtocol::simple, bandwidth);
    return simple.seconds < low.seconds ? simple : low;
}

namespace {

/// Adds forwarding to rails (PXN): all data but the share of the member's own rail pass its port first. In an
/// all-to-all its NIC carries as much data of other members instead. In a scatter each rail's NIC carries its share. In
/// a gather the root receives everything through its own NIC.
void forward_to_rails(CommKind kind, const GroupPlacement& p, GroupedTransfers& result) {
    result.inter_latency = result.inter_latency + p.intra_latency;
    if (kind == CommKind::gather) return;
    result.port_bytes += fraction_of(result.nic_bytes, p.min_nics - 1, p.min_nics);
    if (kind == CommKind::all_to_all) return;
    result.nic_bytes = fraction_of(result.nic_bytes, 1, p.min_nics);
    result.nic_transfers = (result.nic_transfers + p.min_nics - 1) / p.min_nics;
}

}  // namespace

bool consists_of_transfers(CommKind kind) {
    return kind == CommKind::all_to_all || kind == CommKind::scatter || kind == CommKind::gather ||
           kind == CommKind::exchange;
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
    ORRERY_CHECK(consists_of_transfers(kind),
                 std::string(program::name_of(kind)) + " does not consist of grouped transfers");
    result.message_bytes = fraction_of(bytes, 1, p.ranks);
    result.port_transfers = p.max_members - 1;
    result.nic_transfers = p.ranks - p.min_members;
    result.port_bytes = fraction_of(bytes, result.port_transfers, p.ranks);
    if (kind == CommKind::all_to_all) result.own_bytes = result.message_bytes;
    result.nic_bytes = fraction_of(bytes, result.nic_transfers, p.ranks);
    result.nic_sharers = kind == CommKind::all_to_all ? std::max<std::int64_t>(p.nic_sharers, 1) : 1;
    result.inter_latency = p.inter_latency;
    if (p.forwards) forward_to_rails(kind, p, result);
    return result;
}

namespace {

NcclProtocol protocol_of(bool low) {
    return low ? NcclProtocol::ll : NcclProtocol::simple;
}

/// Time of the transfers through a member's port, without the operation's base.
struct PortTime {
    double latency = 0, seconds = 0;
};
PortTime published_port(const GroupedTransfers& transfers, const GroupPlacement& p, const ClusterSpec& cluster,
                        bool low) {
    const double rate = low ? std::min(low_latency_limit(p, cluster), kLlShare * p.intra_bandwidth.value())
                            : kGroupedPortShare * p.intra_bandwidth.value();
    ORRERY_CHECK(rate > 0, "transfers inside a node without links");
    const double latency = (ring_latencies(protocol_of(low)).nvlink_us + microseconds(p.intra_latency)) * 1e-6;
    return {latency, latency + static_cast<double>(transfers.port_bytes) / rate};
}

PortTime fitted_port(const GroupedTransfers& transfers, const GroupPlacement& p, const ClusterSpec& cluster, bool low) {
    const topologies::NcclProfile& nccl = *cluster.device.nccl;
    double rate = nccl.grouped_share.value * fitted_ring_bandwidth(p, cluster);
    if (nccl.pair_gb_per_s.value > 0) {
        rate = std::min(rate, static_cast<double>(transfers.port_transfers) * nccl.pair_gb_per_s.value * kGigabyte);
    }
    ORRERY_CHECK(rate > 0, "transfers inside a node without links");
    // All members wait for each other; with each step the news reaches twice as many members.
    const double handshakes = 1 + std::log2(static_cast<double>(p.max_members));
    const double latency = handshakes * nccl.step_us.value * 1e-6;
    const auto port_bytes = static_cast<double>(transfers.port_bytes);
    if (cluster.over_pcie()) {
        if (low && nccl.ll_share.value > 0) {
            return {latency, latency + port_bytes / (nccl.ll_share.value * rate)};
        }
        const double first = std::min(static_cast<double>(transfers.message_bytes), kTransferChannelBytes);
        return {latency, latency + (first * kTransferChannelsPcie + port_bytes) / rate};
    }
    const double first = std::min(static_cast<double>(transfers.message_bytes), kTransferChannelBytes);
    const double filled = kTransferFill * std::min(port_bytes, kTransferChannels * kTransferChunk);
    // A member's copy to itself takes memory bandwidth from NVLink transfers. PCIe transfers are slower and hide it.
    const double own = static_cast<double>(transfers.own_bytes) / (nccl.copy_gb_per_s.value * kGigabyte);
    return {latency, latency + (first * kTransferChannels + filled + port_bytes) / rate + own};
}

NcclTime grouped_in(const GroupedTransfers& transfers, const GroupPlacement& p, const ClusterSpec& cluster, bool low) {
    const RingLatencies figures = ring_latencies(protocol_of(low));
    const bool fitted = cluster.device.nccl.has_value();
    double latency = 0, seconds = 0;
    if (transfers.port_transfers > 0) {
        const PortTime port =
            fitted ? fitted_port(transfers, p, cluster, low) : published_port(transfers, p, cluster, low);
        latency = port.latency;
        seconds = port.seconds;
    }
    if (transfers.nic_transfers > 0) {
        double rate = p.inter_bandwidth.value() / static_cast<double>(transfers.nic_sharers);
        if (low) rate = std::min(low_latency_limit(p, cluster), kLlShare * rate);
        ORRERY_CHECK(rate > 0, "transfers between nodes without links");
        const double step = (figures.network_us + microseconds(transfers.inter_latency)) * 1e-6;
        const double handing = static_cast<double>(transfers.nic_transfers - 1) * figures.network_overhead_us * 1e-6;
        latency = std::max(latency, step + handing);
        seconds = std::max(seconds, step + std::max(handing, static_cast<double>(transfers.nic_bytes) / rate));
    }
    const bool inside = transfers.nic_transfers == 0;
    const double base = (fitted && inside ? cluster.device.nccl->base_us.value : figures.base_us) * 1e-6;
    return {base + latency, base + seconds, Algorithm::direct, protocol_of(low), 0};
}

}  // namespace

NcclTime nccl_grouped(const GroupedTransfers& transfers, const GroupPlacement& p, const ClusterSpec& cluster) {
    const NcclTime simple = grouped_in(transfers, p, cluster, false);
    const std::int64_t message = transfers.message_bytes;
    GroupedTransfers largest = transfers;
    if (message > kTransferLlBytes) {
        largest.message_bytes = kTransferLlBytes;
        largest.port_bytes = fraction_of(transfers.port_bytes, kTransferLlBytes, message);
        largest.nic_bytes = fraction_of(transfers.nic_bytes, kTransferLlBytes, message);
        largest.own_bytes = fraction_of(transfers.own_bytes, kTransferLlBytes, message);
    }
    NcclTime low = grouped_in(largest, p, cluster, true);
    // At the switch to Simple the formulas' bandwidth would drop, which no measurement shows. Larger messages therefore
    // keep at least the bandwidth of the largest LL message.
    if (message > kTransferLlBytes) low.seconds *= static_cast<double>(message) / static_cast<double>(kTransferLlBytes);
    return low.seconds <= simple.seconds ? low : simple;
}

}  // namespace orrery::sim
