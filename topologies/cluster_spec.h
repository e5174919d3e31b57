// Where the job runs: nodes, their devices and the fabric between them, as plain data. `build_cluster` (cluster.h)
// builds its graph.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/units.h"
#include "topologies/profile.h"

namespace orrery::topologies {

/// Of a cluster.
inline constexpr std::int64_t kMostDevices = std::int64_t{1} << 20;

enum class FabricKind : std::uint8_t {
    none,            // one node
    single_switch,   // all NICs on one switch
    rail_optimised,  // NIC i of every node of a scalable unit is connected to leaf i; spines join all leaves
    rail_only,       // as rail_optimised, but spines join leaves of one rail only: other rails are reached over NVLink
    fat_tree,        // all NICs of a node are connected to one leaf; spines join leaves, cores (3 levels) join spines
    dragonfly,       // groups of routers: all-to-all inside a group, global links between every two groups
    torus,           // one router per node, joined to its neighbours in 2 or 3 dimensions
};
[[nodiscard]] std::string name_of(FabricKind kind);

/// Parameters of a fabric's kind; docs/clusters.md says which members belong to which kind. 0 and empty: not given.
struct FabricShape {
    std::int64_t radix = 0;                // ports of a switch; 0: unlimited
    std::int64_t core_radix = 0;           // rail_optimised: ports of a core, which may be a modular switch; 0: radix
    std::vector<double> oversubscription;  // bandwidth below / above, of a leaf, then of a pod's spines; each >= 1
    std::int64_t levels = 0;               // fat_tree: 2 or 3
    std::int64_t nodes_per_leaf = 0;       // fat_tree; this and the next three replace radix and oversubscription
    std::int64_t uplinks_per_leaf = 0;     // = number of spines (of a pod)
    std::int64_t leaves_per_pod = 0;       // 3 levels only
    std::int64_t uplinks_per_spine = 0;    // 3 levels only: = number of cores of a plane
    std::int64_t groups = 0;               // dragonfly; so are the next three
    std::int64_t routers_per_group = 0;
    std::int64_t nodes_per_router = 0;
    std::int64_t global_links_per_router = 0;
    std::vector<std::int64_t> dimensions;  // torus: 2 or 3; node n sits at n mod d0, n / d0 mod d1, ...
    LinkProfile trunk;                     // leaf - spine, router - router; default: ClusterSpec::nic
    LinkProfile core_trunk;                // spine - core, group - group; default: trunk
    bool operator==(const FabricShape&) const = default;
};

/// Two devices of a node that are joined by direct NVLinks.
struct DirectLinks {
    std::int64_t a = 0, b = 0;
    std::int64_t links = 1;
    bool operator==(const DirectLinks&) const = default;
};

/// The components of every node besides devices, node switches and NICs. Without sockets, each device has a PCIe link
/// directly to its NIC.
struct NodeInside {
    std::int64_t sockets = 0;
    LinkProfile socket_link;         // between every two sockets
    std::int64_t pcie_switches = 0;  // a multiple of sockets, spread evenly; 0: devices and NICs are attached to CPUs
    LinkProfile pcie_uplink;         // PCIe switch - CPU; default: ClusterSpec::host_link
    std::vector<std::int64_t> device_ports;  // PCIe switch, or socket, of each device; empty: in order, evenly
    std::vector<std::int64_t> nic_ports;     // PCIe switch, or socket, of each NIC; empty: in order, evenly
    std::vector<DirectLinks> nvlink_pairs;   // only without node switches; ClusterSpec::intra_node is then all NVLinks
                                             //   together of the device that has most
    bool operator==(const NodeInside&) const = default;
};

/// Failed or degraded links, in both directions.
struct LinkOverride {
    /// The link between two vertices by Graph::name ("leaf 3 - spine 2", "node 3 nic 2 - leaf 26"), or a class of
    /// links: name_of a LinkKind.
    std::string link;
    std::int64_t node = -1, rail = -1;  // with a class: only links with an end in this node, on this rail; -1: all
    double bandwidth_fraction = 0;      // of the nominal bandwidth; 0: failed
    bool operator==(const LinkOverride&) const = default;
};

/// An override that takes effect at a time, counted from the start of the run. A later change of the same link replaces
/// it.
struct LinkChange {
    double at_seconds = 0;  // > 0
    LinkOverride what;
    bool operator==(const LinkChange&) const = default;
};

/// Nodes [first_node, first_node + nodes) hold another kind of device.
struct DeviceRange {
    std::int64_t first_node = 0, nodes = 0;
    DeviceProfile device;
    bool operator==(const DeviceRange&) const = default;
};

/// A straggler: computation on this device, at any time, takes 1 / speed as long as on the others.
struct SlowDevice {
    std::int64_t device = 0;  // in the cluster
    double speed = 1;         // > 0, at most 1
    bool operator==(const SlowDevice&) const = default;
};

/// How traffic is assigned to one of the shortest routes between two fabric switches.
enum class Spread : std::uint8_t {
    source,       // by the sending NIC's number: neighbours use different uplinks, whatever the destination
    destination,  // by the receiving NIC's number
    hash,         // by a hash of both
};
/// The NIC through which traffic to another node leaves.
enum class NicChoice : std::uint8_t {
    own,  // the sender's
    pxn,  // first over NVLink to the device on the receiver's rail, then through that device's NIC, as NCCL does by
          //   default (PXN, NCCL_P2P_PXN_LEVEL 2, from 2.12); without node switches, the sender's own NIC
};
struct Routing {
    Spread spread = Spread::source;
    NicChoice nic = NicChoice::pxn;
    bool operator==(const Routing&) const = default;
};

/// The library whose algorithms run the collectives of CPU clusters.
enum class CollectiveLibrary : std::uint8_t { openmpi, gloo, orrery };

[[nodiscard]] std::string name_of(CollectiveLibrary library);

/// Maximum rate of NCCL's low-latency (LL) protocol through one device, by the number of nodes the group spans: a limit
/// of the protocol on this generation of devices and hosts, not of a link.
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
    std::int64_t node_switches = 0;  // NVSwitches per node; 0: devices share memory (CPU), or are joined as in `inside`
    std::int64_t nics_per_node = 0;
    LinkProfile nic;        // NIC <-> leaf; leaf <-> spine unless fabric_shape says otherwise
    LinkProfile host_link;  // device <-> its NIC (PCIe), and <-> its node's memory unless host_memory_link is set
    LinkProfile host_memory_link;  // device <-> its node's memory, if that differs from host_link (NVLink-C2C)
    /// Devices that share one link to the node's memory: a PCIe switch's uplink, a Grace CPU's NVLink-C2C.
    std::int64_t devices_per_host_link = 1;
    Figure host_memory_bandwidth_gb_per_s;  // of one node, nominal, shared by its devices and CPUs; 0: not known
    Figure host_memory_gib;                 // of one node; 0: not known
    FabricKind fabric = FabricKind::none;
    std::int64_t nodes_per_scalable_unit = 0;  // rail_optimised, rail_only: nodes below one leaf
    FabricShape fabric_shape;
    NodeInside inside;
    Routing routing;
    std::vector<LinkOverride> overrides;
    std::vector<LinkChange> changes;                 // by ascending time
    std::vector<DeviceRange> other_devices;          // ascending, disjoint; all other nodes hold `device`
    std::vector<SlowDevice> slow_devices;            // each device once
    LowLatencyLimits low_latency;                    // all zero on CPU clusters, whose collectives are measured instead
    std::vector<TransportSample> transport_samples;  // measured on this machine (`local`)
    CollectiveLibrary collective_library = CollectiveLibrary::openmpi;  // CPU clusters: for collectives not measured
    /// Assumptions made while importing the foreign file that the cluster file's `node` names, to be printed with
    /// results.
    std::vector<std::string> notes;
    bool operator==(const ClusterSpec&) const = default;

