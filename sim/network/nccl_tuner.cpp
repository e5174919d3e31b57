#include "sim/network/nccl_tuner.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <span>

#include "core/error.h"
#include "sim/network/given_channels.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using topologies::ClusterSpec;

constexpr std::size_t kProtocolCount = 3;
/// Indexed by protocol: LL, LL128, Simple.
using ByProtocol = std::array<double, kProtocolCount>;
/// NCCL's latencies in microseconds beside those of RingLatencies: base once per operation; the others per step, in
/// addition to the latency of the links.
constexpr ByProtocol kTreeBaseUs{6.8, 14.0, 8.4};
constexpr ByProtocol kTreeNvlinkUs{0.6, 1.25, 4.0};
constexpr ByProtocol kRingPcieUs{1.0, 2.5, 5.7};
constexpr ByProtocol kTreePcieUs{1.0, 1.9, 4.0};
constexpr ByProtocol kTreeNetworkUs{5.0, 8.5, 14.0};
constexpr double kPatBaseUs = 8.0, kPatNetworkDivisor = 3.5, kPatMemberUs = 2.8;
constexpr double kNvlsUs = 25.0, kNvlsNetworkUs = 18.0, kNvlsTreeNetworkUs = 20.9;
/// Factor on the latency of a Simple ring all-reduce across nodes (Ampere and later).
constexpr double kRingPlateau = 1.4;
/// Shares of the ring's bandwidth.
constexpr double kTreeShare = 0.92;
constexpr double kTreeLlDivisor = 3.8;
constexpr double kTreeLl128OneNode = 7.0 / 9.0;
constexpr double kTreeLl128 = 120.0 / 128.0;
constexpr double kPatShare = 0.75;

/// GB/s per channel, by generation (Volta, Ampere, Hopper, Blackwell), then nodes (1, 2, more).
using Ceilings = std::array<std::array<double, 3>, 4>;
constexpr Ceilings kRingLl128{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 36.7}, {34.5, 34.6, 34.5}}};
constexpr double kRingLl128Blackwell228 = 73.4;  // on one node, before 2.29
constexpr Ceilings kTree{{{26.5, 18.5, 10}, {24, 23.6, 17.8}, {38.7, 41.4, 36}, {70, 42.8, 24}}};
constexpr Ceilings kTreeLl128Ceiling{{{20, 20, 20}, {20, 20, 20}, {36.7, 36.7, 29}, {55.6, 31.67, 20}}};
constexpr Ceilings kNvlsTree{{{0, 0, 0}, {0, 0, 0}, {0, 57.7, 45.5}, {0, 96, 43.8}}};
constexpr std::array<double, 4> kNvlsShare{0, 0, 0.85, 0.74};
/// Channel speeds that NCCL's search tries (src/graph/search.cc), in GB/s.
constexpr std::array<double, 6> kSpeedsAmpere{40, 30, 20, 18, 15, 12};
constexpr std::array<double, 11> kSpeedsHopper{60, 50, 40, 30, 24, 20, 15, 12, 11, 6, 3};
constexpr std::array<double, 12> kSpeedsBlackwell{90, 80, 70, 60, 50, 45, 40, 30, 24, 20, 19, 18};
constexpr std::int64_t kMostNvlsHeads = 32;
constexpr std::int64_t kVersion228 = 22'800, kVersion229 = 22'900;

/// Factors on a tree's bandwidth by protocol and message size, in powers of two from 64 bytes on.
constexpr std::array<std::array<double, 24>, kProtocolCount> kTreeCorrection{{
    {1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1, 1},
    {1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1, 1},
    {.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5, .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9, .9},
}};

std::size_t index_of(NcclProtocol protocol) {
    return static_cast<std::size_t>(protocol);
}

std::size_t generation_of(const ClusterSpec& cluster) {
    const std::int64_t capability = cluster.device.compute_capability;
    return capability >= 100 ? 3 : capability >= 90 ? 2 : capability >= 80 ? 1 : 0;
}

