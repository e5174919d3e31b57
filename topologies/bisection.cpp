#include "topologies/bisection.h"

// g++ 12 falsely reports Boost's optional pair of edge iterators as uninitialised.
#ifndef __clang__
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <algorithm>
#include <array>
#include <boost/graph/adjacency_list.hpp>
#include <boost/graph/boykov_kolmogorov_max_flow.hpp>
#include <cmath>
#include <limits>

#include "core/error.h"

namespace orrery::topologies {
namespace {

using Traits = boost::adjacency_list_traits<boost::vecS, boost::vecS, boost::directedS>;
using Vertices = boost::property<
    boost::vertex_index_t, std::size_t,
    boost::property<boost::vertex_color_t, boost::default_color_type,
                    boost::property<boost::vertex_distance_t, std::int64_t,
                                    boost::property<boost::vertex_predecessor_t, Traits::edge_descriptor>>>>;
using Edges = boost::property<boost::edge_capacity_t, std::int64_t,
                              boost::property<boost::edge_residual_capacity_t, std::int64_t,
                                              boost::property<boost::edge_reverse_t, Traits::edge_descriptor>>>;
using FlowGraph = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, Vertices, Edges>;

void add_cable(FlowGraph& graph, std::size_t a, std::size_t b, std::int64_t there, std::int64_t back) {
    const auto ab = boost::add_edge(a, b, graph).first;
    const auto ba = boost::add_edge(b, a, graph).first;
    boost::put(boost::edge_capacity, graph, ab, there);
    boost::put(boost::edge_capacity, graph, ba, back);
    boost::put(boost::edge_reverse, graph, ab, ba);
    boost::put(boost::edge_reverse, graph, ba, ab);
}

/// In bytes per second: integers keep the maximum flow exact.
std::int64_t capacity_of(const Link& link) {
    return link.failed ? 0 : std::llround(link.bandwidth.value());
}

std::int64_t capacity_between(const Graph& graph, VertexId a, VertexId b) {
    const std::optional<LinkId> id = graph.link_between(a, b);
    return id ? capacity_of(graph.link(*id)) : 0;
}

/// Minimum cut of a Clos, seen as a tree in which each pod's spines are one vertex and the cores another. Sides of the
/// cut: 0 with the first half of the nodes, 1 with the second.
class ClosCut {
  public:
    explicit ClosCut(const Cluster& cluster) : clos_(cluster.fabric().clos()), nodes_(cluster.spec().nodes) {
        const ClusterSpec& spec = cluster.spec();
        const auto bytes = [](const LinkProfile& link) {
            return link.bandwidth_gb_per_s_per_direction.value * kGigabyte;
        };
        const FabricShape& shape = spec.fabric_shape;
        const LinkProfile& trunk = shape.trunk == LinkProfile{} ? spec.nic : shape.trunk;
        const LinkProfile& core_trunk = shape.core_trunk == LinkProfile{} ? trunk : shape.core_trunk;
        const auto up = static_cast<double>(clos_.uplinks_per_leaf);
        node_ = bytes(spec.nic) * static_cast<double>(spec.nics_per_node / clos_.leaves_per_unit);
        leaf_up_ = up * bytes(trunk);
        pod_up_ = up * static_cast<double>(clos_.uplinks_per_spine) * bytes(core_trunk);
    }

    /// Whether some tier is oversubscribed.
    [[nodiscard]] bool narrows() const {
        constexpr double kRounding = 1 - 1e-9;
        if (clos_.units == 1 || clos_.uplinks_per_leaf == 0) return false;
        const double below_leaf = static_cast<double>(std::min(clos_.nodes_per_unit, nodes_)) * node_;
        if (leaf_up_ < below_leaf * kRounding) return true;
        if (clos_.units_per_pod == 0 || clos_.pods == 1) return false;
        const auto leaves = static_cast<double>(std::min(clos_.units_per_pod, clos_.units) * clos_.leaves_per_unit);
        return pod_up_ < leaves * leaf_up_ * kRounding;
    }

    [[nodiscard]] double bytes_per_second() const {
        // Leaves of different rails are alike, whether they share spines or not: all rails together carry one rail's
        // bandwidth times their number.
        const auto rails = static_cast<double>(clos_.leaves_per_unit);
        if (clos_.uplinks_per_leaf == 0) return rails * of_lone_leaf();
        if (clos_.units_per_pod == 0)
            return rails * std::min(of_leaves(0, clos_.units, 0), of_leaves(0, clos_.units, 1));
        // A pod's uplinks carry all of its rails.
        std::array<double, 2> total{};
        for (std::int64_t pod = 0; pod < clos_.pods; ++pod) {
            const std::int64_t first = pod * clos_.units_per_pod;
            const std::int64_t last = std::min(first + clos_.units_per_pod, clos_.units);
            const double near[] = {rails * of_leaves(first, last, 0), rails * of_leaves(first, last, 1)};
            for (const int core : {0, 1})
                total[static_cast<std::size_t>(core)] += std::min(near[core], near[1 - core] + pod_up_);
        }
        return std::min(total[0], total[1]);
    }

