#include "sim/network/nccl_time.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/error.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using topologies::ClusterSpec;
using topologies::NcclProfile;

constexpr double kKibibyte = 1024;
/// Ratios of NCCL's published latencies (src/graph/tuning.cc): a step in LL128 or Simple over a step in LL.
constexpr double kLl128Steps = 1.9 / 0.6;         // a ring's over NVLink
constexpr double kLl128NetworkSteps = 8.5 / 5.0;  // a tree's over a network
constexpr double kSimpleNetworkSteps = 14.0 / 5.0;
/// In LL NCCL opens another channel for every 512 threads * 8 bytes per member.
constexpr std::int64_t kLlBytesAMember = std::int64_t{512} * 8;
/// Chunk of a step in Simple: half of a 4 MiB buffer.
constexpr double kSimpleChunk = 2.0 * 1024 * kKibibyte;
/// NVLS: the largest chunk per channel and head.
constexpr double kNvlsChunk = 128 * kKibibyte;
/// Tree: the share of the first bytes' time that fills the pipeline, and the number of those bytes. It replaces NCCL's
/// correction by size, which is 0.6 up to there and 1 for large messages.
constexpr double kTreeFill = 2.0 / 3, kTreeFirst = 1024 * kKibibyte;
/// Ratios of NCCL's ceilings for a head of an NVLS tree (src/graph/tuning.cc): two nodes over more nodes, whose inner
/// nodes reduce two children.
constexpr double kInnerNodeHopper = 57.7 / 45.5, kInnerNodeBlackwell = 96.0 / 43.8;

/// Waiting steps and data transfer overlap in part: the 3/2-norm lies between their maximum and their sum.
double overlapped(double steps, double data) {
    constexpr double kNorm = 1.5;
    return std::pow(std::pow(steps, kNorm) + std::pow(data, kNorm), 1 / kNorm);
}

/// Bytes that fill a pipeline: all of the first bytes, and a falling share of the following ones.
double fading(double bytes, double first) {
    return first * std::log1p(bytes / first);
}

/// Bytes that fill a pipeline whose chunks grow with the message, up to `most` bytes for all chunks together.
double saturating(double bytes, double most) {
    return bytes * most / (bytes + most);
}

/// Terms of the formulas below, in seconds and bytes per second.
struct Terms {
    double bytes = 0, ranks = 0, members = 0, nodes = 0;
    double steps = 0;         // steps inside nodes, of a ring or chain
    double crossings = 0;     // steps from node to node
    double sent = 0;          // bytes that one member of the ring or chain sends
    double passed_share = 0;  // share of S that a member's channels process: data sent, or only copied to the output
    double base = 0, step = 0, simple_base = 0, simple_step = 0;
    double network_step = 0;
    double own = 0;       // copy of a member's own share
    double port = 0;      // nominal bandwidth of a member's port
    double ring = 0;      // bandwidth of a member's ring inside its node
    double network = 0;   // bandwidth of all NICs of a node together
    double ll_limit = 0;  // bandwidth limit of LL between nodes
    double channels = 0, channel_share = 1;
};

/// Nominal bandwidth of one member's port. Over PCIe that of its own link, whatever the links between sockets carry.
double nominal_port(const GroupPlacement& p, const ClusterSpec& cluster) {
    if (cluster.over_pcie()) return cluster.intra_node.bandwidth_gb_per_s_per_direction.value * kGigabyte;
    return p.intra_bandwidth.value() / cluster.intra_node.efficiency.value;
}

Terms terms_of(CommKind kind, std::int64_t bytes, const GroupPlacement& p, const ClusterSpec& cluster,
               const CollectiveOptions& options) {
    const NcclProfile& nccl = *cluster.device.nccl;
    const std::int64_t passes = kind == CommKind::all_reduce ? 2 : 1;
    Terms t;
    t.bytes = static_cast<double>(bytes);
    t.ranks = static_cast<double>(p.ranks);
    t.members = static_cast<double>(p.max_members);
    t.nodes = static_cast<double>(p.nodes);
    t.crossings = static_cast<double>(passes * (p.nodes - 1));
    t.steps = static_cast<double>(passes * (p.ranks - 1)) - t.crossings;
    const bool chain = is_chain(kind);
    t.sent = chain ? t.bytes : t.bytes * (t.steps + t.crossings) / t.ranks;
    t.passed_share = chain ? 1 : (t.steps + t.crossings + 1) / t.ranks;
    t.base = nccl.base_us.value * 1e-6;
    t.step = nccl.step_us.value * 1e-6;
    t.simple_base = nccl.simple_base_us.value * 1e-6;
    t.simple_step = nccl.simple_step_us.value * 1e-6;
    if (!chain) t.own = t.bytes / t.ranks / (nccl.copy_gb_per_s.value * kGigabyte);
    if (p.max_members > 1) {
        t.port = nominal_port(p, cluster);
        t.ring = fitted_ring_bandwidth(p, cluster);
    }
    if (p.nodes > 1) {
        t.network_step = cluster.nic.nccl->step_us.value * 1e-6 + to_seconds(p.inter_latency);
        t.network = static_cast<double>(p.min_nics) * p.inter_bandwidth.value();
        t.ll_limit = low_latency_limit(p, cluster);
        if (p.max_members == 1) t.ring = t.network;
    }
    t.channels = static_cast<double>(nccl.channels);
    if (options.channels > 0) t.channel_share = std::min(1.0, static_cast<double>(options.channels) / t.channels);
    return t;
}

