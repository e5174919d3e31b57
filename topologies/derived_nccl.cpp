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

/// Over PCIe all channels share the link, so profiles state LL's fraction of the link instead of a channel's rate.
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

/// NCCL v2.28.9 src/graph/tuning.cc: maximum GB/s of LL on one node. The rate of a channel is scaled with it.
double low_latency_ceiling(std::int64_t capability) {
    return capability >= 100 ? 282 : capability >= 90 ? 141 : 87.7;
}

/// NCCL v2.28.9 src/graph/topo.h: the usable fraction of an NVLink's 25, 25 and 50 GB/s.
double usable_share(std::int64_t capability) {
    return capability >= 100 ? 40.1 / 50 : capability >= 90 ? 20.6 / 25 : 20.0 / 25;
}

/// Clock of the multiprocessors in GHz, from the fp32 peak: two operations per cycle on each lane. 0: not known.
double clock_of(const DeviceProfile& device) {
    const auto fp32 = std::find_if(device.peaks.begin(), device.peaks.end(),
                                   [](const PeakRate& peak) { return peak.dtype == DType::fp32; });
    if (fp32 == device.peaks.end() || device.compute_units == 0) return 0;
    const double lanes = device.compute_capability > 80 ? 128 : 64;
    return fp32->tflops.value * 1e3 / (2 * lanes * static_cast<double>(device.compute_units));
}

std::int64_t generation_of(const DeviceProfile& device) {
    return device.compute_capability / 10;
}

/// Adapts figures to another generation: its links reach another fraction of their nominal bandwidth, and the fixed
/// times of kernels scale with the clock.
void to_generation(const DeviceProfile& device, const DeviceProfile& nearest, const std::string& rule,
                   NcclProfile& nccl) {
    const double usable = usable_share(device.compute_capability) / usable_share(nearest.compute_capability);
    for (NcclProfile::Ring& ring : nccl.ring) {
        ring.share_of_port = assumed(std::min(1.0, ring.share_of_port.value * usable),
                                     rule + ", in proportion to NCCL's usable GB/s of a link");
    }
    if (clock_of(device) <= 0 || clock_of(nearest) <= 0) return;
    const double slower = clock_of(nearest) / clock_of(device);
    for (Figure NcclProfile::*figure :
         {&NcclProfile::base_us, &NcclProfile::step_us, &NcclProfile::simple_base_us, &NcclProfile::simple_step_us}) {
        nccl.*figure = assumed((nccl.*figure).value * slower, rule + ", by the clocks of their multiprocessors");
    }
}

/// Nearest by compute capability, then by memory bandwidth, which determines the rate of copies.
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
    if (generation_of(device) != generation_of(nearest)) to_generation(device, nearest, rule, nccl);
    return nccl;
}

double geometric_mean(const std::vector<double>& values) {
    double logs = 0;
    for (const double value : values) logs += std::log(value);
    return std::exp(logs / static_cast<double>(values.size()));
}

/// Devices on one PCIe switch are estimated from the measured devices. Wider parts depend on the server: on whether
/// devices reach each other's memory through its root complexes, which no file states.
std::vector<NcclProfile::Ring> pcie_rings(const std::vector<DeviceProfile>& known) {
    std::vector<double> on_a_switch;
    for (const DeviceProfile& device : known) {
        const NcclProfile::Ring& first = device.nccl->ring.front();
        if (first.within == NodePart::pcie_switch) on_a_switch.push_back(first.share_of_port.value);
    }
    const double socket_share = geometric_mean({35.0 / 63, 12.8 / 31});
    const double node_share = socket_share * 28 / 35;
    const std::string box =
        "of the link 35 of 63 GB/s among 4 RTX 5090 (NVIDIA/nccl issue 1639) and 12.8 of 31 among 4 RTX 4090 "
        "(tinygrad/open-gpu-kernel-modules pull request 22), over a node 28/35 of it, as among 8 RTX 5090; boxes whose "
        "devices reach each other by way of the host's memory only have been seen at a tenth of it";
    std::vector<NcclProfile::Ring> rings;
    if (!on_a_switch.empty()) {
        rings.push_back({NodePart::pcie_switch, assumed(geometric_mean(on_a_switch), "mean of the measured devices")});
    }
    rings.push_back({NodePart::socket, assumed(socket_share, box)});
    rings.push_back({NodePart::node, assumed(node_share, box)});
    return rings;
}

/// The fraction of a ring's bandwidth that grouped sends reach depends on NCCL, not on NVLink or PCIe.
Figure grouped_share(const std::vector<DeviceProfile>& over_pcie, const std::vector<DeviceProfile>& over_nvlink) {
    std::vector<double> shares;
    for (const auto* devices : {&over_pcie, &over_nvlink}) {
        for (const DeviceProfile& device : *devices) shares.push_back(device.nccl->grouped_share.value);
    }
    return assumed(geometric_mean(shares), "mean of all measured devices");
}

/// Geometric means of all measured devices over PCIe. Memory bandwidth does not scale the copy rate: over PCIe the few
/// channels, each on one multiprocessor, limit a copy.
NcclProfile from_all(const std::vector<DeviceProfile>& known, const std::vector<DeviceProfile>& over_nvlink) {
    NcclProfile nccl;
    nccl.channels = known.front().nccl->channels;
    nccl.ring = pcie_rings(known);
    for (const NcclFigure& figure : kNcclFigures) {
        std::vector<double> values;
        for (const DeviceProfile& device : known) {
            const double value = ((*device.nccl).*figure.member).value;
            if (value > 0) values.push_back(value);
        }
        if (values.empty() || figure.member == &NcclProfile::pair_gb_per_s) continue;
        nccl.*figure.member = assumed(geometric_mean(values), "mean of the measured devices over PCIe");
    }
    nccl.grouped_share = grouped_share(known, over_nvlink);
    return nccl;
}

}  // namespace

std::optional<NcclProfile> derived_nccl(const ClusterSpec& cluster) {
    if (cluster.ranks_may_share_devices() || cluster.device.compute_capability < kFirstCapability) return std::nullopt;
    const std::vector<DeviceProfile> known = measured_devices(cluster, cluster.over_pcie());
    if (known.empty()) return std::nullopt;
    return cluster.over_pcie() ? from_all(known, measured_devices(cluster, false)) : from_nearest(cluster, known);
}

}  // namespace orrery::topologies
