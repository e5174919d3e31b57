#include "sim/network/nvlink_mesh.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

namespace orrery::sim {
namespace {

/// Bytes per second from each device to each other over their direct links.
std::vector<std::vector<double>> direct_links(const topologies::Cluster& cluster,
                                              std::span<const std::int64_t> devices) {
    std::vector<std::vector<double>> carried(devices.size(), std::vector<double>(devices.size()));
    for (std::size_t a = 0; a < devices.size(); ++a) {
        for (const topologies::Link& link : cluster.links_from(static_cast<topologies::VertexId>(devices[a]))) {
            if (link.failed || link.kind != topologies::LinkKind::intra_node) continue;
            const auto found = std::find(devices.begin(), devices.end(), static_cast<std::int64_t>(link.to));
            if (found == devices.end()) continue;
            carried[a][static_cast<std::size_t>(found - devices.begin())] += link.bandwidth.value() * link.efficiency;
        }
    }
    return carried;
}

}  // namespace

/// Stoer and Wagner, A simple min-cut algorithm, Journal of the ACM 44 (1997): in each phase devices join a set in the
/// order of their bandwidth to it. The cut around the last device is the minimum cut that separates it from the one
/// before; the two are then merged.
BytesPerSecond mesh_ring_bandwidth(const topologies::Cluster& cluster, std::span<const std::int64_t> devices) {
    if (devices.size() < 2) return BytesPerSecond(0);
    std::vector<std::vector<double>> carried = direct_links(cluster, devices);
    std::vector<std::size_t> left(devices.size());
    std::iota(left.begin(), left.end(), std::size_t{0});
    double least = std::numeric_limits<double>::infinity();
    while (left.size() > 1) {
        std::vector<double> to_part(devices.size());
        std::vector<std::size_t> waiting = left;
        std::size_t before = 0, last = 0;
        while (!waiting.empty()) {
            const auto next = std::max_element(waiting.begin(), waiting.end(),
                                               [&](std::size_t a, std::size_t b) { return to_part[a] < to_part[b]; });
            before = last;
            last = *next;
            waiting.erase(next);
            for (const std::size_t other : waiting) to_part[other] += carried[last][other];
        }
        least = std::min(least, to_part[last]);
        for (const std::size_t other : left) {
            if (other == last || other == before) continue;
            carried[before][other] += carried[last][other];
            carried[other][before] += carried[other][last];
        }
        left.erase(std::find(left.begin(), left.end(), last));
    }
    return BytesPerSecond(least);
}

}  // namespace orrery::sim