double ceiling_of(const Ceilings& ceilings, const GroupPlacement& p, const ClusterSpec& cluster) {
    return ceilings.at(generation_of(cluster)).at(p.nodes == 1 ? 0 : p.nodes == 2 ? 1 : 2) * kGigabyte;
}

double channels_of(const ClusterSpec& cluster) {
    constexpr double kUsual = 16;
    return cluster.device.nccl ? static_cast<double>(cluster.device.nccl->channels) : kUsual;
}

std::span<const double> speeds_of(std::size_t generation) {
    if (generation >= 3) return kSpeedsBlackwell;
    if (generation == 2) return kSpeedsHopper;
    return kSpeedsAmpere;
}

/// Bandwidth that NCCL's search finds for a port, as a number of channels of one speed: 360 of 371 GB/s, for example.
double searched_port(double port, std::size_t generation) {
    constexpr double kMostChannels = 16;
    double most = 0;
    for (const double speed : speeds_of(generation)) {
        const double channels = std::floor(port / (speed * kGigabyte));
        if (channels <= kMostChannels) most = std::max(most, channels * speed * kGigabyte);
    }
    return most > 0 ? most : port;
}

/// Ring bandwidth that NCCL's search finds. Over PCIe across sockets NCCL assumes a bandwidth for the sockets' link (16
/// GB/s for AMD; 10 to 40 for Intel), whatever the link carries.
double searched_ring_bandwidth(const GroupPlacement& p, const ClusterSpec& cluster) {
    constexpr double kSocketLink = 16 * kGigabyte;
    const bool crosses = cluster.device.nccl && cluster.over_pcie() && p.within == topologies::NodePart::node;
    if (crosses) return std::min(kSocketLink, ring_bandwidth(p));
    if (!cluster.device.nccl || cluster.over_pcie() || p.nodes > 1) return ring_bandwidth(p);
    return searched_port(ring_bandwidth(p), generation_of(cluster));
}

/// Latencies of the links in addition to NCCL's own figures. NCCL's tuner does not know them, so they count only where
/// the estimate is also the predicted time.
double link_us(const GroupPlacement& p, const ClusterSpec& cluster) {
    return cluster.device.nccl ? 0.0 : microseconds(p.intra_latency);
}
double network_us(const GroupPlacement& p, const ClusterSpec& cluster) {
    return cluster.device.nccl && cluster.nic.nccl ? 0.0 : microseconds(p.inter_latency);
}

/// 2(n-1) or n-1 steps, of which 2(k-1) or k-1 cross from node to node. Each step of a chain passes the whole message;
/// in the other collectives it passes an n-th.
AlphaBeta ring(CommKind kind, NcclProtocol protocol, const GroupPlacement& p, const ClusterSpec& cluster,
               const CollectiveOptions& options) {
    const std::size_t at = index_of(protocol);
    const bool all_reduce = kind == CommKind::all_reduce;
    const std::int64_t passes = all_reduce ? 2 : 1;
    const std::int64_t steps = passes * (p.ranks - 1);
    const std::int64_t crossings = passes * (p.nodes - 1);
    const RingLatencies step = ring_latencies(protocol);
    double intra = (cluster.over_pcie() ? kRingPcieUs.at(at) : step.nvlink_us) + link_us(p, cluster);
    // With one member per node nothing hides the network's latency; NCCL then uses the tree's figure.
    const double inter = (p.max_members == 1 ? kTreeNetworkUs.at(at) : step.network_us) + network_us(p, cluster);
    if (p.nodes > 1) intra = std::max(intra, step.network_overhead_us);
    double latency =
        step.base_us + static_cast<double>(steps - crossings) * intra + static_cast<double>(crossings) * inter;
    if (all_reduce && protocol == NcclProtocol::simple && p.nodes > 1) latency *= kRingPlateau;

    double bandwidth = searched_ring_bandwidth(p, cluster);
    if (protocol == NcclProtocol::ll) bandwidth = std::min(low_latency_limit(p, cluster), kLlShare * bandwidth);
    if (protocol == NcclProtocol::ll128) {
        double ceiling = ceiling_of(kRingLl128, p, cluster);
        if (generation_of(cluster) == 3 && p.nodes == 1 && options.nccl_version < kVersion229) {
            ceiling = kRingLl128Blackwell228 * kGigabyte;
        }
        bandwidth *= kLl128Share;
        if (cluster.device.nccl) bandwidth = std::min(bandwidth, channels_of(cluster) * ceiling);
    }
    const double share = is_chain(kind) ? 1.0 : static_cast<double>(steps) / static_cast<double>(p.ranks);
    return {latency * 1e-6, share / bandwidth};
}

