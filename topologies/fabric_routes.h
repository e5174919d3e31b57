// Shortest routes between the switches of a fabric: by its geometry where that is a tree or a torus and no failed link
// touches them, else by search.
#pragma once

#include <cstdint>
#include <vector>

#include "topologies/fabric.h"
#include "topologies/graph.h"
#include "topologies/switch_routes.h"

namespace orrery::topologies {

/// Switches by their number in the fabric. Distances and routes are those of SwitchRoutes, equal choices included, but
/// without its tables: those of 131,072 GPUs take a second to search for. A failed link of a leaf touches only routes
/// from and to this leaf, one between spine and core those from and to other pods; in a torus any touches all. Safe for
/// concurrent callers.
class FabricRoutes {
  public:
    /// `first`: the vertex of switch 0.
    FabricRoutes(const Graph& graph, const Fabric& fabric, VertexId first);

    /// Links of a shortest route between the switches of two NICs; -1: there is none.
    [[nodiscard]] std::int64_t distance(std::int64_t from, std::int64_t to) const;
    /// Calls visit(link) for those of one of the shortest routes, which must exist, in travel order; `choice` as
    /// SwitchRoutes counts.
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
        bool touched = false;       // by a failed uplink
        LinkId up = 0;              // its first uplink
    };
    static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }
    [[nodiscard]] VertexId vertex(std::int64_t number) const { return first_ + static_cast<VertexId>(number); }
    void read_leaves(const Graph& graph, const Fabric& fabric);
    void read_upper_tiers(const Graph& graph, const Fabric& fabric);
    void read_torus(const Graph& graph, const Fabric& fabric);
    [[nodiscard]] bool is_regular(std::int64_t from, std::int64_t to) const;
    [[nodiscard]] std::int64_t torus_distance(std::int64_t from, std::int64_t to) const;
    /// Of the neighbours that are nearer, in ascending order, the (choice mod their number)-th.
    [[nodiscard]] TorusStep torus_step(std::int64_t from, std::int64_t to, std::uint64_t& choice) const;

    /// Up over the leaf's uplink `plane`, and where the other is in another group over the spine's uplink `choice`.
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
    std::vector<Leaf> leaves_;  // empty: no tree
    std::int64_t up_ = 0, spine_up_ = 0;
    std::vector<LinkId> spine_link_, spine_uplink_, core_link_;  // first down and first up of each spine, of each core
    std::vector<bool> touched_pods_;                             // by a failed link to a core
    bool torus_ = false;
    std::vector<std::int64_t> dimensions_;
    std::vector<LinkId> router_link_;       // of a torus: the first of each router that leads to another
    std::vector<std::int32_t> neighbours_;  // of each router, in the order of those links
    std::vector<std::size_t> first_neighbour_;
};

}  // namespace orrery::topologies
