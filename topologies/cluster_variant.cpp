#include "topologies/cluster_variant.h"

#include <algorithm>
#include <numeric>

#include "core/error.h"
#include "topologies/catalogue.h"
#include "topologies/names.h"

namespace orrery::topologies {
namespace {

class Composer {
  public:
    explicit Composer(const ClusterVariant& variant) : variant_(variant), cluster_(load_cluster(variant.base, 1)) {
        if (cluster_.device.host_runs_compute) fail("base", variant.base, "a cluster of GPUs");
    }

    ClusterSpec compose() {
        if (!variant_.device.empty()) set_device();
        const LinkProfile links = cluster_.intra_node;
        const std::int64_t devices = cluster_.devices_per_node;
        set_link("intra_node", variant_.intra_node, cluster_.intra_node);
        set_counts();
        if (cluster_.intra_node != links || cluster_.devices_per_node != devices) leave_mesh();
        if (cluster_.nics_per_node == 0 && !variant_.nic.empty()) {
            fail("nic", variant_.nic, "none, since nics_per_node is 0");
        }
        set_link("nic", variant_.nic, cluster_.nic);
        set_link("host_link", variant_.host_link, cluster_.host_link);
        if (const auto unit = variant_.nodes_per_scalable_unit) {
            if (*unit < 1) fail("nodes_per_scalable_unit", std::to_string(*unit), "at least 1");
            cluster_.nodes_per_scalable_unit = *unit;
            note("nodes_per_scalable_unit", std::to_string(*unit));
        }
        if (!changes_.empty()) {
            cluster_.name += "[" + changes_ + "]";
            cluster_.source += ". Varied: " + changes_;
        }
        return cluster_;
    }

  private:
    [[noreturn]] static void fail(const std::string& member, const std::string& value, const std::string& allowed) {
        throw InputError("cluster variant", member, "'" + value + "'", allowed);
    }

    void note(const std::string& member, const std::string& value) {
        changes_ += (changes_.empty() ? "" : ",") + member + "=" + value;
    }

    static LinkProfile known_link(const std::string& member, const std::string& name) {
        try {
            return member == "nic" ? load_nic(name) : load_link(name);
        } catch (const InputError&) {
            fail(member, name, join_names(member == "nic" ? nic_names() : link_names()));
        }
    }

    static DeviceProfile known_device(const std::string& name) {
        try {
            return load_device(name);
        } catch (const InputError&) {
            fail("device", name, join_names(device_names()));
        }
    }

    void set_device() {
        DeviceProfile device = known_device(variant_.device);
        const std::int64_t capability = cluster_.device.compute_capability;
        if (device.compute_capability != capability) {
            std::vector<std::string> fitting;
            for (const std::string& name : device_names()) {
                if (load_device(name).compute_capability == capability) fitting.push_back(name);
            }
            fail("device", variant_.device,
                 (fitting.empty() ? cluster_.device.name : join_names(fitting)) + ", since " + variant_.base +
                     " has links and protocol limits of this generation");
        }
        if (device == cluster_.device) return;
        cluster_.device = std::move(device);
        note("device", variant_.device);
    }

    void set_link(const std::string& member, const std::string& name, LinkProfile& link) {
        if (name.empty()) return;
        LinkProfile chosen = known_link(member, name);
        if (chosen == link) return;
        link = std::move(chosen);
        note(member, name);
    }

    void set_counts() {
        const std::int64_t base_devices = cluster_.devices_per_node;
        const std::int64_t base_nics = cluster_.nics_per_node;
        const std::int64_t devices = variant_.devices_per_node.value_or(base_devices);
        if (devices < 1 || devices > kMostDevicesPerNode) {
            fail("devices_per_node", std::to_string(devices), "1 to " + std::to_string(kMostDevicesPerNode));
        }
        const std::int64_t nics = variant_.nics_per_node.value_or(
            std::max<std::int64_t>(base_nics > 0 ? 1 : 0, base_nics * devices / base_devices));
        if (base_nics == 0 ? nics != 0 : (nics < 1 || devices % nics != 0)) {
            fail("nics_per_node", std::to_string(nics),
                 base_nics == 0 ? "0, since " + variant_.base + " has no fabric"
                                : "a divisor of the node's " + std::to_string(devices) + " devices");
        }
        if (devices != base_devices) {
            note("devices_per_node", std::to_string(devices));
            const double share = static_cast<double>(devices) / static_cast<double>(base_devices);
            scale(cluster_.host_memory_bandwidth_gb_per_s, share);
            scale(cluster_.host_memory_gib, share);
        }
        if (nics != base_nics) note("nics_per_node", std::to_string(nics));
        cluster_.devices_per_node = devices;
        cluster_.devices_per_host_link = std::gcd(devices, cluster_.devices_per_host_link);
        cluster_.nics_per_node = nics;
    }

    /// The base's NVLink pairs hold only for the base's devices and links. Changed ones are assumed to be joined by a
    /// switch.
    void leave_mesh() {
        if (cluster_.inside.nvlink_pairs.empty()) return;
        cluster_.inside.nvlink_pairs.clear();
        cluster_.node_switches = 1;
    }

    static void scale(Figure& figure, double share) {
        if (figure.value == 0) return;
        figure = {figure.value * share, Provenance::fallback,
                  "assumption: in proportion to the devices of the node, from " + figure.source};
    }

    /// The limit of cluster files.
    static constexpr std::int64_t kMostDevicesPerNode = 1 << 12;

    const ClusterVariant& variant_;
    ClusterSpec cluster_;
    std::string changes_;
};

}  // namespace

ClusterSpec make_cluster(const ClusterVariant& variant, std::int64_t devices) {
    return sized_for(Composer(variant).compose(), devices);
}

}  // namespace orrery::topologies
