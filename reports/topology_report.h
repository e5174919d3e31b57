// A report on a cluster's graph: its vertices and links by class, the routes between two ranks, and its bisection
// bandwidth.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::reports {

struct VertexClass {
    topologies::VertexKind kind{};
    std::int64_t count = 0;
};

/// Links of equal kind and figures.
struct LinkClass {
    topologies::LinkKind kind{};
    double gb_per_s_per_direction = 0;  // nominal
    double latency_us = 0;
    double efficiency = 1;
    std::int64_t count = 0;   // cables; both directions count once
    std::int64_t failed = 0;  // failed cables among them
    std::string profile;      // "nvlink4"
    std::string provenance;   // of the bandwidth: "datasheet"
};

/// One hop of a route: a link, or the links over which the hop is striped.
struct Hop {
    std::string from, to;  // of the first stripe
    topologies::LinkKind kind{};
    std::int64_t stripes = 1;
    double gb_per_s_per_direction = 0;  // of all stripes
    double latency_us = 0;
};
struct Way {
    std::vector<Hop> hops;
    double latency_us = 0;
    double gb_per_s_per_direction = 0;  // narrowest hop, nominal; 0 from a device to itself
};
struct Ways {
    std::int64_t from = 0, to = 0;  // ranks
    std::string distance;
    bool forwarded = false;   // over NVLink to the device on the receiver's rail (PXN)
    std::int64_t equal = 1;   // number of shortest routes through the fabric, at most 2^62
    std::vector<Way> listed;  // at most kMostWays, beginning with the one that traffic takes
};
inline constexpr std::size_t kMostWays = 16;

struct TopologyReport {
    std::string cluster, source, device, fabric;
    std::int64_t nodes = 0, devices_per_node = 0, nics_per_node = 0;
    std::vector<VertexClass> vertices;
    std::vector<LinkClass> links;
    double bisection_gb_per_s = 0;  // 0: one node
    std::optional<Ways> ways;
    std::vector<std::string> notes;
};

/// Throws InputError when a rank does not exist or there is no route between the two.
[[nodiscard]] TopologyReport report_topology(const topologies::Cluster& cluster,
                                             std::optional<std::pair<std::int64_t, std::int64_t>> ranks,
                                             std::vector<std::string> notes);
[[nodiscard]] std::string topology_text(const TopologyReport& report);
/// orrery.topology/1
[[nodiscard]] std::string topology_json(const TopologyReport& report);

}  // namespace orrery::reports
