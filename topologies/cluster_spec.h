// Where the job runs: nodes of equal devices and the fabric between them, as plain data. `build_cluster` (cluster.h)
// makes the graph of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

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
    LinkProfile host_link;  // device <-> its NIC (PCIe)
    FabricKind fabric = FabricKind::none;
    std::int64_t nodes_per_scalable_unit = 0;
    LowLatencyLimits low_latency;                    // all zero on CPU clusters, whose collectives are measured instead
    std::vector<TransportSample> transport_samples;  // measured on this very machine (local)
    bool operator==(const ClusterSpec&) const = default;

    [[nodiscard]] std::int64_t device_count() const { return nodes * devices_per_node; }
    /// Local: any number of ranks may share the machine's cores; elsewhere one rank a device.
    [[nodiscard]] bool ranks_may_share_devices() const { return device.host_runs_compute; }
};

/// A preset by name or a cluster file by path, sized for `devices` devices (must be a multiple of a node's when more
/// than one node is needed). `local` reads the profile that `orrery calibrate` wrote (see local_profile_path).
/// Throws InputError with the names that exist.
[[nodiscard]] ClusterSpec load_cluster(const std::string& name_or_path, std::int64_t devices);
[[nodiscard]] std::vector<std::string> preset_names();
/// $ORRERY_PROFILE if set, else $XDG_CACHE_HOME/orrery/local.cluster.json, else ~/.cache/orrery/local.cluster.json.
[[nodiscard]] std::string local_profile_path();

/// `orrery.cluster/1` JSON, and back.
[[nodiscard]] std::string to_json_text(const ClusterSpec& cluster);
[[nodiscard]] ClusterSpec cluster_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::topologies
