// The fields of a cluster file (core/json_fields.h). Private to this folder and the tests of schemas.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "topologies/cluster_spec.h"
#include "topologies/profile_fields.h"

namespace orrery {

template <>
inline constexpr int kValuesOf<topologies::FabricKind> = static_cast<int>(topologies::FabricKind::torus) + 1;
template <>
inline constexpr int kValuesOf<topologies::Spread> = static_cast<int>(topologies::Spread::hash) + 1;
template <>
inline constexpr int kValuesOf<topologies::NicChoice> = static_cast<int>(topologies::NicChoice::pxn) + 1;
template <>
inline constexpr int kValuesOf<topologies::CollectiveLibrary> =
    static_cast<int>(topologies::CollectiveLibrary::orrery) + 1;

}  // namespace orrery

namespace orrery::topologies {

[[nodiscard]] std::string_view name_of(Spread spread);
[[nodiscard]] std::string_view name_of(NicChoice choice);
[[nodiscard]] constexpr bool on_rails(FabricKind kind) {
    return kind == FabricKind::rail_optimised || kind == FabricKind::rail_only;
}

inline constexpr IntegerRange kNodeCounts{1, 1 << 20};
inline constexpr IntegerRange kNodeNumbers{0, 1 << 20};
inline constexpr IntegerRange kDeviceCounts{1, 1 << 12};
inline constexpr IntegerRange kSwitchesOfNode{0, 64};
inline constexpr IntegerRange kLinkCounts{1, 64};
inline constexpr IntegerRange kSwitchCounts{1, 1 << 16};
inline constexpr IntegerRange kTorusLengths{1, 1 << 15};
inline constexpr IntegerRange kParts{0, 1 << 8};
inline constexpr IntegerRange kGroupSizes{2, 1 << 20};
inline constexpr NumberRange kOversubscription{1, 1000};
inline constexpr IntegerRange kDeviceNumbers{0, (1 << 20) - 1};
inline constexpr NumberRange kSpeeds{0, 1, true};
inline constexpr NumberRange kTimesOfChange{0, 1e6, true};
inline const OneOf kSampledOperations{{"all_reduce", "all_gather", "reduce_scatter", "send"}};

/// An integer of a shape, and the kinds of fabric that have it.
struct ShapeKey {
    const char* name;
    std::int64_t FabricShape::*member;
    std::vector<FabricKind> kinds;
    IntegerRange range = kSwitchCounts;
};
[[nodiscard]] const std::vector<ShapeKey>& shape_keys();

template <Either<FabricShape> Object>
void visit_fields(Object& s, auto&& visit) {
    for (const ShapeKey& key : shape_keys()) visit(key.name, s.*key.member, kIfChanged, key.range);
    visit("oversubscription", s.oversubscription, kIfChanged, kOversubscription);
    visit("dimensions", s.dimensions, kIfChanged, kTorusLengths);
    visit("trunk", s.trunk, kIfChanged);
    visit("core_trunk", s.core_trunk, kIfChanged);
}
/// With the keys that this kind of fabric has.
void read_field(const JsonReader& reader, const std::string& key, FabricShape& shape, FabricKind kind);

template <Either<DirectLinks> Object>
void visit_fields(Object& d, auto&& visit) {
    const Pair devices{d.a, d.b, "two device numbers"};
    visit("devices", devices, kRequired, kCount);
    visit("links", d.links, kLinkCounts);
}

template <Either<NodeInside> Object>
void visit_fields(Object& i, auto&& visit) {
    visit("sockets", i.sockets, kIfChanged, kParts);
    visit("pcie_switches", i.pcie_switches, kIfChanged, kParts);
    visit("socket_link", i.socket_link, Presence{.required = i.sockets > 1, .only_if_changed = true});
    visit("pcie_uplink", i.pcie_uplink, kIfChanged);
    visit("device_ports", i.device_ports, kIfChanged, kParts);
    visit("nic_ports", i.nic_ports, kIfChanged, kParts);
    visit("nvlink_pairs", i.nvlink_pairs, kIfChanged);
}

template <Either<Routing> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("spread", r.spread);
    visit("nic", r.nic);
}

/// The fraction of its bandwidth that a link keeps, or "failed".
struct FractionOrFailed {};
void read_field(const JsonReader& reader, const std::string& key, double& fraction, FractionOrFailed);
[[nodiscard]] JsonValue field_json(double fraction, FractionOrFailed);