  private:
    /// Bandwidth of the NICs below one leaf of the unit, for each half of the nodes.
    [[nodiscard]] std::array<double, 2> below(std::int64_t unit) const {
        const std::int64_t first = unit * clos_.nodes_per_unit;
        const std::int64_t last = std::min(first + clos_.nodes_per_unit, nodes_), half = nodes_ / 2;
        const std::int64_t in_first = std::clamp<std::int64_t>(half - first, 0, last - first);
        return {static_cast<double>(in_first) * node_, static_cast<double>(last - first - in_first) * node_};
    }
    [[nodiscard]] double of_lone_leaf() const { return std::min(below(0)[0], below(0)[1]); }
    [[nodiscard]] double of_leaves(std::int64_t first, std::int64_t last, std::size_t spine_side) const {
        double sum = 0;
        for (std::int64_t unit = first; unit < last; ++unit) {
            const std::array<double, 2> nics = below(unit);  // a leaf on one side cuts off the other side's NICs
            sum += std::min(nics[1 - spine_side], nics[spine_side] + leaf_up_);
        }
        return sum;
    }

    const Fabric::Clos& clos_;
    std::int64_t nodes_ = 0;
    double node_ = 0, leaf_up_ = 0, pod_up_ = 0;
};

std::vector<bool> first_half(std::int64_t nodes) {
    std::vector<bool> first(static_cast<std::size_t>(nodes));
    std::fill(first.begin(), first.begin() + nodes / 2, true);
    return first;
}

BytesPerSecond torus_bisection(const Cluster& cluster) {
    const std::vector<std::int64_t>& dimensions = cluster.spec().fabric_shape.dimensions;
    const std::int64_t nodes = cluster.spec().nodes;
    auto least = BytesPerSecond(std::numeric_limits<double>::infinity());
    std::int64_t stride = 1;
    for (const std::int64_t length : dimensions) {
        if (length % 2 == 0 && nodes == cluster.fabric().routers()) {
            std::vector<bool> first;
            for (std::int64_t node = 0; node < nodes; ++node) first.push_back(node / stride % length < length / 2);
            least = std::min(least, cut_bandwidth(cluster, first));
        }
        stride *= length;
    }
    return std::isinf(least.value()) ? cut_bandwidth(cluster, first_half(nodes)) : least;
}

}  // namespace

BytesPerSecond bisection_bandwidth(const Cluster& cluster) {
    const FabricKind kind = cluster.fabric().kind();
    if (kind == FabricKind::none) {
        throw InputError("cluster " + cluster.spec().name, "nodes", "1", "at least 2, to cut it in halves");
    }
    if (kind == FabricKind::torus) return torus_bisection(cluster);
    if (cluster.fabric().is_clos() && cluster.spec().overrides.empty()) {
        return BytesPerSecond(ClosCut(cluster).bytes_per_second());
    }
    return cut_bandwidth(cluster, first_half(cluster.spec().nodes));
}

bool may_block(const Cluster& cluster) {
    if (!cluster.spec().overrides.empty()) return true;
    const FabricKind kind = cluster.fabric().kind();
    if (kind == FabricKind::none || kind == FabricKind::single_switch) return false;
    if (!cluster.fabric().is_clos() || cluster.spec().routing.spread != Spread::source) return true;
    return ClosCut(cluster).narrows();
}

BytesPerSecond cut_bandwidth(const Cluster& cluster, const std::vector<bool>& first) {
    const Graph& graph = cluster.graph();
    const Fabric& fabric = cluster.fabric();
    const auto nodes = static_cast<std::int64_t>(first.size());
    ORRERY_CHECK(nodes == cluster.spec().nodes, "a side for each node");
    const auto switches = static_cast<std::size_t>(fabric.switch_count());
    const std::size_t source = switches, sink = switches + 1;
    std::vector<std::array<std::int64_t, 2>> nics(switches);  // NIC bandwidth by switch and half
    for (std::int64_t node = 0; node < nodes; ++node) {
        for (std::int64_t rail = 0; rail < cluster.spec().nics_per_node; ++rail) {
            const std::int64_t edge = fabric.edge_switch(node, rail);
            nics[static_cast<std::size_t>(edge)][first[static_cast<std::size_t>(node)] ? 0 : 1] +=
                capacity_between(graph, cluster.nic(node, rail), cluster.fabric_switch(edge));
        }
    }
    FlowGraph flow(switches + 2);
    for (std::size_t i = 0; i < switches; ++i) {
        if (nics[i][0] > 0) add_cable(flow, source, i, nics[i][0], 0);
        if (nics[i][1] > 0) add_cable(flow, i, sink, nics[i][1], 0);
    }
    fabric.for_each_trunk([&](std::int64_t a, std::int64_t b, LinkKind, std::int64_t) {
        const VertexId from = cluster.fabric_switch(a), to = cluster.fabric_switch(b);
        add_cable(flow, static_cast<std::size_t>(a), static_cast<std::size_t>(b), capacity_between(graph, from, to),
                  capacity_between(graph, to, from));
    });
    return BytesPerSecond(static_cast<double>(boost::boykov_kolmogorov_max_flow(flow, source, sink)));
}

}  // namespace orrery::topologies
