// ClusterSpec as `orrery.cluster/1` JSON, and back.
#include <nlohmann/json.hpp>
#include <optional>

#include "core/json_reader.h"
#include "topologies/cluster_spec.h"

namespace orrery::topologies {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kSchema = "orrery.cluster/1";
constexpr IntegerRange kNodeRange{1, 1 << 20};
constexpr IntegerRange kDeviceRange{1, 1 << 12};
constexpr NumberRange kPositiveFraction{0.0, 1.0, true};

const std::vector<std::string>& provenance_names() {
    static const std::vector<std::string> names{"measured", "datasheet", "fitted", "fallback"};
    return names;
}

std::string name_of(FabricKind kind) {
    return kind == FabricKind::none ? "none" : "rail_optimised";
}

Json figure_json(const Figure& figure) {
    return Json{{"value", figure.value}, {"kind", name_of(figure.kind)}, {"source", figure.source}};
}

Figure read_figure(const JsonReader& parent, const std::string& key, NumberRange range) {
    const JsonReader reader = parent.object(key);
    Figure figure;
    figure.value = reader.number("value", range);
    const std::string kind = reader.choice("kind", provenance_names());
    for (Provenance p : {Provenance::measured, Provenance::datasheet, Provenance::fitted, Provenance::fallback}) {
        if (name_of(p) == kind) figure.kind = p;
    }
    figure.source = reader.string("source");
    if (figure.source.empty()) reader.fail("source", "where the figure comes from, in words");
    reader.finish();
    return figure;
}

Json link_json(const LinkProfile& link) {
    return Json{{"name", link.name},
                {"bandwidth_gb_per_s_per_direction", figure_json(link.bandwidth_gb_per_s_per_direction)},
                {"latency_us", figure_json(link.latency_us)},
                {"efficiency", figure_json(link.efficiency)}};
}

LinkProfile read_link(const JsonReader& parent, const std::string& key) {
    const JsonReader reader = parent.object(key);
    LinkProfile link;
    link.name = reader.string("name");
    link.bandwidth_gb_per_s_per_direction = read_figure(reader, "bandwidth_gb_per_s_per_direction", kPositive);
    link.latency_us = read_figure(reader, "latency_us", kNotNegative);
    link.efficiency = read_figure(reader, "efficiency", kPositiveFraction);
    reader.finish();
    return link;
}

Json device_json(const DeviceProfile& device) {
    Json peaks = Json::object();
    for (const PeakRate& peak : device.peaks)
        peaks[std::string(orrery::name_of(peak.dtype))] = figure_json(peak.tflops);
    Json matmuls = Json::array();
    for (const MatmulSample& s : device.matmul_samples) {
        matmuls.push_back(Json{{"op", s.op}, {"m", s.m}, {"n", s.n}, {"k", s.k}, {"seconds", s.seconds}});
    }
    Json operators = Json::array();
    for (const OperatorSample& s : device.operator_samples) {
        operators.push_back(Json{{"op", s.op},
                                 {"bytes", s.bytes},
                                 {"flops", s.flops},
                                 {"rows", s.rows},
                                 {"head_dim", s.head_dim},
                                 {"sequence", s.sequence},
                                 {"seconds", s.seconds}});
    }
    return Json{{"name", device.name},
                {"peak_tflops", peaks},
                {"memory_bandwidth_gb_per_s", figure_json(device.memory_bandwidth_gb_per_s)},
                {"memory_capacity_gib", figure_json(device.memory_capacity_gib)},
                {"context_gib", figure_json(device.context_gib)},
                {"matmul_efficiency", figure_json(device.matmul_efficiency)},
                {"memory_efficiency", figure_json(device.memory_efficiency)},
                {"launch_us", figure_json(device.launch_us)},
                {"compute_units", device.compute_units},
                {"tile_m", device.tile_m},
                {"tile_n", device.tile_n},
                {"host_runs_compute", device.host_runs_compute},
                {"cores_per_node", device.cores_per_node},
                {"matmul_samples", matmuls},
                {"operator_samples", operators}};
}

void read_samples(const JsonReader& reader, DeviceProfile& device) {
    if (reader.has("matmul_samples")) {
        for (const JsonReader& item : reader.objects("matmul_samples")) {
            MatmulSample sample;
            sample.op = item.string("op");
            sample.m = item.integer("m", kPositiveInteger);
            sample.n = item.integer("n", kPositiveInteger);
            sample.k = item.integer("k", kPositiveInteger);
            sample.seconds = item.number("seconds", kPositive);
            item.finish();
            device.matmul_samples.push_back(std::move(sample));
        }
    }
    if (!reader.has("operator_samples")) return;
    for (const JsonReader& item : reader.objects("operator_samples")) {
        OperatorSample sample;
        sample.op = item.string("op");
        sample.bytes = item.number("bytes", kNotNegative);
        sample.flops = item.number("flops", kNotNegative);
        sample.rows = item.integer("rows", kCount);
        sample.head_dim = item.integer("head_dim", kCount);
        sample.sequence = item.integer("sequence", kCount);
        sample.seconds = item.number("seconds", kPositive);
        item.finish();
        device.operator_samples.push_back(std::move(sample));
    }
}

DeviceProfile read_device(const JsonReader& parent) {
    const JsonReader reader = parent.object("device");
    DeviceProfile device;
    device.name = reader.string("name");
    const JsonReader peaks = reader.object("peak_tflops");
    for (const std::string& key : peaks.keys()) {
        const std::optional<DType> dtype = dtype_named(key);
        if (!dtype) peaks.fail(key, "figures for fp64, fp32, bf16, fp16, int32 or uint8");
        device.peaks.push_back({*dtype, read_figure(peaks, key, kPositive)});
    }
    peaks.finish();
    if (device.peaks.empty()) reader.fail("peak_tflops", "at least one figure");
    device.memory_bandwidth_gb_per_s = read_figure(reader, "memory_bandwidth_gb_per_s", kPositive);
    device.memory_capacity_gib = read_figure(reader, "memory_capacity_gib", kPositive);
    device.context_gib = read_figure(reader, "context_gib", kNotNegative);
    device.matmul_efficiency = read_figure(reader, "matmul_efficiency", kPositiveFraction);
    device.memory_efficiency = read_figure(reader, "memory_efficiency", kPositiveFraction);
    device.launch_us = read_figure(reader, "launch_us", kNotNegative);
    device.host_runs_compute = reader.boolean("host_runs_compute");
    const IntegerRange units = device.host_runs_compute ? kCount : kPositiveInteger;
    device.compute_units = reader.integer("compute_units", units);
    device.tile_m = reader.integer("tile_m", units);
    device.tile_n = reader.integer("tile_n", units);
    device.cores_per_node = reader.integer("cores_per_node", device.host_runs_compute ? kPositiveInteger : kCount);
    read_samples(reader, device);
    reader.finish();
    return device;
}

void read_network(const JsonReader& reader, ClusterSpec& cluster) {
    cluster.intra_node = read_link(reader, "intra_node");
    cluster.node_switches = reader.integer("node_switches", {0, 64});
    cluster.nics_per_node = reader.integer("nics_per_node", {0, cluster.devices_per_node});
    if (cluster.nics_per_node > 0 && cluster.devices_per_node % cluster.nics_per_node != 0) {
        reader.fail("nics_per_node",
                    "a divisor of devices_per_node, so that every device has one NIC of its own or "
                    "shares one equally");
    }
    const bool has_nics = cluster.nics_per_node > 0;
    if (has_nics || reader.has("nic")) cluster.nic = read_link(reader, "nic");
    if (has_nics || reader.has("host_link")) cluster.host_link = read_link(reader, "host_link");
    cluster.fabric =
        reader.choice("fabric", {"none", "rail_optimised"}) == "none" ? FabricKind::none : FabricKind::rail_optimised;
    const bool has_fabric = cluster.fabric != FabricKind::none;
    if (has_fabric && !has_nics) reader.fail("fabric", "none, since nics_per_node is 0");
    if (!has_fabric && cluster.nodes > 1) reader.fail("nodes", "1, since fabric is none");
    cluster.nodes_per_scalable_unit = reader.integer("nodes_per_scalable_unit", {has_fabric ? 1 : 0, kNodeRange.high});
    if (!cluster.device.host_runs_compute || reader.has("low_latency_gb_per_s")) {
        const JsonReader limits = reader.object("low_latency_gb_per_s");
        cluster.low_latency.one_node_gb_per_s = read_figure(limits, "one_node", kPositive);
        cluster.low_latency.two_nodes_gb_per_s = read_figure(limits, "two_nodes", kPositive);
        cluster.low_latency.more_nodes_gb_per_s = read_figure(limits, "more_nodes", kPositive);
        limits.finish();
    }
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
    json["fabric"] = name_of(cluster.fabric);
    json["nodes_per_scalable_unit"] = cluster.nodes_per_scalable_unit;
    if (cluster.low_latency != LowLatencyLimits{}) {
        json["low_latency_gb_per_s"] = Json{{"one_node", figure_json(cluster.low_latency.one_node_gb_per_s)},
                                            {"two_nodes", figure_json(cluster.low_latency.two_nodes_gb_per_s)},
                                            {"more_nodes", figure_json(cluster.low_latency.more_nodes_gb_per_s)}};
    }
    Json samples = Json::array();
    for (const TransportSample& s : cluster.transport_samples) {
        samples.push_back(Json{{"op", s.op}, {"ranks", s.ranks}, {"bytes", s.bytes}, {"seconds", s.seconds}});
    }
    json["transport_samples"] = samples;
    return json.dump(2) + "\n";
}

ClusterSpec cluster_from_json_text(const std::string& text, const std::string& file) {
    const JsonReader reader = JsonReader::parse(text, file);
    reader.expect_schema(kSchema);
    ClusterSpec cluster;
    cluster.name = reader.string("name");
    cluster.source = reader.string("source");
    cluster.nodes = reader.integer("nodes", kNodeRange);
    cluster.devices_per_node = reader.integer("devices_per_node", kDeviceRange);
    cluster.device = read_device(reader);
    read_network(reader, cluster);
    reader.finish();
    return cluster;
}

}  // namespace orrery::topologies
