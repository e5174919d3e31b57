// Shortest routes between the switches of a fabric: computed from the geometry in trees and tori where no failed link
// is involved, else found by search.
#pragma once

#include <cstdint>
#include <vector>

#include "topologies/fabric.h"
#include "topologies/graph.h"
#include "topologies/switch_routes.h"

namespace orrery::topologies {

/// Switches are given by their number in the fabric. Distances and routes equal those of SwitchRoutes, including the
/// choice among equal-cost routes, but need no tables, whose search takes a second for 131,072 GPUs. A failed uplink of
/// a leaf affects routes from and to this leaf; a failed link between spine and core affects routes between its pod and
/// others; in a torus a failed link affects all routes. Safe for concurrent callers.
class FabricRoutes {
  public:
    /// `first`: the graph's vertex of switch 0.
    FabricRoutes(const Graph& graph, const Fabric& fabric, VertexId first);

    /// Number of links of a shortest route between the switches of two NICs; -1: there is none.
    [[nodiscard]] std::int64_t distance(std::int64_t from, std::int64_t to) const;
    /// Calls visit(link) for each link of one shortest route, in travel order. A route must exist; `choice` selects it
    /// as in SwitchRoutes::append_route.
    template <typename Visit>
    void for_each_link(std::int64_t from, std::int64_t to, std::uint64_t choice, const Visit& visit) const {
        if (from == to) return;
        if (!is_regular(from, to)) {
            std::vector<LinkId> links;
            searched_.append_route(vertex(from), vertex(to), choice, links);
            for (const LinkId link : links) visit(link);
        } else if (torus_) {
            while (from != to) {
                const TorusStep step = torus_step(from, to, choice);
                visit(step.link);
                from = step.to;
            }
        } else {
            climb(at(from), at(to), static_cast<std::int64_t>(choice % static_cast<std::uint64_t>(up_)),
                  choice / static_cast<std::uint64_t>(up_), visit);
        }
    }
    [[nodiscard]] const SwitchRoutes& searched() const { return searched_; }

  private:
    struct TorusStep {
        std::int64_t to = 0;
        LinkId link = 0;
    };
    struct Leaf {
        std::int32_t group = 0;     // its pod, or its rail where spines join one rail only
        std::int32_t position = 0;  // among the leaves below its group's spines
        bool touched = false;       // an uplink has failed
        LinkId up = 0;              // its first uplink
    };
    static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
    [[nodiscard]] VertexId vertex(std::int64_t number) const { return first_ + static_cast<VertexId>(number); }
    void read_leaves(const Graph& graph, const Fabric& fabric);
    void read_upper_tiers(const Graph& graph, const Fabric& fabric);
    void read_torus(const Graph& graph, const Fabric& fabric);
    [[nodiscard]] bool is_regular(std::int64_t from, std::int64_t to) const;
    [[nodiscard]] std::int64_t torus_distance(std::int64_t from, std::int64_t to) const;
    /// The (choice mod count)-th of the `count` neighbours nearer to `to`, in ascending order; divides `choice` by
    /// count.
    [[nodiscard]] TorusStep torus_step(std::int64_t from, std::int64_t to, std::uint64_t& choice) const;

    /// Up over the leaf's uplink `plane`; if the target is in another group, on over the spine's uplink
    /// (choice mod their number) and a core; then down.
    template <typename Visit>
    void climb(std::size_t from, std::size_t to, std::int64_t plane, std::uint64_t choice, const Visit& visit) const {
        const Leaf &source = leaves_[from], &target = leaves_[to];
        visit(source.up + static_cast<LinkId>(plane));
        if (source.group != target.group) {
            const auto core = static_cast<std::int64_t>(choice % static_cast<std::uint64_t>(spine_up_));
            visit(spine_uplink_[at(source.group * up_ + plane)] + static_cast<LinkId>(core));
            visit(core_link_[at(plane * spine_up_ + core)] + target.group);
        }
        visit(spine_link_[at(target.group * up_ + plane)] + target.position);
    }

    VertexId first_ = 0;
    SwitchRoutes searched_;
    std::vector<Leaf> leaves_;                       // empty: the fabric is not a tree
    std::int64_t up_ = 0, spine_up_ = 0;             // uplinks of a leaf, of a spine
    std::vector<LinkId> spine_link_, spine_uplink_;  // first downlink and first uplink of each spine
    std::vector<LinkId> core_link_;                  // first downlink of each core
    std::vector<bool> touched_pods_;                 // a link to a core has failed
    bool torus_ = false;
    std::vector<std::int64_t> dimensions_;
    std::vector<LinkId> router_link_;       // torus: the first link of each router that leads to another router
    std::vector<std::int32_t> neighbours_;  // of all routers one after another, in the order of their links
    std::vector<std::size_t> first_neighbour_;
};

}  // namespace orrery::topologies
