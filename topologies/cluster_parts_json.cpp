#include "topologies/cluster_parts_json.h"

#include <algorithm>
#include <array>
#include <utility>

#include "topologies/catalogue.h"
#include "topologies/names.h"

namespace orrery::topologies {
namespace {

constexpr std::array kFabrics{FabricKind::none,      FabricKind::single_switch, FabricKind::rail_optimised,
                              FabricKind::rail_only, FabricKind::fat_tree,      FabricKind::dragonfly,
                              FabricKind::torus};
constexpr std::array<const char*, 3> kSpreads{"source", "destination", "hash"};  // by Spread
constexpr std::array<const char*, 2> kNicChoices{"own", "pxn"};                  // by NicChoice
constexpr IntegerRange kSwitchCounts{1, 1 << 16};
constexpr IntegerRange kTorusLengths{1, 1 << 15};
constexpr IntegerRange kParts{0, 1 << 8};
constexpr double kLongestSeconds = 1e6;

/// An integer of a shape, and the kinds of fabric that have it.
struct ShapeKey {
    const char* name;
    std::int64_t FabricShape::*member;
    std::vector<FabricKind> kinds;
};
const std::vector<ShapeKey>& shape_keys() {
    using enum FabricKind;
    static const std::vector<ShapeKey> keys{
        {"radix", &FabricShape::radix, {single_switch, rail_optimised, rail_only, fat_tree}},
        {"levels", &FabricShape::levels, {fat_tree}},
        {"nodes_per_leaf", &FabricShape::nodes_per_leaf, {fat_tree}},
        {"uplinks_per_leaf", &FabricShape::uplinks_per_leaf, {fat_tree}},
        {"leaves_per_pod", &FabricShape::leaves_per_pod, {fat_tree}},
        {"uplinks_per_spine", &FabricShape::uplinks_per_spine, {fat_tree}},
        {"groups", &FabricShape::groups, {dragonfly}},
        {"routers_per_group", &FabricShape::routers_per_group, {dragonfly}},
        {"nodes_per_router", &FabricShape::nodes_per_router, {dragonfly}},
        {"global_links_per_router", &FabricShape::global_links_per_router, {dragonfly}},
    };
    return keys;
}

/// The value of `key`: an object with its figures, or a name in the catalogue.
template <typename Load, typename Read>
auto named_or_in_full(const JsonReader& reader, const std::string& key, const std::vector<std::string>& names,
                      Load load, Read read) {
    if (reader.kind(key) != JsonKind::string) return read(reader.object(key));
    const std::string name = reader.string(key);
    try {
        return load(name);
    } catch (const InputError&) {
        reader.fail(key, "an object with its figures, or one of " + join_names(names));
    }
}

template <std::size_t count>
std::size_t choice_of(const JsonReader& reader, const std::string& key, const std::array<const char*, count>& names) {
    const std::string chosen = reader.choice(key, {names.begin(), names.end()});
    return static_cast<std::size_t>(std::find(names.begin(), names.end(), chosen) - names.begin());
}

bool on_rails(FabricKind kind) {
    return kind == FabricKind::rail_optimised || kind == FabricKind::rail_only;
}

std::string kinds_text(const std::vector<FabricKind>& kinds) {
    std::vector<std::string> names;
    for (const FabricKind kind : kinds) names.push_back(name_of(kind));
    return "nothing, since only a fabric of kind " + join_names(names) + " has it";
}

void check_fat_tree(const JsonReader& reader, const FabricShape& shape) {
    const bool three = shape.levels == 3;
    if (shape.levels < 2) reader.fail("levels", "2 or 3");
    if (shape.radix == 0) {
        if (shape.nodes_per_leaf < 1) reader.fail("nodes_per_leaf", "at least 1, or a radix instead");
        if (shape.uplinks_per_leaf < 1) reader.fail("uplinks_per_leaf", "at least 1, or a radix instead");
        if (three && shape.leaves_per_pod < 1) reader.fail("leaves_per_pod", "at least 1, or a radix instead");
        if (three && shape.uplinks_per_spine < 1) reader.fail("uplinks_per_spine", "at least 1, or a radix instead");
        if (!shape.oversubscription.empty()) {
            reader.fail("oversubscription", "nothing, since without a radix it follows from the numbers of links");
        }
    }
    for (const char* key : {"nodes_per_leaf", "uplinks_per_leaf", "leaves_per_pod", "uplinks_per_spine"}) {
        if (shape.radix > 0 && reader.has(key)) reader.fail(key, "nothing, since the radix determines it");
    }
    if (three) return;
    for (const char* key : {"leaves_per_pod", "uplinks_per_spine", "core_trunk"}) {
        if (reader.has(key)) reader.fail(key, "nothing, since only a fat tree of 3 levels has it");
    }
}

FabricShape read_shape(const JsonReader& reader, FabricKind kind) {
    FabricShape shape;
    for (const ShapeKey& key : shape_keys()) {
        if (!reader.has(key.name)) continue;
        if (std::find(key.kinds.begin(), key.kinds.end(), kind) == key.kinds.end()) {
            reader.fail(key.name, kinds_text(key.kinds));
        }
        const IntegerRange range = std::string(key.name) == "levels" ? IntegerRange{2, 3} : kSwitchCounts;
        shape.*key.member = reader.integer(key.name, range);
    }
    if (reader.has("radix") && shape.radix < 2) reader.fail("radix", "at least 2");
    if (reader.has("oversubscription")) {
        if (!on_rails(kind) && kind != FabricKind::fat_tree) {
            reader.fail("oversubscription",
                        kinds_text({FabricKind::rail_optimised, FabricKind::rail_only, FabricKind::fat_tree}));
        }
        shape.oversubscription = reader.numbers("oversubscription", {1, 1000});
        if (shape.oversubscription.empty() || shape.oversubscription.size() > 2) {
            reader.fail("oversubscription", "one number (leaves) or two (leaves, a pod's spines)");
        }
    }
    if (reader.has("dimensions")) {
        if (kind != FabricKind::torus) reader.fail("dimensions", kinds_text({FabricKind::torus}));
        shape.dimensions = reader.integers("dimensions", kTorusLengths);
    }
    if (reader.has("trunk")) shape.trunk = named_link(reader, "trunk");
    if (reader.has("core_trunk")) shape.core_trunk = named_link(reader, "core_trunk");
    if (kind == FabricKind::torus && (shape.dimensions.size() < 2 || shape.dimensions.size() > 3)) {
        reader.fail("dimensions", "2 or 3 lengths");
    }
    if (kind == FabricKind::fat_tree) check_fat_tree(reader, shape);
    if (kind == FabricKind::dragonfly) {
        for (const ShapeKey& key : shape_keys()) {
            if (key.kinds.front() == kind) (void)reader.integer(key.name, kSwitchCounts);
        }
    }
    reader.finish();
    return shape;
}

NodeInside read_inside(const JsonReader& reader) {
    NodeInside inside;
    inside.sockets = reader.integer_or("sockets", kParts, 0);
    inside.pcie_switches = reader.integer_or("pcie_switches", kParts, 0);
    if (inside.sockets > 1 || reader.has("socket_link")) inside.socket_link = named_link(reader, "socket_link");
    if (reader.has("pcie_uplink")) inside.pcie_uplink = named_link(reader, "pcie_uplink");
    if (reader.has("device_ports")) inside.device_ports = reader.integers("device_ports", kParts);
    if (reader.has("nic_ports")) inside.nic_ports = reader.integers("nic_ports", kParts);
    if (reader.has("nvlink_pairs")) {
        for (const JsonReader& item : reader.objects("nvlink_pairs")) {
            const std::vector<std::int64_t> devices = item.integers("devices", kCount);
            if (devices.size() != 2) item.fail("devices", "two device numbers");
            inside.nvlink_pairs.push_back({devices[0], devices[1], item.integer_or("links", {1, 64}, 1)});
            item.finish();
        }
    }
    reader.finish();
    return inside;
}

/// The time is 0 if the override has none.
LinkChange read_override(const JsonReader& reader) {
    LinkChange timed;
    if (reader.has("at_seconds")) timed.at_seconds = reader.number("at_seconds", {0, kLongestSeconds, true});
    LinkOverride& change = timed.what;
    change.link = reader.string("link");
    change.node = reader.integer_or("node", {0, kNodeCounts.high}, -1);
    change.rail = reader.integer_or("rail", kCount, -1);
    if (change.link.find(" - ") != std::string::npos && (change.node >= 0 || change.rail >= 0)) {
        reader.fail("link", "a class of links, since node or rail is given");
    }
    if (reader.kind("bandwidth") == JsonKind::string) {
        (void)reader.choice("bandwidth", {"failed"});
    } else {
        change.bandwidth_fraction = reader.number("bandwidth", {0, 1, true});
    }
    reader.finish();
    return timed;
}

void read_overrides(const JsonReader& reader, ClusterSpec& cluster) {
    for (const JsonReader& item : reader.objects("overrides")) {
        LinkChange change = read_override(item);
        if (change.at_seconds == 0) {
            cluster.overrides.push_back(std::move(change.what));
        } else {
            cluster.changes.push_back(std::move(change));
        }
    }
    std::stable_sort(cluster.changes.begin(), cluster.changes.end(),
                     [](const LinkChange& x, const LinkChange& y) { return x.at_seconds < y.at_seconds; });
}

void read_other_devices(const JsonReader& reader, ClusterSpec& cluster) {
    std::int64_t first_free = 0;
    for (const JsonReader& item : reader.objects("other_devices")) {
        DeviceRange range;
        range.first_node = item.integer("first_node", {first_free, kNodeCounts.high});
        range.nodes = item.integer("nodes", kNodeCounts);
        range.device = named_device(item, "device");
        if (range.device.host_runs_compute != cluster.device.host_runs_compute) {
            item.fail("device", cluster.device.host_runs_compute ? "a CPU core, as the cluster's other devices"
                                                                 : "a GPU, as the cluster's other devices");
        }
        item.finish();
        first_free = range.first_node + range.nodes;
        cluster.other_devices.push_back(std::move(range));
    }
}

Json shape_json(const FabricShape& shape) {
    Json json = Json::object();
    for (const ShapeKey& key : shape_keys()) {
        if (shape.*key.member != 0) json[key.name] = shape.*key.member;
    }
    if (!shape.oversubscription.empty()) json["oversubscription"] = shape.oversubscription;
    if (!shape.dimensions.empty()) json["dimensions"] = shape.dimensions;
    if (shape.trunk != LinkProfile{}) json["trunk"] = link_json(shape.trunk);
    if (shape.core_trunk != LinkProfile{}) json["core_trunk"] = link_json(shape.core_trunk);
    return json;
}

Json inside_json(const NodeInside& inside) {
    Json json = Json::object();
    if (inside.sockets > 0) json["sockets"] = inside.sockets;
    if (inside.pcie_switches > 0) json["pcie_switches"] = inside.pcie_switches;
    if (inside.socket_link != LinkProfile{}) json["socket_link"] = link_json(inside.socket_link);
    if (inside.pcie_uplink != LinkProfile{}) json["pcie_uplink"] = link_json(inside.pcie_uplink);
    if (!inside.device_ports.empty()) json["device_ports"] = inside.device_ports;
    if (!inside.nic_ports.empty()) json["nic_ports"] = inside.nic_ports;
    if (!inside.nvlink_pairs.empty()) {
        json["nvlink_pairs"] = Json::array();
        for (const DirectLinks& pair : inside.nvlink_pairs) {
            json["nvlink_pairs"].push_back(Json{{"devices", {pair.a, pair.b}}, {"links", pair.links}});
        }
    }
    return json;
}

Json override_json(const LinkOverride& change) {
    Json json{{"link", change.link}};
    if (change.node >= 0) json["node"] = change.node;
    if (change.rail >= 0) json["rail"] = change.rail;
    if (change.bandwidth_fraction == 0) {
        json["bandwidth"] = "failed";
    } else {
        json["bandwidth"] = change.bandwidth_fraction;
    }
    return json;
}

}  // namespace

LinkProfile named_link(const JsonReader& reader, const std::string& key) {
    return named_or_in_full(reader, key, link_names(), load_link, read_link);
}

DeviceProfile named_device(const JsonReader& reader, const std::string& key) {
    return named_or_in_full(reader, key, device_names(), load_device, read_device);
}

void read_fabric(const JsonReader& reader, ClusterSpec& cluster) {
    std::vector<std::string> names;
    for (const FabricKind kind : kFabrics) names.push_back(name_of(kind));
    const std::string chosen = reader.choice("fabric", names);
    cluster.fabric =
        kFabrics.at(static_cast<std::size_t>(std::find(names.begin(), names.end(), chosen) - names.begin()));
    const FabricKind kind = cluster.fabric;
    const bool has_fabric = kind != FabricKind::none;
    if (has_fabric && cluster.nics_per_node == 0) reader.fail("fabric", "none, since nics_per_node is 0");
    if (!has_fabric && cluster.nodes > 1) reader.fail("nodes", "1, since fabric is none");
    if (on_rails(kind) || reader.has("nodes_per_scalable_unit")) {
        cluster.nodes_per_scalable_unit =
            reader.integer("nodes_per_scalable_unit", {on_rails(kind) ? 1 : 0, kNodeCounts.high});
    }
    const bool needs_shape = kind == FabricKind::fat_tree || kind == FabricKind::dragonfly || kind == FabricKind::torus;
    if (needs_shape || reader.has("fabric_shape")) {
        if (!has_fabric) reader.fail("fabric_shape", "nothing, since fabric is none");
        cluster.fabric_shape = read_shape(reader.object("fabric_shape"), kind);
    }
    if (reader.has("inside")) cluster.inside = read_inside(reader.object("inside"));
    if (reader.has("inside") && cluster.inside.sockets > 0 && !reader.has("host_link"))
        (void)reader.object("host_link");
    if (reader.has("routing")) {
        const JsonReader routing = reader.object("routing");
        if (routing.has("spread")) cluster.routing.spread = static_cast<Spread>(choice_of(routing, "spread", kSpreads));
        if (routing.has("nic")) cluster.routing.nic = static_cast<NicChoice>(choice_of(routing, "nic", kNicChoices));
        routing.finish();
    }
    if (reader.has("overrides")) read_overrides(reader, cluster);
    if (reader.has("other_devices")) read_other_devices(reader, cluster);
}

void add_fabric(Json& json, const ClusterSpec& cluster) {
    json["fabric"] = name_of(cluster.fabric);
    json["nodes_per_scalable_unit"] = cluster.nodes_per_scalable_unit;
    if (const Json shape = shape_json(cluster.fabric_shape); !shape.empty()) json["fabric_shape"] = shape;
    if (const Json inside = inside_json(cluster.inside); !inside.empty()) json["inside"] = inside;
    if (cluster.routing != Routing{}) {
        json["routing"] = Json{{"spread", kSpreads.at(static_cast<std::size_t>(cluster.routing.spread))},
                               {"nic", kNicChoices.at(static_cast<std::size_t>(cluster.routing.nic))}};
    }
    for (const LinkOverride& change : cluster.overrides) json["overrides"].push_back(override_json(change));
    for (const LinkChange& change : cluster.changes) {
        Json timed = override_json(change.what);
        timed["at_seconds"] = change.at_seconds;
        json["overrides"].push_back(std::move(timed));
    }
    for (const DeviceRange& range : cluster.other_devices) {
        json["other_devices"].push_back(
            Json{{"first_node", range.first_node}, {"nodes", range.nodes}, {"device", device_json(range.device)}});
    }
}

}  // namespace orrery::topologies