double ring_seconds(NcclProtocol protocol, const Terms& t, const NcclProfile& nccl, double ll_channel_bytes) {
    const bool inside = t.crossings == 0;
    const double narrowest = inside ? t.ring : std::min(t.ring, t.network);
    const double rate = narrowest * t.channel_share;
    switch (protocol) {
        case NcclProtocol::ll: {
            const double share = inside && nccl.ll_share.value > 0 ? nccl.ll_share.value : kLlShare;
            const double most = inside ? share * rate : std::min(share * rate, t.ll_limit);
            double seconds = nccl.ll_share.value > 0 || !inside ? t.sent / most : 0;
            if (nccl.ll_channel_gb_per_s.value > 0) {
                seconds =
                    std::max(seconds, t.passed_share * ll_channel_bytes / (nccl.ll_channel_gb_per_s.value * kGigabyte));
            }
            return t.base + t.steps * t.step + t.crossings * t.network_step + seconds;
        }
        case NcclProtocol::ll128: {
            const double share = inside && nccl.ll128_share.value > 0 ? nccl.ll128_share.value : kLl128Share;
            return t.base + t.steps * t.step * kLl128Steps + t.crossings * t.network_step * kLl128NetworkSteps +
                   t.sent / (share * rate) + t.own;
        }
        case NcclProtocol::simple: {
            const double filled = fading(t.bytes / t.ranks, t.channels * kSimpleChunk);
            const double waits = t.steps * t.simple_step + t.crossings * t.network_step * kSimpleNetworkSteps;
            return t.simple_base + overlapped(waits, t.sent / rate + t.own + nccl.fill.value * filled / rate);
        }
    }
    return 0;
}

double depth_of(double nodes) {
    return std::ceil(std::log2(nodes));
}

/// The largest share of S that a node's NICs carry in each direction. With four or more nodes the busiest node is an
/// inner node with three neighbours in one of the two trees and a leaf in the other; each tree carries half of S up and
/// half down.
double nvls_crossings(bool is_tree, const Terms& t) {
    if (!is_tree) return 2 * (t.ranks - 1) / t.ranks;  // SHARP: measured NICs carry what a ring would send
    return t.nodes == 2 ? 1 : t.nodes == 3 ? 1.5 : 2;
}

/// S (m+1)/m pass each port: every member sends its buffer and the sum of its own share. Between nodes the share is
/// also copied to and from the network's buffers, which by measurement costs as much as sending it. The first chunks of
/// all channels fill the pipeline, and a part of them fills it again for each level of a tree, up and down.
double nvls_seconds(Algorithm algorithm, const Terms& t, const ClusterSpec& cluster) {
    constexpr double kMostHeads = 32;
    const NcclProfile& nccl = *cluster.device.nccl;
    const double port = nccl.nvls_share.value * t.port * t.channel_share;
    const double inside = t.bytes * (1 + (t.nodes == 1 ? 1 : 2) / t.members) / port;
    const double at_once = t.channels * std::min(t.members, kMostHeads);
    const double fill = nccl.nvls_rounds.value * saturating(t.bytes, at_once * kNvlsChunk) / port;
    const double base = t.simple_base + 2 * t.simple_step;
    if (t.nodes == 1) return base + fill + inside;
    const bool is_tree = algorithm == Algorithm::nvls_tree;
    const double depth = is_tree ? depth_of(t.nodes) : 1;
    const double head = cluster.device.compute_capability >= 100 ? kInnerNodeBlackwell : kInnerNodeHopper;
    const double slower = is_tree && t.nodes > 2 ? head : 1;
    return base + 2 * depth * t.network_step * kSimpleNetworkSteps +
           fill * (1 + cluster.nic.nccl->tree_fill.value * (2 * depth - 1)) +
           std::max(slower * inside, nvls_crossings(is_tree, t) * t.bytes / t.network);
}

