#include "topologies/derived_nccl.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <tuple>
#include <vector>

#include "topologies/catalogue.h"
#include "topologies/nccl_figures.h"

namespace orrery::topologies {
namespace {

constexpr std::int64_t kFirstCapability = 80;

bool is_fitted(const DeviceProfile& device) {
    return device.nccl && device.nccl->base_us.kind == Provenance::fitted;
}

/// Over PCIe channels share the link, so that LL's share of it is known in place of a channel's speed.
bool is_over_pcie(const NcclProfile& nccl) {
    return nccl.ll_share.value > 0;
}

std::vector<DeviceProfile> measured_devices(const ClusterSpec& cluster, bool over_pcie) {
    std::vector<DeviceProfile> devices;
    for (const std::string& name : device_names()) {
        if (name == cluster.device.name) continue;
        DeviceProfile device = load_device(name);
        if (is_fitted(device) && is_over_pcie(*device.nccl) == over_pcie) devices.push_back(std::move(device));
    }
    return devices;
}

Figure assumed(double value, const std::string& rule) {
    return {value, Provenance::fallback, "assumption: " + rule};
}

/// NCCL v2.28.9 src/graph/tuning.cc: GB/s that LL reaches on one node. Its channels are as much faster.
double low_latency_ceiling(std::int64_t capability) {
    return capability >= 100 ? 282 : capability >= 90 ? 141 : 87.7;
}

/// The nearest generation counts, then memory bandwidth, which is what a copy goes by.
NcclProfile from_nearest(const ClusterSpec& cluster, const std::vector<DeviceProfile>& known) {
    const DeviceProfile& device = cluster.device;
    const auto distance = [&](const DeviceProfile& other) {
        const double memory = other.memory_bandwidth_gb_per_s.value / device.memory_bandwidth_gb_per_s.value;
        return std::tuple(std::abs(other.compute_capability - device.compute_capability), std::abs(std::log(memory)));
    };
    const DeviceProfile& nearest = *std::min_element(
        known.begin(), known.end(), [&](const auto& a, const auto& b) { return distance(a) < distance(b); });
    NcclProfile nccl = *nearest.nccl;
    const std::string rule = "as on " + nearest.name + ", the nearest measured device";
    for (NcclProfile::Ring& ring : nccl.ring) ring.share_of_port = assumed(ring.share_of_port.value, rule);
    for (const NcclFigure& figure : kNcclFigures) {
        if ((nccl.*figure.member).value > 0) nccl.*figure.member = assumed((nccl.*figure.member).value, rule);
    }
    const double memory = device.memory_bandwidth_gb_per_s.value / nearest.memory_bandwidth_gb_per_s.value;
    nccl.copy_gb_per_s = assumed(nccl.copy_gb_per_s.value * memory, rule + ", in proportion to memory bandwidth");
    const double ceilings =
        low_latency_ceiling(device.compute_capability) / low_latency_ceiling(nearest.compute_capability);
    nccl.ll_channel_gb_per_s =
        assumed(nccl.ll_channel_gb_per_s.value * ceilings, rule + ", in proportion to NCCL's ceilings of LL");
    return nccl;
}

double geometric_mean(const std::vector<double>& values) {
    double logs = 0;
    for (const double value : values) logs += std::log(value);
    return std::exp(logs / static_cast<double>(values.size()));
}

/// Devices on one PCIe switch go by the measured ones. Wider parts depend on the box: on whether devices reach each
/// other's memory through its root complexes, which nothing that a file says tells.
std::vector<NcclProfile::Ring> pcie_rings(const std::vector<DeviceProfile>& known) {
    std::vector<double> on_a_switch;
    for (const DeviceProfile& device : known) {
        const NcclProfile::Ring& first = device.nccl->ring.front();
        if (first.within == NodePart::pcie_switch) on_a_switch.push_back(first.share_of_port.value);
    }
    constexpr double kSocketShare = 35.0 / 63, kNodeShare = 28.0 / 63;
    const std::string box =
        "all-reduce of 4 and 8 RTX 5090 on PCIe Gen5 at 35 and 28 of 63 GB/s (NVIDIA/nccl issue 1639); boxes whose "
        "devices reach each other by way of the host's memory only have been seen at a tenth of it";
    std::vector<NcclProfile::Ring> rings;
    if (!on_a_switch.empty()) {
        rings.push_back({NodePart::pcie_switch, assumed(geometric_mean(on_a_switch), "mean of the measured devices")});
    }
    rings.push_back({NodePart::socket, assumed(kSocketShare, box)});
    rings.push_back({NodePart::node, assumed(kNodeShare, box)});
    return rings;
}

NcclProfile from_all(const ClusterSpec& cluster, const std::vector<DeviceProfile>& known) {
    NcclProfile nccl;
    nccl.channels = known.front().nccl->channels;
    nccl.ring = pcie_rings(known);
    for (const NcclFigure& figure : kNcclFigures) {
        std::vector<double> values;
        for (const DeviceProfile& device : known) {
            const double value = ((*device.nccl).*figure.member).value;
            // Against a port or a memory of another speed, a bandwidth is a share of it.
            const bool is_copy = figure.member == &NcclProfile::copy_gb_per_s;
            const double unit = is_copy ? device.memory_bandwidth_gb_per_s.value : 1;
            if (value > 0) values.push_back(value / unit);
        }
        if (values.empty() || figure.member == &NcclProfile::pair_gb_per_s) continue;
        const bool is_copy = figure.member == &NcclProfile::copy_gb_per_s;
        const double unit = is_copy ? cluster.device.memory_bandwidth_gb_per_s.value : 1;
        nccl.*figure.member =
            assumed(geometric_mean(values) * unit, std::string("mean of the measured devices over PCIe") +
                                                       (is_copy ? ", in proportion to memory bandwidth" : ""));
    }
    return nccl;
}

}  // namespace

std::optional<NcclProfile> derived_nccl(const ClusterSpec& cluster) {
    if (cluster.ranks_may_share_devices() || cluster.device.compute_capability < kFirstCapability) return std::nullopt;
    const bool over_pcie = cluster.intra_node.name.starts_with("pcie");
    const std::vector<DeviceProfile> known = measured_devices(cluster, over_pcie);
    if (known.empty()) return std::nullopt;
    return over_pcie ? from_all(cluster, known) : from_nearest(cluster, known);
}

}  // namespace orrery::topologies
