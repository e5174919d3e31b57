#include "topologies/fabric_routes.h"

#include <algorithm>
#include <array>

#include "core/error.h"

namespace orrery::topologies {

FabricRoutes::FabricRoutes(const Graph& graph, const Fabric& fabric, VertexId first) : first_(first), searched_(graph) {
    if (fabric.is_clos()) {
        read_leaves(graph, fabric);
        read_upper_tiers(graph, fabric);
    } else if (fabric.kind() == FabricKind::torus) {
        read_torus(graph, fabric);
    }
}

/// Links of a switch are ordered: to NICs, to switches of the tier below, to switches of the tier above.
void FabricRoutes::read_leaves(const Graph& graph, const Fabric& fabric) {
    const Fabric::Clos& clos = fabric.clos();
    up_ = clos.uplinks_per_leaf;
    spine_up_ = clos.uplinks_per_spine;
    for (std::int64_t number = 0; number < fabric.leaves(); ++number) {
        const std::int64_t unit = number / clos.leaves_per_unit, rail = number % clos.leaves_per_unit;
        Leaf leaf;
        leaf.position = static_cast<std::int32_t>(number);
        if (clos.spines_of_one_rail) {
            leaf.group = static_cast<std::int32_t>(rail);
            leaf.position = static_cast<std::int32_t>(unit);
        } else if (clos.units_per_pod > 0) {
            const std::int64_t pod = unit / clos.units_per_pod;
            leaf.group = static_cast<std::int32_t>(pod);
            leaf.position = static_cast<std::int32_t>(number - pod * clos.units_per_pod * clos.leaves_per_unit);
        }
        leaf.up = graph.first_link(vertex(number) + 1) - static_cast<LinkId>(up_);
        for (std::int64_t i = 0; i < up_; ++i) leaf.touched |= graph.link(leaf.up + static_cast<LinkId>(i)).failed;
        leaves_.push_back(leaf);
    }
}

void FabricRoutes::read_upper_tiers(const Graph& graph, const Fabric& fabric) {
    const std::int64_t leaves = fabric.leaves(), spines = fabric.spines();
    touched_pods_.resize(at(up_ > 0 ? spines / up_ : 0));
    for (std::int64_t spine = 0; spine < spines; ++spine) {
        const VertexId id = vertex(leaves + spine);
        const LinkId up = graph.first_link(id + 1) - static_cast<LinkId>(spine_up_);
        spine_link_.push_back(graph.first_link(id));
        spine_uplink_.push_back(up);
        for (LinkId link = up; link < graph.first_link(id + 1); ++link) {
            if (graph.link(link).failed) touched_pods_[at(spine / up_)] = true;
        }
    }
    for (std::int64_t core = 0; core < fabric.cores(); ++core) {
        core_link_.push_back(graph.first_link(vertex(leaves + spines + core)));
    }
}

void FabricRoutes::read_torus(const Graph& graph, const Fabric& fabric) {
    torus_ = true;
    dimensions_ = fabric.dimensions();
    for (std::int64_t router = 0; router < fabric.routers(); ++router) {
        LinkId link = graph.first_link(vertex(router));
        const LinkId end = graph.first_link(vertex(router) + 1);
        while (link < end && graph.link(link).kind == LinkKind::nic) ++link;
        router_link_.push_back(link);
        first_neighbour_.push_back(neighbours_.size());
        for (; link < end; ++link) {
            neighbours_.push_back(graph.link(link).to - first_);
            torus_ = torus_ && !graph.link(link).failed;
        }
    }
    first_neighbour_.push_back(neighbours_.size());
}

bool FabricRoutes::is_regular(std::int64_t from, std::int64_t to) const {
    if (leaves_.empty()) return torus_;
    const Leaf &source = leaves_[at(from)], &target = leaves_[at(to)];
    if (source.touched || target.touched) return false;
    if (source.group == target.group || spine_up_ == 0) return true;
    return !touched_pods_[at(source.group)] && !touched_pods_[at(target.group)];
}

std::int64_t FabricRoutes::distance(std::int64_t from, std::int64_t to) const {
    if (from == to) return 0;
    if (!is_regular(from, to)) return searched_.distance(vertex(from), vertex(to));
    if (torus_) return torus_distance(from, to);
    if (up_ == 0) return -1;
    if (leaves_[at(from)].group == leaves_[at(to)].group) return 2;
    return spine_up_ > 0 ? 4 : -1;
}

std::int64_t FabricRoutes::torus_distance(std::int64_t from, std::int64_t to) const {
    std::int64_t sum = 0;
    for (const std::int64_t length : dimensions_) {
        const std::int64_t apart = std::abs(from % length - to % length);
        sum += std::min(apart, length - apart);
        from /= length;
        to /= length;
    }
    return sum;
}

FabricRoutes::TorusStep FabricRoutes::torus_step(std::int64_t from, std::int64_t to, std::uint64_t& choice) const {
    const std::int64_t here = torus_distance(from, to);
    const std::size_t first = first_neighbour_[at(from)], end = first_neighbour_[at(from) + 1];
    std::array<std::size_t, 6> nearer{};  // 2 neighbours in each of up to 3 dimensions
    std::size_t count = 0;
    for (std::size_t i = first; i < end; ++i) {
        if (torus_distance(neighbours_[i], to) < here) nearer.at(count++) = i;
    }
    ORRERY_CHECK(count > 0, "a torus without a route from router " + std::to_string(from));
    const std::size_t taken = nearer.at(choice % count);
    choice /= count;
    return {neighbours_[taken], router_link_[at(from)] + static_cast<LinkId>(taken - first)};
}

}  // namespace orrery::topologies