    [[nodiscard]] std::int64_t device_count() const { return nodes * devices_per_node; }
    [[nodiscard]] const DeviceProfile& device_of_node(std::int64_t node) const;
    /// On CPU clusters any number of ranks may share the cores; on GPU clusters each device has one rank.
    [[nodiscard]] bool ranks_may_share_devices() const { return device.host_runs_compute; }
    /// Whether the devices of a node communicate over PCIe instead of NVLink.
    [[nodiscard]] bool over_pcie() const { return intra_node.kind == LinkMedium::pcie; }
};

/// Times at which links change, ascending, each once.
[[nodiscard]] std::vector<double> change_times(const ClusterSpec& cluster);
/// The cluster as it is at that time: changes up to then become overrides, later ones are dropped.
[[nodiscard]] ClusterSpec cluster_at(ClusterSpec cluster, double seconds);

/// Bandwidth of copies between one device and its node's memory in one direction while `active_devices` of the node
/// copy in that direction at once: the lesser of link * efficiency / sharers and host memory bandwidth / active
/// devices. Active devices are assumed to share a link as far as devices_per_host_link allows. Throws InputError when
/// the cluster has no link to the node's memory; an unknown host memory bandwidth sets no limit.
[[nodiscard]] BytesPerSecond host_copy_bandwidth(const ClusterSpec& cluster, std::int64_t active_devices);

/// A preset by name or a cluster file by path, sized for `devices` devices. When more than one node is needed,
/// `devices` must be a multiple of devices_per_node. `local` reads the profile that `orrery calibrate` wrote
/// (local_profile_path). Throws InputError listing the known names.
[[nodiscard]] ClusterSpec load_cluster(const std::string& name_or_path, std::int64_t devices);
/// The cluster with as many nodes as `devices` devices need, under load_cluster's conditions.
[[nodiscard]] ClusterSpec sized_for(ClusterSpec cluster, std::int64_t devices);
[[nodiscard]] std::vector<std::string> preset_names();
/// $ORRERY_PROFILE if set, else $XDG_CACHE_HOME/orrery/local.cluster.json, else ~/.cache/orrery/local.cluster.json.
[[nodiscard]] std::string local_profile_path();

/// `orrery.cluster/1` JSON, and back. A file may refer to its device and links by name (catalogue.h), and to a foreign
/// file that describes its nodes (importers/import_file.h) by a path relative to its own folder. Written files hold all
/// figures in full.
[[nodiscard]] std::string to_json_text(const ClusterSpec& cluster);
[[nodiscard]] ClusterSpec cluster_from_json_text(const std::string& text, const std::string& file);

}  // namespace orrery::topologies
