#include "topologies/cluster_spec.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "core/embedded.h"
#include "core/error.h"
#include "core/file.h"
#include "topologies/names.h"

namespace orrery {
std::span<const EmbeddedFile> preset_files();
}

namespace orrery::topologies {
namespace {

constexpr const char* kLocal = "local";
constexpr std::int64_t kMostDevices = std::int64_t{1} << 20;

/// Value of an environment variable; "" when unset or empty, which mean the same to users.
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
    for (const EmbeddedFile& file : preset_files()) {
        if (file.name == name_or_path)
            return cluster_from_json_text(std::string(file.content), "preset " + name_or_path);
    }
    if (name_or_path == kLocal) return read_local_profile();
    std::error_code ignored;
    if (std::filesystem::exists(name_or_path, ignored)) {
        return cluster_from_json_text(read_text_file(name_or_path), name_or_path);
    }
    throw InputError("cluster: no preset and no file is called '" + name_or_path + "'" +
                     hint_and_names(name_or_path, preset_names()) + ", or the path of an orrery.cluster/1 file");
}

}  // namespace

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
    if (devices <= cluster.devices_per_node) {
        cluster.nodes = 1;
        return cluster;
    }
    if (cluster.fabric == FabricKind::none) {
        throw InputError("cluster " + cluster.name, "devices", std::to_string(devices),
                         "1 to " + per_node + ", since its fabric is none");
    }
    if (devices % cluster.devices_per_node != 0) {
        throw InputError("cluster " + cluster.name, "devices", std::to_string(devices),
                         "1 to " + per_node + ", or a multiple of the node's " + per_node);
    }
    cluster.nodes = devices / cluster.devices_per_node;
    return cluster;
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
