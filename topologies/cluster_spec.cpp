#include "topologies/cluster_spec.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <span>

#include "core/embedded.h"
#include "core/error.h"
#include "core/file.h"

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

std::string join(const std::vector<std::string>& names) {
    std::string text;
    for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
    return text;
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
    const std::vector<std::string> names = preset_names();
    const std::string near = nearest_name(name_or_path, names);
    throw InputError("cluster: no preset and no file is called '" + name_or_path + "'" +
                     (near.empty() ? "" : "; did you mean '" + near + "'?") + "; allowed: " + join(names) +
                     ", or the path of an orrery.cluster/1 file");
}

}  // namespace

ClusterSpec load_cluster(const std::string& name_or_path, std::int64_t devices) {
    ClusterSpec cluster = find_cluster(name_or_path);
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