/// Up and down a chain inside each node and a binary tree over the nodes; two trees carry half of the data each.
AlphaBeta tree(NcclProtocol protocol, const GroupPlacement& p, const ClusterSpec& cluster) {
    const std::size_t at = index_of(protocol);
    const double intra = (cluster.over_pcie() ? kTreePcieUs : kTreeNvlinkUs).at(at) + link_us(p, cluster);
    const double inter = kTreeNetworkUs.at(at) + network_us(p, cluster);
    const auto depth = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(p.nodes - 1)));
    const auto chain = static_cast<double>(p.max_members - 1);
    const double latency = kTreeBaseUs.at(at) + 2 * (chain * intra + depth * inter);

    double bandwidth = kTreeShare * searched_ring_bandwidth(p, cluster);
    const auto limit = [&](const Ceilings& ceilings) {
        if (!cluster.device.nccl) return;
        bandwidth = std::min(bandwidth, channels_of(cluster) * ceiling_of(ceilings, p, cluster));
    };
    limit(kTree);
    if (protocol == NcclProtocol::ll) bandwidth = std::min(low_latency_limit(p, cluster), bandwidth / kTreeLlDivisor);
    if (protocol == NcclProtocol::ll128) {
        bandwidth *= p.nodes == 1 ? kTreeLl128OneNode : kTreeLl128;
        limit(kTreeLl128Ceiling);
    }
    return {latency * 1e-6, 2 / bandwidth};
}

/// Bytes per second at which each of `heads` members can read from all members of a node. Of every port each head takes
/// one share, and the port's own head two.
double head_speed(double port, std::int64_t heads, std::size_t generation) {
    const double most = port / kGigabyte / static_cast<double>(heads + 1);
    const std::span<const double> speeds = speeds_of(generation);
    const auto found = std::find_if(speeds.begin(), speeds.end(), [most](double speed) { return speed <= most; });
    return (found == speeds.end() ? most : *found) * kGigabyte;
}

AlphaBeta nvls(Algorithm algorithm, const GroupPlacement& p, const ClusterSpec& cluster,
               const CollectiveOptions& options) {
    const std::size_t generation = generation_of(cluster);
    const std::int64_t count = std::min(p.max_members, kMostNvlsHeads);
    const auto heads = static_cast<double>(count);
    const auto ranks = static_cast<double>(p.ranks);
    const double speed = head_speed(p.intra_bandwidth.value(), count, generation);
    double latency = kNvlsUs;
    if (p.nodes == 1 && options.nccl_version < kVersion228) {
        constexpr double kOldRatio = 5.0 / 6.0;  // of bus to algorithm bandwidth before 2.28
        return {latency * 1e-6, 1 / (heads * speed * kOldRatio)};
    }
    double head = 2 * speed * kNvlsShare.at(generation) * (heads - 1) / heads;  // the two passes overlap
    if (p.nodes > 1) {
        const double nic = static_cast<double>(p.min_nics) * p.inter_bandwidth.value() / heads;
        const bool is_tree = algorithm == Algorithm::nvls_tree;
        head = std::min(head, nic * (is_tree && p.nodes == 2 ? 2 : 1));
        if (is_tree) head = std::min(head, ceiling_of(kNvlsTree, p, cluster));
        const double inter = (is_tree ? kNvlsTreeNetworkUs : kNvlsNetworkUs) + network_us(p, cluster);
        const auto depth = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(p.nodes)) - 1);
        latency += is_tree ? 2 * depth * inter : inter;
    }
    return {latency * 1e-6, 2 * (ranks - 1) / ranks / (heads * head)};
}

