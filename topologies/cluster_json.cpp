// ClusterSpec as `orrery.cluster/1` JSON, and back.
#include <algorithm>
#include <array>
#include <filesystem>
#include <set>
#include <string_view>

#include "topologies/cluster_fields.h"
#include "topologies/importers/import_file.h"

namespace orrery::topologies {
namespace {

constexpr const char* kSchema = "orrery.cluster/1";
/// Keys that a foreign file of the nodes determines.
constexpr std::array<std::string_view, 10> kNodeKeys{
    "devices_per_node", "device", "intra_node",           "node_switches",    "nics_per_node", "nic",
    "host_link",        "inside", "low_latency_gb_per_s", "transport_samples"};

/// Resolves a path in a cluster file against the file's folder. The cluster may be part of a plan
/// ("plan.json: /cluster").
std::string resolve_path(const std::string& file, const std::string& path) {
    const std::filesystem::path folder = std::filesystem::path(file.substr(0, file.find(": /"))).parent_path();
    return (folder / path).string();
}

/// The inside of the nodes, read from a foreign file.
ClusterSpec read_node(const JsonReader& reader, const std::string& file) {
    for (const std::string_view name : kNodeKeys) {
        const std::string key(name);
        if (reader.has(key)) reader.fail(key, "no such key together with node, whose file determines it");
    }
    const JsonReader node = reader.object("node");
    const std::string path = resolve_path(file, node.string("file"));
    ImportOptions options;
    if (node.has("device")) options.device = node.string("device");
    if (node.has("nic")) options.nic = node.string("nic");
    if (node.has("nvlink")) {
        const std::string nvlink = node.choice("nvlink", {"file", "switched", "none"});
        options.nvlink = nvlink == "switched" ? NvlinkChoice::switched
                         : nvlink == "none"   ? NvlinkChoice::none
                                              : NvlinkChoice::by_file;
    }
    node.finish();
    const ForeignFile foreign = read_foreign(path);
    if (!foreign.node) node.fail("file", "the path of an NCCL topology XML or of what nvidia-smi topo -m printed");
    Notes notes;
    ClusterSpec cluster = cluster_of_node(*foreign.node, path, options, notes);
    const std::string prefix = path + ": ";
    for (const std::string& note : notes.list()) cluster.notes.push_back(prefix + note);
    return cluster;
}

/// Devices and links of a node, which share each other equally.
void check_node(const JsonReader& reader, const ClusterSpec& cluster) {
    const std::int64_t devices = cluster.devices_per_node;
    if (reader.has("nics_per_node") && cluster.nics_per_node > 0 && devices % cluster.nics_per_node != 0) {
        reader.fail("nics_per_node",
                    "a divisor of devices_per_node, so that every device has one NIC of its own or "
                    "shares one equally");
    }
    if (devices % cluster.devices_per_host_link != 0) {
        reader.fail("devices_per_host_link", "a divisor of devices_per_node, so that all links have as many devices");
    }
    // A socket's memory is behind the link of its devices.
    if (reader.has("inside") && cluster.inside.sockets > 0 && !reader.has("host_link"))
        (void)reader.object("host_link");
    if (!cluster.device.host_runs_compute && reader.has("collective_library")) {
        reader.fail("collective_library", "no such key on GPUs, which use NCCL");
    }
}

void check_other_devices(const JsonReader& reader, const ClusterSpec& cluster) {
    if (!reader.has("other_devices")) return;
    const std::vector<JsonReader> items = reader.objects("other_devices");
    std::int64_t first_free = 0;
    for (std::size_t i = 0; i < items.size(); ++i) {
        const DeviceRange& range = cluster.other_devices[i];
        if (range.first_node < first_free) {
            items[i].fail("first_node", description(IntegerRange{first_free, kNodeCounts.high}));
        }
        if (range.device.host_runs_compute != cluster.device.host_runs_compute) {
            items[i].fail("device", cluster.device.host_runs_compute ? "a CPU core, as the cluster's other devices"
                                                                     : "a GPU, as the cluster's other devices");
        }
        first_free = range.first_node + range.nodes;
    }
}

void check_slow_devices(const JsonReader& reader, const ClusterSpec& cluster) {
    if (!reader.has("slow_devices")) return;
    const std::vector<JsonReader> items = reader.objects("slow_devices");
    std::set<std::int64_t> seen;
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::int64_t device = cluster.slow_devices[i].device;
        if (device >= cluster.device_count()) {
            items[i].fail("device", description(IntegerRange{0, cluster.device_count() - 1}));
        }
        if (!seen.insert(device).second) items[i].fail("device", "each device once");
    }
}

}  // namespace

void check_fields(const JsonReader& reader, const ClusterSpec& cluster) {
    check_node(reader, cluster);
    const bool has_fabric = cluster.fabric != FabricKind::none;
    if (has_fabric && cluster.nics_per_node == 0) reader.fail("fabric", "none, since nics_per_node is 0");
    if (!has_fabric && cluster.nodes > 1) reader.fail("nodes", "1, since fabric is none");
    check_other_devices(reader, cluster);
    check_slow_devices(reader, cluster);
}

std::string to_json_text(const ClusterSpec& cluster) {
    JsonValue json = JsonValue::object();
    json.set("schema", JsonValue(kSchema));
    write_fields(json, cluster);
    return json.text(2) + "\n";
}

ClusterSpec cluster_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kSchema);
    const bool has_foreign_node = reader.has("node");
    ClusterSpec cluster = has_foreign_node ? read_node(reader, file) : ClusterSpec{};
    const std::vector<std::string> notes = std::move(cluster.notes);
    cluster.notes.clear();
    visit_fields(cluster, [&](const char* key, auto& field, const auto&... limits) {
        const bool is_known = has_foreign_node && std::find(kNodeKeys.begin(), kNodeKeys.end(), key) != kNodeKeys.end();
        if (!is_known) read_listed(reader, key, field, limits...);
    });
    check_fields(reader, cluster);
    cluster.notes.insert(cluster.notes.begin(), notes.begin(), notes.end());
    reader.finish();
    return cluster;
}

}  // namespace orrery::topologies