/// NCCL's estimate, with its network part scaled to the network's measured step.
double pat_seconds(const Terms& t) {
    constexpr double kBase = 8e-6, kDepth = 14e-6 / 3.5, kMember = 2.8e-6, kStep = 14e-6, kShare = 0.75;
    const double stretch = t.network_step * kSimpleNetworkSteps / kStep;
    return kBase + stretch * (depth_of(t.nodes) * kDepth + t.ranks * kMember) + t.bytes / (kShare * t.network);
}

/// Steps of a tree take the profile's times; `data_seconds` is the time of the data.
double tree_seconds(NcclProtocol protocol, const Terms& t, double data_seconds) {
    const double chain = 2 * (t.members - 1);
    const double climbs = t.nodes > 1 ? 2 * depth_of(t.nodes) : 0;
    const bool simple = protocol == NcclProtocol::simple;
    const double inside = protocol == NcclProtocol::ll ? t.step : simple ? t.simple_step : t.step * kLl128Steps;
    const double across = protocol == NcclProtocol::ll ? 1.0 : simple ? kSimpleNetworkSteps : kLl128NetworkSteps;
    return (simple ? t.simple_base : t.base) + chain * inside + climbs * t.network_step * across + data_seconds;
}

/// Time of both passes at NCCL's published bandwidth. LL is also limited by its open channels: one per 4 KiB, and
/// inside a node one per 4 KiB and member, as for a ring.
double tree_data_seconds(NcclWay way, std::int64_t bytes, const Terms& t, const GroupPlacement& p,
                         const ClusterSpec& cluster, const CollectiveOptions& options) {
    const double seconds = published_time(way, CommKind::all_reduce, p, cluster, options).seconds_per_byte *
                           (t.bytes + kTreeFill * fading(t.bytes, kTreeFirst));
    const double rate = cluster.device.nccl->ll_channel_gb_per_s.value * kGigabyte;
    if (way.protocol != NcclProtocol::ll || rate <= 0 || bytes == 0) return seconds;
    const auto opens_with = static_cast<double>(kLlBytesAMember * (p.nodes > 1 ? 1 : p.ranks));
    const double of_a_channel = std::max(std::min(t.bytes, opens_with), t.bytes / t.channels);
    return std::max(seconds, 2 * of_a_channel / rate);
}

}  // namespace

double fitted_ring_bandwidth(const GroupPlacement& p, const ClusterSpec& cluster) {
    const auto& rings = cluster.device.nccl->ring;
    const auto found = std::find_if(rings.begin(), rings.end(),
                                    [&](const NcclProfile::Ring& ring) { return p.within <= ring.within; });
    ORRERY_CHECK(found != rings.end(), "no ring within a node");
    const double rate = nominal_port(p, cluster) * found->share_of_port.value;
    return cluster.over_pcie() ? std::min(rate, p.intra_bandwidth.value()) : rate;
}

bool has_fitted_time(NcclWay way, const GroupPlacement& p, const ClusterSpec& cluster) {
    if (!cluster.device.nccl || (p.nodes > 1 && !cluster.nic.nccl)) return false;
    return !by_switches(way.algorithm) || cluster.device.nccl->nvls_share.value > 0;
}

std::int64_t channels_used(NcclWay way, std::int64_t bytes, const GroupPlacement& p, const ClusterSpec& cluster,
                           const CollectiveOptions& options) {
    constexpr std::int64_t kUsual = 16;
    const std::int64_t most = cluster.device.nccl ? cluster.device.nccl->channels : kUsual;
    if (options.channels > 0) return options.channels;
    if (way.algorithm != Algorithm::ring || way.protocol != NcclProtocol::ll) return most;
    return std::clamp<std::int64_t>(bytes / (kLlBytesAMember * p.ranks), 1, most);
}

double fitted_seconds(NcclWay way, CommKind kind, std::int64_t bytes, const GroupPlacement& p,
                      const ClusterSpec& cluster, const CollectiveOptions& options) {
    ORRERY_CHECK(has_fitted_time(way, p, cluster), "no figures for " + std::string(name_of(way.algorithm)));
    const Terms t = terms_of(kind, bytes, p, cluster, options);
    if (by_switches(way.algorithm)) return nvls_seconds(way.algorithm, t, cluster);
    if (way.algorithm == Algorithm::pat) return pat_seconds(t);
    if (way.algorithm == Algorithm::double_binary_tree) {
        return tree_seconds(way.protocol, t, tree_data_seconds(way, bytes, t, p, cluster, options));
    }
    // Bytes of S per channel. Channels open as messages grow; this form keeps the time from falling in steps.
    const double opens_with = static_cast<double>(kLlBytesAMember * p.ranks);
    const double of_a_channel = options.channels > 0 ? t.bytes / static_cast<double>(options.channels)
                                                     : std::max(std::min(t.bytes, opens_with), t.bytes / t.channels);
    return ring_seconds(way.protocol, t, *cluster.device.nccl, of_a_channel);
}

}  // namespace orrery::sim