/// An override without a time holds from the start.
template <Either<LinkChange> Object>
void visit_fields(Object& c, auto&& visit) {
    visit("link", c.what.link, kRequired);
    visit("node", c.what.node, kIfChanged, kNodeNumbers);
    visit("rail", c.what.rail, kIfChanged, kCount);
    visit("bandwidth", c.what.bandwidth_fraction, kRequired, FractionOrFailed{});
    visit("at_seconds", c.at_seconds, kIfChanged, kTimesOfChange);
}
void check_fields(const JsonReader& reader, const LinkChange& change);

/// Overrides and changes of links, in one list.
template <Either<ClusterSpec> Cluster>
struct OverridesOf {
    Cluster& cluster;
};
void read_field(const JsonReader& reader, const std::string& key, const OverridesOf<ClusterSpec>& overrides);
[[nodiscard]] JsonValue field_json(const OverridesOf<const ClusterSpec>& overrides);

template <Either<DeviceRange> Object>
void visit_fields(Object& r, auto&& visit) {
    visit("first_node", r.first_node, kRequired, kNodeNumbers);
    visit("nodes", r.nodes, kRequired, kNodeCounts);
    visit("device", r.device, kRequired);
}

template <Either<SlowDevice> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("device", s.device, kRequired, kDeviceNumbers);
    visit("speed", s.speed, kRequired, kSpeeds);
}

template <Either<LowLatencyLimits> Object>
void visit_fields(Object& l, auto&& visit) {
    visit("one_node", l.one_node_gb_per_s, kRequired, kPositive);
    visit("two_nodes", l.two_nodes_gb_per_s, kRequired, kPositive);
    visit("more_nodes", l.more_nodes_gb_per_s, kRequired, kPositive);
}

template <Either<TransportSample> Object>
void visit_fields(Object& s, auto&& visit) {
    visit("op", s.op, kRequired, kSampledOperations);
    visit("ranks", s.ranks, kRequired, kGroupSizes);
    visit("bytes", s.bytes, kRequired, kCount);
    visit("seconds", s.seconds, kRequired, kPositive);
}

template <Either<ClusterSpec> Object>
void visit_fields(Object& c, auto&& visit) {
    visit("name", c.name, kRequired);
    visit("source", c.source, kRequired);
    visit("nodes", c.nodes, kRequired, kNodeCounts);
    visit("devices_per_node", c.devices_per_node, kRequired, kDeviceCounts);
    visit("device", c.device, kRequired);
    visit("intra_node", c.intra_node, kRequired);
    visit("node_switches", c.node_switches, kRequired, kSwitchesOfNode);
    visit("nics_per_node", c.nics_per_node, kRequired, DependentRange{{0, c.devices_per_node}, kCount});
    const Presence with_nics{.required = c.nics_per_node > 0, .only_if_changed = true};
    visit("nic", c.nic, with_nics);
    visit("host_link", c.host_link, with_nics);
    visit("host_memory_link", c.host_memory_link, kIfChanged);
    visit("devices_per_host_link", c.devices_per_host_link, kIfChanged,
          DependentRange{{1, c.devices_per_node}, kPositiveInteger});
    visit("host_memory_bandwidth_gb_per_s", c.host_memory_bandwidth_gb_per_s, kIfChanged, kPositive);
    visit("host_memory_gib", c.host_memory_gib, kIfChanged, kPositive);
    visit("fabric", c.fabric, kRequired);
    visit("nodes_per_scalable_unit", c.nodes_per_scalable_unit, Presence{.required = on_rails(c.fabric)},
          DependentRange{{on_rails(c.fabric) ? 1 : 0, kNodeNumbers.high}, kNodeNumbers});
    const bool has_shape =
        c.fabric == FabricKind::fat_tree || c.fabric == FabricKind::dragonfly || c.fabric == FabricKind::torus;
    visit("fabric_shape", c.fabric_shape, Presence{.required = has_shape, .only_if_changed = true}, c.fabric);
    visit("inside", c.inside, kIfChanged);
    visit("routing", c.routing, kIfChanged);
    const OverridesOf<Object> overrides{c};
    visit("overrides", overrides, kIfChanged);
    visit("other_devices", c.other_devices, kIfChanged);
    visit("slow_devices", c.slow_devices, kIfChanged);
    visit("low_latency_gb_per_s", c.low_latency,
          Presence{.required = !c.device.host_runs_compute, .only_if_changed = true});
    visit("collective_library", c.collective_library, kIfChanged);
    visit("transport_samples", c.transport_samples);
    visit("notes", c.notes, kIfChanged);
}
void check_fields(const JsonReader& reader, const ClusterSpec& cluster);

}  // namespace orrery::topologies
