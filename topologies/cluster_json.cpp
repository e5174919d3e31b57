// ClusterSpec as `orrery.cluster/1` JSON, and back.
#include <algorithm>
#include <filesystem>

#include "topologies/cluster_parts_json.h"
#include "topologies/cluster_spec.h"
#include "topologies/importers/import_file.h"
#include "topologies/profile_json.h"

namespace orrery::topologies {
namespace {

constexpr const char* kSchema = "orrery.cluster/1";
constexpr IntegerRange kDeviceRange{1, 1 << 12};

void read_host(const JsonReader& reader, ClusterSpec& cluster) {
    if (reader.has("host_memory_link")) cluster.host_memory_link = named_link(reader, "host_memory_link");
    cluster.devices_per_host_link =
        reader.integer_or("devices_per_host_link", {1, cluster.devices_per_node}, cluster.devices_per_host_link);
    if (cluster.devices_per_node % cluster.devices_per_host_link != 0) {
        reader.fail("devices_per_host_link", "a divisor of devices_per_node, so that all links have as many devices");
    }
    if (reader.has("host_memory_bandwidth_gb_per_s")) {
        cluster.host_memory_bandwidth_gb_per_s = read_figure(reader, "host_memory_bandwidth_gb_per_s", kPositive);
    }
    if (reader.has("host_memory_gib")) cluster.host_memory_gib = read_figure(reader, "host_memory_gib", kPositive);
}

void read_collective_library(const JsonReader& reader, ClusterSpec& cluster) {
    if (!reader.has("collective_library")) return;
    if (!cluster.device.host_runs_compute) {
        reader.fail("collective_library", "no such key on GPUs, which use NCCL");
    }
    const std::string name = reader.choice("collective_library", {"openmpi", "gloo", "orrery"});
    cluster.collective_library = name == "openmpi" ? CollectiveLibrary::openmpi
                                 : name == "gloo"  ? CollectiveLibrary::gloo
                                                   : CollectiveLibrary::orrery;
}

/// Resolves a path in a cluster file against the file's folder. The cluster may be part of a plan
/// ("plan.json: /cluster").
std::string resolve_path(const std::string& file, const std::string& path) {
    const std::filesystem::path folder = std::filesystem::path(file.substr(0, file.find(": /"))).parent_path();
    return (folder / path).string();
}

/// The inside of the nodes, read from a foreign file.
ClusterSpec read_node(const JsonReader& reader, const std::string& file) {
    for (const char* key : {"devices_per_node", "device", "intra_node", "node_switches", "nics_per_node", "nic",
                            "host_link", "inside", "low_latency_gb_per_s", "transport_samples"}) {
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

void read_network(const JsonReader& reader, ClusterSpec& cluster) {
    cluster.intra_node = named_link(reader, "intra_node");
    cluster.node_switches = reader.integer("node_switches", {0, 64});
    cluster.nics_per_node = reader.integer("nics_per_node", {0, cluster.devices_per_node});
    if (cluster.nics_per_node > 0 && cluster.devices_per_node % cluster.nics_per_node != 0) {
        reader.fail("nics_per_node",
                    "a divisor of devices_per_node, so that every device has one NIC of its own or "
                    "shares one equally");
    }
    const bool has_nics = cluster.nics_per_node > 0;
    if (has_nics || reader.has("nic")) cluster.nic = named_link(reader, "nic");
    if (has_nics || reader.has("host_link")) cluster.host_link = named_link(reader, "host_link");
    read_host(reader, cluster);
    read_fabric(reader, cluster);
    if (!cluster.device.host_runs_compute || reader.has("low_latency_gb_per_s")) {
        const JsonReader limits = reader.object("low_latency_gb_per_s");
        cluster.low_latency.one_node_gb_per_s = read_figure(limits, "one_node", kPositive);
        cluster.low_latency.two_nodes_gb_per_s = read_figure(limits, "two_nodes", kPositive);
        cluster.low_latency.more_nodes_gb_per_s = read_figure(limits, "more_nodes", kPositive);
        limits.finish();
    }
    read_collective_library(reader, cluster);
    if (!reader.has("transport_samples")) return;
    for (const JsonReader& item : reader.objects("transport_samples")) {
        TransportSample sample;
        sample.op = item.choice("op", {"all_reduce", "all_gather", "reduce_scatter", "send"});
        sample.ranks = item.integer("ranks", {2, 1 << 20});
        sample.bytes = item.integer("bytes", kCount);
        sample.seconds = item.number("seconds", kPositive);
        item.finish();
        cluster.transport_samples.push_back(std::move(sample));
    }
}

}  // namespace

std::string to_json_text(const ClusterSpec& cluster) {
    Json json{{"schema", kSchema},
              {"name", cluster.name},
              {"source", cluster.source},
              {"nodes", cluster.nodes},
              {"devices_per_node", cluster.devices_per_node},
              {"device", device_json(cluster.device)},
              {"intra_node", link_json(cluster.intra_node)},
              {"node_switches", cluster.node_switches},
              {"nics_per_node", cluster.nics_per_node}};
    if (cluster.nic != LinkProfile{}) json["nic"] = link_json(cluster.nic);
    if (cluster.host_link != LinkProfile{}) json["host_link"] = link_json(cluster.host_link);
    if (cluster.host_memory_link != LinkProfile{}) json["host_memory_link"] = link_json(cluster.host_memory_link);
    if (cluster.devices_per_host_link != 1) json["devices_per_host_link"] = cluster.devices_per_host_link;
    if (cluster.host_memory_bandwidth_gb_per_s != Figure{}) {
        json["host_memory_bandwidth_gb_per_s"] = figure_json(cluster.host_memory_bandwidth_gb_per_s);
    }
    if (cluster.host_memory_gib != Figure{}) json["host_memory_gib"] = figure_json(cluster.host_memory_gib);
    add_fabric(json, cluster);
    if (cluster.low_latency != LowLatencyLimits{}) {
        json["low_latency_gb_per_s"] = Json{{"one_node", figure_json(cluster.low_latency.one_node_gb_per_s)},
                                            {"two_nodes", figure_json(cluster.low_latency.two_nodes_gb_per_s)},
                                            {"more_nodes", figure_json(cluster.low_latency.more_nodes_gb_per_s)}};
    }
    if (cluster.collective_library != CollectiveLibrary::openmpi) {
        json["collective_library"] = name_of(cluster.collective_library);
    }
    Json samples = Json::array();
    for (const TransportSample& s : cluster.transport_samples) {
        samples.push_back(Json{{"op", s.op}, {"ranks", s.ranks}, {"bytes", s.bytes}, {"seconds", s.seconds}});
    }
    json["transport_samples"] = samples;
    if (!cluster.notes.empty()) json["notes"] = cluster.notes;
    return json.dump(2) + "\n";
}

ClusterSpec cluster_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kSchema);
    const bool has_foreign_node = reader.has("node");
    ClusterSpec cluster = has_foreign_node ? read_node(reader, file) : ClusterSpec{};
    cluster.name = reader.string("name");
    cluster.source = reader.string("source");
    cluster.nodes = reader.integer("nodes", kNodeCounts);
    if (has_foreign_node) {
        read_host(reader, cluster);
        read_fabric(reader, cluster);
    } else {
        cluster.devices_per_node = reader.integer("devices_per_node", kDeviceRange);
        cluster.device = named_device(reader, "device");
        read_network(reader, cluster);
    }
    if (reader.has("notes")) {
        for (std::string& note : reader.strings("notes")) cluster.notes.push_back(std::move(note));
    }
    reader.finish();
    return cluster;
}

}  // namespace orrery::topologies
