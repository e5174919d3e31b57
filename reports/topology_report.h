// What a cluster's graph holds, for people: its vertices and links by class, the ways between two ranks, the bandwidth
// between its halves.
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
    std::int64_t count = 0;   // cables, both directions of which are one
    std::int64_t failed = 0;  // of them
    std::string profile;      // "nvlink4"
    std::string provenance;   // of the bandwidth: "datasheet"
};

/// One step of a way: a link, or those over which the step is striped.
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
    std::int64_t equal = 1;   // ways of the same length through the fabric, at most 2^62
    std::vector<Way> listed;  // the one that traffic takes first; at most kMostWays
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

/// Throws InputError when a rank does not exist or the two do not reach each other.
[[nodiscard]] TopologyReport report_topology(const topologies::Cluster& cluster,
                                             std::optional<std::pair<std::int64_t, std::int64_t>> ranks,
                                             std::vector<std::string> notes);
[[nodiscard]] std::string topology_text(const TopologyReport& report);
/// orrery.topology/1
[[nodiscard]] std::string topology_json(const TopologyReport& report);

}  // namespace orrery::reports
