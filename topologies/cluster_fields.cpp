#include "topologies/cluster_fields.h"

#include <algorithm>
#include <utility>

#include "topologies/names.h"

namespace orrery::topologies {
namespace {

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

/// The requirements of a kind on its shape.
void check_shape(const JsonReader& reader, const FabricShape& shape, FabricKind kind) {
    if (reader.has("radix") && shape.radix < 2) reader.fail("radix", "at least 2");
    if (reader.has("core_radix") && shape.core_radix < 2) reader.fail("core_radix", "at least 2");
    if (reader.has("core_radix") && shape.radix == 0) {
        reader.fail("core_radix", "nothing, since without a radix there are no cores");
    }
    if (reader.has("oversubscription") && (shape.oversubscription.empty() || shape.oversubscription.size() > 2)) {
        reader.fail("oversubscription", "one number (leaves) or two (leaves, a pod's spines)");
    }
    if (kind == FabricKind::torus && (shape.dimensions.size() < 2 || shape.dimensions.size() > 3)) {
        reader.fail("dimensions", "2 or 3 lengths");
    }
    if (kind == FabricKind::fat_tree) check_fat_tree(reader, shape);
    if (kind != FabricKind::dragonfly) return;
    for (const ShapeKey& key : shape_keys()) {
        if (key.kinds.front() == kind) (void)reader.integer(key.name, key.range);
    }
}

}  // namespace

std::string_view name_of(Spread spread) {
    static constexpr auto kNames = name_table<Spread::hash>({"source", "destination", "hash"});
    return kNames[spread];
}

std::string_view name_of(NicChoice choice) {
    static constexpr auto kNames = name_table<NicChoice::pxn>({"own", "pxn"});
    return kNames[choice];
}

const std::vector<ShapeKey>& shape_keys() {
    using enum FabricKind;
    static const std::vector<ShapeKey> keys{
        {"radix", &FabricShape::radix, {single_switch, rail_optimised, rail_only, fat_tree}},
        {"core_radix", &FabricShape::core_radix, {rail_optimised}},
        {"levels", &FabricShape::levels, {fat_tree}, {2, 3}},
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

void read_field(const JsonReader& reader, const std::string& key, FabricShape& shape, FabricKind kind) {
    if (kind == FabricKind::none) reader.fail(key, "nothing, since fabric is none");
    const JsonReader object = reader.object(key);
    const auto allow = [&](const char* name, const std::vector<FabricKind>& kinds) {
        if (!object.has(name) || std::find(kinds.begin(), kinds.end(), kind) != kinds.end()) return;
        object.fail(name, kinds_text(kinds));
    };
    for (const ShapeKey& one : shape_keys()) allow(one.name, one.kinds);
    allow("oversubscription", {FabricKind::rail_optimised, FabricKind::rail_only, FabricKind::fat_tree});
    allow("dimensions", {FabricKind::torus});
    read_fields(object, shape);
    check_shape(object, shape, kind);
    object.finish();
}

void read_field(const JsonReader& reader, const std::string& key, double& fraction, FractionOrFailed) {
    fraction = 0;
    if (reader.kind(key) == JsonKind::string) {
        (void)reader.choice(key, {"failed"});
    } else {
        fraction = reader.number(key, {0, 1, true});
    }
}

JsonValue field_json(double fraction, FractionOrFailed) {
    return fraction == 0 ? JsonValue("failed") : JsonValue(fraction);
}

void check_fields(const JsonReader& reader, const LinkChange& change) {
    const LinkOverride& what = change.what;
    if (what.link.find(" - ") != std::string::npos && (what.node >= 0 || what.rail >= 0)) {
        reader.fail("link", "a class of links, since node or rail is given");
    }
}

void read_field(const JsonReader& reader, const std::string& key, const OverridesOf<ClusterSpec>& overrides) {
    ClusterSpec& cluster = overrides.cluster;
    std::vector<LinkChange> all;
    orrery::read_field(reader, key, all);
    for (LinkChange& change : all) {
        if (change.at_seconds == 0) {
            cluster.overrides.push_back(std::move(change.what));
        } else {
            cluster.changes.push_back(std::move(change));
        }
    }
    std::stable_sort(cluster.changes.begin(), cluster.changes.end(),
                     [](const LinkChange& x, const LinkChange& y) { return x.at_seconds < y.at_seconds; });
}

JsonValue field_json(const OverridesOf<const ClusterSpec>& overrides) {
    std::vector<LinkChange> all;
    for (const LinkOverride& from_the_start : overrides.cluster.overrides) all.push_back({0, from_the_start});
    all.insert(all.end(), overrides.cluster.changes.begin(), overrides.cluster.changes.end());
    return orrery::field_json(all);
}

}  // namespace orrery::topologies
