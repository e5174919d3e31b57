// For every preset, collective, message size and group shape: NCCL's choice is never slower than the alternatives, and
// bandwidth never falls as messages grow.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "sim/network/nccl_tuner.h"
#include "tests/unit/network/round_cluster.h"

namespace orrery::sim {
namespace {

using program::CommKind;
using rounded::kGiB;
using rounded::place;
using topologies::Cluster;
using topologies::ClusterSpec;

constexpr CommKind kRings[]{CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter, CommKind::broadcast,
                            CommKind::reduce};
constexpr CommKind kKinds[]{CommKind::all_reduce, CommKind::all_gather, CommKind::reduce_scatter, CommKind::broadcast,
                            CommKind::reduce,     CommKind::all_to_all, CommKind::scatter,        CommKind::gather,
                            CommKind::exchange,   CommKind::send};
/// Allows for parts of a message being whole bytes.
constexpr double kTolerance = 1e-3;

struct Shape {
    std::int64_t nodes = 1, members = 1;
};

std::vector<Shape> shapes_of(const ClusterSpec& node) {
    const std::int64_t full = node.devices_per_node;
    std::vector<Shape> shapes{{1, 2}};
    for (const std::int64_t members : {std::int64_t{3}, full / 2, full - 1, full}) {
        if (members > 2) shapes.push_back({1, members});
    }
    if (node.nics_per_node == 0) return shapes;
    for (const std::int64_t nodes : {2, 3, 4, 8, 20, 32, 128}) {
        if (nodes * full > 2048 || (node.fabric == topologies::FabricKind::single_switch && nodes > 8)) continue;
        shapes.push_back({nodes, full});
        shapes.push_back({nodes, 1});
        if (full > 2) shapes.push_back({nodes, full / 2});
    }
    return shapes;
}

std::vector<std::int64_t> devices_of(Shape shape, const ClusterSpec& node) {
    std::vector<std::int64_t> devices;
    for (std::int64_t at = 0; at < shape.nodes; ++at) {
        for (std::int64_t i = 0; i < shape.members; ++i) devices.push_back(at * node.devices_per_node + i);
    }
    return devices;
}

/// Calls `call` with every group of every preset.
template <typename Call>
void for_each_group(const Call& call) {
    for (const std::string& name : topologies::preset_names()) {
        if (name == "local") continue;
        const ClusterSpec node = topologies::load_cluster(name, 1);
        for (const Shape shape : shapes_of(node)) {
            const ClusterSpec spec = topologies::load_cluster(name, shape.nodes * node.devices_per_node);
            const GroupPlacement p = place(Cluster(spec), devices_of(shape, node));
            call(name + ", " + std::to_string(shape.nodes) + " nodes of " + std::to_string(shape.members), p, spec);
        }
    }
}

/// The powers of two from 8 bytes to 16 GiB, and one and a half times each.
std::vector<std::int64_t> sizes() {
    std::vector<std::int64_t> all;
    for (std::int64_t bytes = 8; bytes <= 16 * kGiB; bytes *= 2) {
        all.push_back(bytes);
        all.push_back(bytes / 2 * 3);
    }
    return all;
}

TEST(NcclChoice, TimesGrowAndBandwidthsNeverFallWithTheMessageSize) {
    for_each_group([](const std::string& where, const GroupPlacement& p, const ClusterSpec& spec) {
        for (const CommKind kind : kKinds) {
            if (kind == CommKind::send && p.ranks != 2) continue;
            double seconds = 0, bandwidth = 0;
            for (const std::int64_t bytes : sizes()) {
                const CollectiveCost cost = collective_cost(kind, bytes, p, spec);
                const double reached = static_cast<double>(bytes) / cost.seconds;
                EXPECT_GE(cost.seconds, seconds * (1 - kTolerance))
                    << where << " " << program::name_of(kind) << " " << bytes;
                EXPECT_GE(reached, bandwidth * (1 - kTolerance))
                    << where << " " << program::name_of(kind) << " " << bytes << " " << cost.algorithm_name()
                    << cost.detail;
                seconds = cost.seconds;
                bandwidth = reached;
            }
        }
    });
}

TEST(NcclChoice, IsNeverSlowerThanTheAlternatives) {
    for_each_group([](const std::string& where, const GroupPlacement& p, const ClusterSpec& spec) {
        for (const CommKind kind : kRings) {
            for (const NcclWay way : possible_ways(kind, p, spec, {})) {
                const CollectiveOptions how{.algorithm = way.algorithm, .protocol = way.protocol};
                for (std::int64_t bytes = 8; bytes <= 16 * kGiB; bytes *= 2) {
                    EXPECT_LE(collective_cost(kind, bytes, p, spec).seconds,
                              collective_cost(kind, bytes, p, spec, how).seconds * (1 + kTolerance))
                        << where << " " << program::name_of(kind) << " " << bytes << " " << name_of(way.algorithm)
                        << " " << name_of(way.protocol);
                }
            }
        }
    });
}

}  // namespace
}  // namespace orrery::sim