AlphaBeta pat(const GroupPlacement& p) {
    const auto depth = static_cast<double>(std::bit_width(static_cast<std::uint64_t>(p.nodes)) - 1);
    const double inter = kTreeNetworkUs.at(2) + microseconds(p.inter_latency);
    const double latency =
        kPatBaseUs + depth * inter / kPatNetworkDivisor + kPatMemberUs * static_cast<double>(p.ranks);
    return {latency * 1e-6, 1 / (kPatShare * ring_bandwidth(p))};
}

std::string why_not_nvls(Algorithm algorithm, const GroupPlacement& p, const ClusterSpec& cluster,
                         const CollectiveOptions& options) {
    if (generation_of(cluster) < 2) return "NVLS needs compute capability 90 or more";
    if (cluster.over_pcie() || cluster.node_switches == 0) return "NVLS needs NVSwitches in the node";
    if (p.min_members < 2) return "NVLS needs two members on each node";
    if (!options.nvls) return "NVLS is disabled";
    if (options.dtype && (size_of(*options.dtype) == 1)) {
        return "switches do not reduce " + std::string(name_of(*options.dtype));
    }
    const bool is_tree = algorithm == Algorithm::nvls_tree;
    if (is_tree && p.nodes == 1) return "NVLS tree needs more than one node";
    if (!is_tree && p.nodes > 1 && !options.sharp)
        return "NVLS across nodes needs a fabric with in-network reduction (SHARP)";
    return "";
}

/// Why NCCL cannot run the collective this way on this group; empty if it can.
std::string impossible_because(NcclWay way, CommKind kind, const GroupPlacement& p, const ClusterSpec& cluster,
                               const CollectiveOptions& options) {
    if (way.protocol == NcclProtocol::ll128 && cluster.over_pcie() && p.max_members > 1) return "LL128 needs NVLink";
    if (const GivenChannels* given = given_for(way.algorithm, options); given != nullptr && given->channels == 0) {
        return "the graph file has no channels for it";
    }
    const algorithms::OfNccl& nccl = algorithms::row_of(way.algorithm).nccl;
    if (nccl.name.empty()) return "NCCL has no " + std::string(name_of(way.algorithm));
    if (!algorithms::has(nccl.kinds, kind)) return std::string(nccl.no_other_kinds);
    if (way.protocol != NcclProtocol::simple && !nccl.no_other_protocols.empty()) {
        return std::string(nccl.no_other_protocols);
    }
    if (by_switches(way.algorithm)) return why_not_nvls(way.algorithm, p, cluster, options);
    return way.algorithm == Algorithm::pat && p.max_members > 1 ? "PAT needs exactly one member on each node" : "";
}

/// NCCL's factor on a tree's bandwidth for a message of this size.
double tree_correction(NcclProtocol protocol, std::int64_t bytes) {
    const auto& factors = kTreeCorrection.at(index_of(protocol));
    const auto place = std::bit_width(static_cast<std::uint64_t>(bytes >> 6));
    return place == 0 || static_cast<std::size_t>(place) > factors.size()
               ? 1.0
               : factors.at(static_cast<std::size_t>(place) - 1);
}

/// Estimated time of a message as NCCL compares it: a tree's bandwidth is corrected by the message size.
double weighed_seconds(NcclWay way, std::int64_t bytes, const AlphaBeta& estimate, const ClusterSpec& cluster) {
    const bool corrected = way.algorithm == Algorithm::double_binary_tree ||
                           (way.algorithm == Algorithm::nvls_tree && generation_of(cluster) == 3);
    const double correction = corrected ? tree_correction(way.protocol, bytes) : 1.0;
    return estimate.latency_seconds + static_cast<double>(bytes) * estimate.seconds_per_byte / correction;
}

}  // namespace

