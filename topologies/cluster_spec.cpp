#include "topologies/cluster_spec.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "core/embedded.h"
#include "core/enum_names.h"
#include "core/error.h"
#include "core/file.h"
#include "topologies/derived_nccl.h"
#include "topologies/names.h"
#include "topologies/read_once.h"

namespace orrery {
std::span<const EmbeddedFile> preset_files();
}

namespace orrery::topologies {
namespace {

constexpr const char* kLocal = "local";

/// Value of an environment variable; "" when unset or empty.
std::string environment(const char* variable) {
    const char* value = std::getenv(variable);
    return value == nullptr ? "" : value;
}

ClusterSpec read_local_profile() {
    const std::string path = local_profile_path();
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
        throw InputError("cluster local: this machine has no profile yet (" + path +
                         " does not exist); run `orrery calibrate` to measure it, or set ORRERY_PROFILE to a profile");
    }
    return cluster_from_json_text(read_text_file(path), path);
}

ClusterSpec find_cluster(const std::string& name_or_path) {
    static ReadOnce<ClusterSpec> presets;
    for (const EmbeddedFile& file : preset_files()) {
        if (file.name != name_or_path) continue;
        return presets.get(name_or_path,
                           [&] { return cluster_from_json_text(std::string(file.content), "preset " + name_or_path); });
    }
    if (name_or_path == kLocal) return read_local_profile();
    std::error_code ignored;
    if (std::filesystem::exists(name_or_path, ignored)) {
        return cluster_from_json_text(read_text_file(name_or_path), name_or_path);
    }
    throw InputError("cluster: no preset and no file is called '" + name_or_path + "'" +
                     hint_and_names(name_or_path, preset_names()) + ", or the path of an orrery.cluster/1 file");
}

/// The cluster with this many nodes; what is said of devices on others is dropped.
ClusterSpec with_nodes(ClusterSpec cluster, std::int64_t nodes) {
    cluster.nodes = nodes;
    std::erase_if(cluster.other_devices, [nodes](const DeviceRange& range) { return range.first_node >= nodes; });
    for (DeviceRange& range : cluster.other_devices) range.nodes = std::min(range.nodes, nodes - range.first_node);
    const std::int64_t devices = cluster.device_count();
    std::erase_if(cluster.slow_devices, [devices](const SlowDevice& slow) { return slow.device >= devices; });
    return cluster;
}

}  // namespace

std::string name_of(CollectiveLibrary library) {
    static constexpr auto kNames = name_table<CollectiveLibrary::orrery>({"openmpi", "gloo", "orrery"});
    return std::string(kNames[library]);
}

std::string name_of(FabricKind kind) {
    static constexpr auto kNames = name_table<FabricKind::torus>(
        {"none", "single_switch", "rail_optimised", "rail_only", "fat_tree", "dragonfly", "torus"});
    return std::string(kNames[kind]);
}

std::vector<double> change_times(const ClusterSpec& cluster) {
    std::vector<double> times;
    for (const LinkChange& change : cluster.changes) {
        if (times.empty() || change.at_seconds > times.back()) times.push_back(change.at_seconds);
    }
    return times;
}

ClusterSpec cluster_at(ClusterSpec cluster, double seconds) {
    for (const LinkChange& change : cluster.changes) {
        if (change.at_seconds <= seconds) cluster.overrides.push_back(change.what);
    }
    cluster.changes.clear();
    return cluster;
}

const DeviceProfile& ClusterSpec::device_of_node(std::int64_t node) const {
    for (const DeviceRange& range : other_devices) {
        if (node >= range.first_node && node < range.first_node + range.nodes) return range.device;
    }
    return device;
}

ClusterSpec load_cluster(const std::string& name_or_path, std::int64_t devices) {
    return sized_for(find_cluster(name_or_path), devices);
}

ClusterSpec sized_for(ClusterSpec cluster, std::int64_t devices) {
    const std::string per_node = std::to_string(cluster.devices_per_node);
    if (devices < 1 || devices > kMostDevices) {
        throw InputError("cluster " + cluster.name, "devices", std::to_string(devices),
                         "1 to " + std::to_string(kMostDevices));
    }
    if (cluster.ranks_may_share_devices()) return cluster;
    if (!cluster.device.nccl) cluster.device.nccl = derived_nccl(cluster);
    if (devices <= cluster.devices_per_node) return with_nodes(std::move(cluster), 1);
    if (cluster.fabric == FabricKind::none) {
        throw InputError("cluster " + cluster.name, "devices", std::to_string(devices),
                         "1 to " + per_node + ", since its fabric is none");
    }
    if (devices % cluster.devices_per_node != 0) {
        throw InputError("cluster " + cluster.name, "devices", std::to_string(devices),
                         "1 to " + per_node + ", or a multiple of the node's " + per_node);
    }
    const std::int64_t nodes = devices / cluster.devices_per_node;
    return with_nodes(std::move(cluster), nodes);
}

BytesPerSecond host_copy_bandwidth(const ClusterSpec& cluster, std::int64_t active_devices) {
    ORRERY_CHECK(
        active_devices >= 1 && active_devices <= cluster.devices_per_node,
        std::to_string(active_devices) + " of a node's " + std::to_string(cluster.devices_per_node) + " devices copy");
    const bool own_link = cluster.host_memory_link != LinkProfile{};
    const LinkProfile& link = own_link ? cluster.host_memory_link : cluster.host_link;
    if (link == LinkProfile{}) {
        throw InputError("cluster " + cluster.name, "host_link", "none",
                         "the link between a device and its node's memory, over which offloaded tensors move");
    }
    const auto sharers = static_cast<double>(std::min(active_devices, cluster.devices_per_host_link));
    double gb_per_s = link.bandwidth_gb_per_s_per_direction.value * link.efficiency.value / sharers;
    if (cluster.host_memory_bandwidth_gb_per_s.value > 0) {
        gb_per_s =
            std::min(gb_per_s, cluster.host_memory_bandwidth_gb_per_s.value / static_cast<double>(active_devices));
    }
    return BytesPerSecond(gb_per_s * kGigabyte);
}

std::vector<std::string> preset_names() {
    std::vector<std::string> names{kLocal};
    for (const EmbeddedFile& file : preset_files()) names.emplace_back(file.name);
    std::sort(names.begin(), names.end());
    return names;
}

std::string local_profile_path() {
    if (std::string path = environment("ORRERY_PROFILE"); !path.empty()) return path;
    if (const std::string cache = environment("XDG_CACHE_HOME"); !cache.empty()) {
        return cache + "/orrery/local.cluster.json";
    }
    if (const std::string home = environment("HOME"); !home.empty()) return home + "/.cache/orrery/local.cluster.json";
    throw InputError(
        "cluster local: no place for this machine's profile: none of ORRERY_PROFILE, XDG_CACHE_HOME and "
        "HOME is set");
}

}  // namespace orrery::topologies
