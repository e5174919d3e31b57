#include "sim/network/fabric_loads.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "topologies/bisection.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using topologies::Cluster;
using topologies::LinkKind;

double rounded(double value) {
    int exponent = 0;
    const double mantissa = std::frexp(value, &exponent);
    constexpr double kBits = 1 << 20;
    return std::ldexp(std::floor(mantissa * kBits + 1e-3) / kBits, exponent);
}

Algorithm runnable(Algorithm algorithm, CommKind kind, const algorithms::Group& group) {
    for (const Algorithm one : {algorithm, Algorithm::ring}) {
        if (algorithms::why_not(one, kind, group).empty()) return one;
    }
    return Algorithm::direct;
}

}  // namespace

bool may_over_subscribe(const Cluster& cluster) {
    return topologies::may_block(cluster) || cluster.node_layout().shares_pcie();
}

FabricLoads::FabricLoads(const Cluster& cluster)
    : cluster_(&cluster),
      trunks_(topologies::may_block(cluster)),
      nics_(!cluster.spec().overrides.empty()),
      pcie_(cluster.node_layout().shares_pcie()),
      link_loads_(cluster) {}

bool FabricLoads::counts(LinkKind kind) const {
    switch (kind) {
        case LinkKind::trunk:
        case LinkKind::core_trunk:
            return trunks_;
        case LinkKind::nic:
            return nics_;
        case LinkKind::host:
        case LinkKind::socket:
            return pcie_;
        case LinkKind::intra_node:
            return false;
    }
    return false;
}

std::vector<FabricLoad> FabricLoads::of(Algorithm algorithm, CommKind kind, std::vector<std::int64_t> devices) {
    if (!algorithms::is_ordered(kind)) devices = algorithms::visiting_order(*cluster_, std::move(devices));
    if (devices.size() < 2 || devices.front() == devices.back()) return {};
    const algorithms::Group group = algorithms::group_on(*cluster_, kind, devices);
    std::vector<FabricLoad> loads;
    for (const algorithms::LinkLoad& load : link_loads_.of(runnable(algorithm, kind, group), kind, devices).links) {
        const topologies::Link& link = cluster_->link(load.link);
        if (!counts(link.kind)) continue;
        loads.push_back({load.link, rounded(load.coefficient / (link.bandwidth.value() * link.efficiency))});
    }
    return loads;
}

double fabric_seconds_per_byte(const CollectiveCost& cost, CommKind kind, std::span<const std::int64_t> devices,
                               const Cluster& cluster) {
    if (!cost.algorithm || !may_over_subscribe(cluster)) return 0;
    double longest = 0;
    for (const FabricLoad& load : FabricLoads(cluster).of(*cost.algorithm, kind, {devices.begin(), devices.end()})) {
        longest = std::max(longest, load.seconds_per_byte);
    }
    return longest;
}

}  // namespace orrery::sim
