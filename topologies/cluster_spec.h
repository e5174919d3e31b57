// Where the job runs: nodes of equal devices and the fabric between them, as plain data. `build_cluster` (cluster.h)
// makes the graph of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/units.h"
#include "topologies/profile.h"

namespace orrery::topologies {

enum class FabricKind : std::uint8_t {
    none,            // one node
    rail_optimised,  // NIC i of every node of a scalable unit hangs on leaf i; leaves meet in spines, non-blocking
};

/// Most that NCCL's low-latency (LL) protocol moves through one device, by how many nodes the group spans: a ceiling of
/// the protocol on this generation of devices and hosts, not of a link.
struct LowLatencyLimits {
    Figure one_node_gb_per_s;
    Figure two_nodes_gb_per_s;
    Figure more_nodes_gb_per_s;
    bool operator==(const LowLatencyLimits&) const = default;
};

struct ClusterSpec {
    std::string name;    // "dgx-h100", "local"
    std::string source;  // where the figures come from
    std::int64_t nodes = 1;
    std::int64_t devices_per_node = 1;
    DeviceProfile device;
    LinkProfile intra_node;          // device <-> node switch (NVSwitch), or shared memory of a CPU node
    std::int64_t node_switches = 0;  // NVSwitches a node; 0: devices share the host's memory (CPU)
    std::int64_t nics_per_node = 0;
    LinkProfile nic;        // NIC <-> leaf, leaf <-> spine
    LinkProfile host_link;  // device <-> its NIC (PCIe), and <-> its node's memory unless host_memory_link is set
    LinkProfile host_memory_link;  // device <-> its node's memory where that is another link (NVLink-C2C)
    /// Devices that share one link to the node's memory: a PCIe switch's uplink, a Grace CPU's NVLink-C2C.
    std::int64_t devices_per_host_link = 1;
    Figure host_memory_bandwidth_gb_per_s;  // of one node, nominal, shared by its devices and CPUs; 0: not known
    Figure host_memory_gib;                 // of one node; 0: not known
    FabricKind fabric = FabricKind::none;
    std::int64_t nodes_per_scalable_unit = 0;
    LowLatencyLimits low_latency;                    // all zero on CPU clusters, whose collectives are measured instead
    std::vector<TransportSample> transport_samples;  // measured on this very machine (local)
    bool operator==(const ClusterSpec&) const = default;

    [[nodiscard]] std::int64_t device_count() const { return nodes * devices_per_node; }
    /// Local: any number of ranks may share the machine's cores; elsewhere one rank a device.
    [[nodiscard]] bool ranks_may_share_devices() const { return device.host_runs_compute; }
};

/// What copies between one device and its node's memory reach in one direction while `active_devices` of the node copy
/// that way at once, filling shared links first: the least of link * efficiency / sharers and host memory bandwidth /
/// active devices. Throws InputError when the cluster has no link to the node's memory; a host memory bandwidth that is
/// not known sets no limit.
[[nodiscard]] BytesPerSecond host_copy_bandwidth(const ClusterSpec& cluster, std::int64_t active_devices);

/// A preset by name or a cluster file by path, sized for `devices` devices (must be a multiple of a node's when more
/// than one node is needed). `local` reads the profile that `orrery calibrate` wrote (see local_profile_path).
/// Throws InputError with the names that exist.
[[nodiscard]] ClusterSpec load_cluster(const std::string& name_or_path, std::int64_t devices);
/// The cluster with as many nodes as `devices` devices need, under the same conditions.
[[nodiscard]] ClusterSpec sized_for(ClusterSpec cluster, std::int64_t devices);
[[nodiscard]] std::vector<std::string> preset_names();
/// $ORRERY_PROFILE if set, else $XDG_CACHE_HOME/orrery/local.cluster.json, else ~/.cache/orrery/local.cluster.json.
[[nodiscard]] std::string local_profile_path();

/// `orrery.cluster/1` JSON, and back. A file may name its device and links (catalogue.h); what is written holds them in
/// full.
[[nodiscard]] std::string to_json_text(const ClusterSpec& cluster);
[[nodiscard]] ClusterSpec cluster_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::topologies