double low_latency_limit(const GroupPlacement& placement, const ClusterSpec& cluster) {
    const auto& limits = cluster.low_latency;
    const auto& figure = placement.nodes == 1   ? limits.one_node_gb_per_s
                         : placement.nodes == 2 ? limits.two_nodes_gb_per_s
                                                : limits.more_nodes_gb_per_s;
    ORRERY_CHECK(figure.value > 0, "cluster " + cluster.name + " has no LL ceiling");
    return figure.value * kGigabyte;
}

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

AlphaBeta published_time(NcclWay way, CommKind kind, const GroupPlacement& p, const ClusterSpec& cluster,
                         const CollectiveOptions& options) {
    AlphaBeta time = by_switches(way.algorithm)                       ? nvls(way.algorithm, p, cluster, options)
                     : way.algorithm == Algorithm::pat                ? pat(p)
                     : way.algorithm == Algorithm::double_binary_tree ? tree(way.protocol, p, cluster)
                                                                      : ring(kind, way.protocol, p, cluster, options);
    if (const GivenChannels* given = given_for(way.algorithm, options)) {
        // The graph's bandwidth replaces that of NCCL's search.
        time.seconds_per_byte *=
            searched_ring_bandwidth(p, cluster) / (static_cast<double>(given->channels) * given->bytes_per_s_each);
    } else if (options.channels > 0) {
        time.seconds_per_byte *= std::max(1.0, channels_of(cluster) / static_cast<double>(options.channels));
    }
    return time;
}

std::vector<NcclWay> possible_ways(CommKind kind, const GroupPlacement& p, const ClusterSpec& cluster,
                                   const CollectiveOptions& options) {
    std::vector<NcclWay> ways;
    std::string reason;
    for (const algorithms::Row& row : algorithms::kTable) {
        const Algorithm algorithm = row.algorithm;
        if (options.algorithm ? *options.algorithm != algorithm : row.nccl.name.empty()) continue;
        for (const NcclProtocol protocol : {NcclProtocol::ll, NcclProtocol::ll128, NcclProtocol::simple}) {
            if (options.protocol.value_or(protocol) != protocol) continue;
            const NcclWay way{algorithm, protocol};
            const std::string why = impossible_because(way, kind, p, cluster, options);
            if (why.empty()) ways.push_back(way);
            if (!why.empty()) reason = why;
        }
    }
    if (ways.empty()) {
        const bool by_algorithm = options.algorithm.has_value();
        throw InputError("collective " + std::string(program::name_of(kind)), by_algorithm ? "algorithm" : "protocol",
                         std::string(by_algorithm ? nccl_name_of(*options.algorithm) : name_of(*options.protocol)),
                         "another one, since " + reason);
    }
    return ways;
}

std::vector<TakenWay> taken_ways(CommKind kind, const GroupPlacement& p, const ClusterSpec& cluster,
                                 const CollectiveOptions& options) {
    constexpr int kLeastBits = 6, kMostBits = 36;  // 64 bytes to 64 GiB
    std::vector<TakenWay> ways;
    std::vector<AlphaBeta> estimates;
    for (const NcclWay way : possible_ways(kind, p, cluster, options)) {
        ways.push_back({way, 0});
        estimates.push_back(published_time(way, kind, p, cluster, options));
    }
    for (int bits = kLeastBits; bits <= kMostBits; ++bits) {
        const std::int64_t bytes = std::int64_t{1} << bits;
        std::size_t best = 0;
        double least = std::numeric_limits<double>::infinity();
        for (std::size_t i = 0; i < ways.size(); ++i) {
            const double seconds = weighed_seconds(ways[i].way, bytes, estimates[i], cluster);
            if (seconds < least) best = i;
            least = std::min(least, seconds);
        }
        ways[best].most_bytes = bits == kMostBits ? std::numeric_limits<std::int64_t>::max() : bytes;
    }
    ways.erase(std::remove_if(ways.begin(), ways.end(), [](const TakenWay& one) { return one.most_bytes == 0; }),
               ways.end());
    return ways;
}

}  // namespace orrery::sim
