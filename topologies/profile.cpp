#include "topologies/profile.h"

#include <algorithm>

#include "core/error.h"
#include "topologies/profile_names.h"

namespace orrery::topologies {

std::string name_of(NodePart part) {
    static constexpr auto kNames = name_table<NodePart::node>({"pcie_switch", "socket", "node"});
    return std::string(kNames[part]);
}

std::string name_of(Provenance provenance) {
    static constexpr auto kNames = name_table<Provenance::fallback>({"measured", "datasheet", "fitted", "fallback"});
    return std::string(kNames[provenance]);
}

std::string name_of(LinkMedium medium) {
    static constexpr auto kNames =
        name_table<LinkMedium::ethernet>({"other", "nvlink", "infinity_fabric", "pcie", "socket", "shared_memory",
                                          "infiniband", "omnipath", "efa", "roce", "ethernet"});
    return std::string(kNames[medium]);
}

const std::vector<std::string>& link_medium_names() {
    static const std::vector<std::string> names = names_of<LinkMedium>();
    return names;
}

bool joins_nodes(LinkMedium medium) {
    return medium == LinkMedium::infiniband || medium == LinkMedium::omnipath || medium == LinkMedium::efa ||
           medium == LinkMedium::roce || medium == LinkMedium::ethernet;
}

double DeviceProfile::peak_flops_per_s(DType dtype) const {
    std::string known;
    for (const PeakRate& peak : peaks) {
        if (peak.dtype == dtype) return peak.tflops.value * 1e12;
        known += (known.empty() ? "" : ", ") + std::string(name_of(peak.dtype));
    }
    throw InputError("device profile " + name, "peak_tflops", "no figure for " + std::string(name_of(dtype)),
                     known.empty() ? "a profile with a figure for it" : known);
}

double DeviceProfile::usable_gib() const {
    const double capacity_gib = memory_capacity_gib.value;
    return usable_memory_gib.value > 0 ? std::min(usable_memory_gib.value, capacity_gib) : capacity_gib;
}

double DeviceProfile::matmul_plateau(DType dtype) const {
    for (const NarrowPlateau& narrow : narrow_matmul_efficiency) {
        if (narrow.dtype == dtype) return narrow.share.value;
    }
    return matmul_efficiency.value;
}

}  // namespace orrery::topologies
