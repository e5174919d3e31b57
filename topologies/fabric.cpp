#include "topologies/fabric.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"

namespace orrery::topologies {
namespace {

[[noreturn]] void refuse(const ClusterSpec& spec, const std::string& key, std::int64_t value,
                         const std::string& allowed) {
    throw InputError("cluster " + spec.name, key, std::to_string(value), allowed);
}

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
    return (a + b - 1) / b;
}

double oversubscription(const FabricShape& shape, std::size_t level) {
    return level < shape.oversubscription.size() ? shape.oversubscription[level] : 1.0;
}

/// The number of uplinks above `below` equal links at this oversubscription; at least one.
std::int64_t uplinks(std::int64_t below, double oversubscription) {
    return std::max<std::int64_t>(1, std::llround(std::floor(static_cast<double>(below) / oversubscription + 1e-9)));
}

/// The ports that a switch of `radix` uses as uplinks.
std::int64_t ports_up(std::int64_t radix, double oversubscription) {
    return uplinks(radix, 1 + oversubscription);
}

std::string at_most(std::int64_t value, const std::string& why) {
    return "at most " + std::to_string(value) + ", " + why;
}

}  // namespace

Fabric::Fabric(const ClusterSpec& spec) : rails_(spec.nics_per_node), shape_(spec.fabric_shape) {
    if (spec.nodes == 1) return;
    kind_ = spec.fabric;
    const bool rails = kind_ == FabricKind::rail_optimised || kind_ == FabricKind::rail_only;
    if (kind_ == FabricKind::none || rails_ < 1 || (rails && spec.nodes_per_scalable_unit < 1)) {
        refuse(spec, "nodes", spec.nodes,
               "1, or a fabric with nics_per_node and (on rails) nodes_per_scalable_unit of at least 1");
    }
    if (kind_ == FabricKind::single_switch) {
        clos_.units = 1;
        clos_.nodes_per_unit = spec.nodes;
        leaves_ = 1;
        if (shape_.radix > 0 && spec.nodes > shape_.radix / rails_) {
            refuse(spec, "nodes", spec.nodes,
                   at_most(shape_.radix / rails_, "whose NICs fill the fabric_shape.radix of the one switch"));
        }
    } else if (rails) {
        set_rails(spec);
    } else if (kind_ == FabricKind::fat_tree) {
        set_fat_tree(spec);
    } else if (kind_ == FabricKind::dragonfly) {
        set_dragonfly(spec);
    } else {
        set_torus(spec);
    }
}

bool Fabric::is_clos() const {
    return leaves_ > 0;
}

void Fabric::count_clos() {
    leaves_ = clos_.units * clos_.leaves_per_unit;
    const std::int64_t spine_groups = clos_.spines_of_one_rail ? rails_ : clos_.pods;
    spines_ = spine_groups * clos_.uplinks_per_leaf;
    cores_ = clos_.uplinks_per_leaf * clos_.uplinks_per_spine;
}

void Fabric::set_rails(const ClusterSpec& spec) {
    clos_.nodes_per_unit = spec.nodes_per_scalable_unit;
    clos_.units = ceil_div(spec.nodes, clos_.nodes_per_unit);
    clos_.leaves_per_unit = rails_;
    const std::int64_t nodes_below = std::min(spec.nodes, clos_.nodes_per_unit);
    clos_.spines_of_one_rail = kind_ == FabricKind::rail_only;
    if (!clos_.spines_of_one_rail || clos_.units > 1) {
        clos_.uplinks_per_leaf = uplinks(nodes_below, oversubscription(shape_, 0));
    }
    const std::int64_t radix = shape_.radix;
    if (radix > 0 && nodes_below + clos_.uplinks_per_leaf > radix) {
        refuse(spec, "nodes_per_scalable_unit", spec.nodes_per_scalable_unit,
               "fewer, so that nodes and uplinks of a leaf (" + std::to_string(nodes_below) + " + " +
                   std::to_string(clos_.uplinks_per_leaf) + ") fit fabric_shape.radix, " + std::to_string(radix));
    }
    const std::int64_t below_a_spine = clos_.units * (clos_.spines_of_one_rail ? 1 : rails_);
    if (radix > 0 && below_a_spine > radix) set_rail_pods(spec);
    count_clos();
}

/// Adds a third tier, when a spine has fewer ports than there are leaves to join.
void Fabric::set_rail_pods(const ClusterSpec& spec) {
    const std::int64_t radix = shape_.radix;
    if (clos_.spines_of_one_rail) {
        refuse(spec, "nodes", spec.nodes,
               at_most(radix * clos_.nodes_per_unit, "so that the leaves of one rail fit the ports of a spine"));
    }
    clos_.uplinks_per_spine = ports_up(radix, oversubscription(shape_, 1));
    clos_.units_per_pod = (radix - clos_.uplinks_per_spine) / rails_;
    if (clos_.units_per_pod < 1) {
        refuse(spec, "fabric_shape.radix", radix,
               "enough ports for the " + std::to_string(rails_) + " leaves of a scalable unit below a spine");
    }
    clos_.uplinks_per_spine =
        std::min(clos_.uplinks_per_spine, uplinks(clos_.units_per_pod * rails_, oversubscription(shape_, 1)));
    clos_.pods = ceil_div(clos_.units, clos_.units_per_pod);
    const std::int64_t most_pods = shape_.core_radix > 0 ? shape_.core_radix : radix;
    if (clos_.pods > most_pods) {
        refuse(spec, "nodes", spec.nodes,
               at_most(most_pods * clos_.units_per_pod * clos_.nodes_per_unit,
                       "the capacity of three tiers of this radix, whose cores join " + std::to_string(most_pods) +
                           " pods"));
    }
}

void Fabric::set_fat_tree(const ClusterSpec& spec) {
    const FabricShape& shape = shape_;
    const bool three = shape.levels == 3;
    clos_.nodes_per_unit = shape.nodes_per_leaf;
    clos_.uplinks_per_leaf = shape.uplinks_per_leaf;
    clos_.units_per_pod = three ? shape.leaves_per_pod : 0;
    clos_.uplinks_per_spine = three ? shape.uplinks_per_spine : 0;
    std::int64_t most_joined = 0;  // leaves (2 levels) or pods (3) that the top switches have ports for; 0: unlimited
    if (shape.radix > 0) {
        most_joined = shape.radix;
        clos_.uplinks_per_leaf = ports_up(shape.radix, oversubscription(shape, 0));
        clos_.nodes_per_unit = (shape.radix - clos_.uplinks_per_leaf) / rails_;
        if (clos_.nodes_per_unit < 1) {
            refuse(spec, "fabric_shape.radix", shape.radix,
                   "enough ports for the " + std::to_string(rails_) + " NICs of a node below a leaf");
        }
        if (three) {
            clos_.uplinks_per_spine = ports_up(shape.radix, oversubscription(shape, 1));
            clos_.units_per_pod = shape.radix - clos_.uplinks_per_spine;
        }
    }
    if (clos_.nodes_per_unit < 1 || clos_.uplinks_per_leaf < 1 ||
        (three && (clos_.units_per_pod < 1 || clos_.uplinks_per_spine < 1))) {
        throw InputError("cluster " + spec.name, "fabric_shape", "neither a radix nor an arity",
                         std::string("radix of at least 2, or nodes_per_leaf and uplinks_per_leaf") +
                             (three ? ", leaves_per_pod and uplinks_per_spine" : "") + " of at least 1");
    }
    clos_.units = ceil_div(spec.nodes, clos_.nodes_per_unit);
    clos_.pods = three ? ceil_div(clos_.units, clos_.units_per_pod) : 1;
    if (most_joined > 0 && (three ? clos_.pods : clos_.units) > most_joined) {
        refuse(spec, "nodes", spec.nodes,
               at_most(most_joined * clos_.nodes_per_unit * (three ? clos_.units_per_pod : 1),
                       "the capacity of " + std::to_string(shape.levels) + " levels of this radix"));
    }
    count_clos();
}

void Fabric::set_dragonfly(const ClusterSpec& spec) {
    const std::int64_t ports = shape_.routers_per_group * shape_.global_links_per_router;
    for (const auto& [key, value] : {std::pair{"groups", shape_.groups},
                                     {"routers_per_group", shape_.routers_per_group},
                                     {"nodes_per_router", shape_.nodes_per_router}}) {
        if (value < 1) refuse(spec, std::string("fabric_shape.") + key, value, "at least 1");
    }
    if (ports < shape_.groups - 1) {
        refuse(spec, "fabric_shape.global_links_per_router", shape_.global_links_per_router,
               "at least " + std::to_string(ceil_div(shape_.groups - 1, shape_.routers_per_group)) +
                   ", so that each group has a link to every other group");
    }
    const std::int64_t room = shape_.groups * shape_.routers_per_group * shape_.nodes_per_router;
    if (spec.nodes > room) {
        refuse(spec, "nodes", spec.nodes, at_most(room, "groups * routers_per_group * nodes_per_router"));
    }
    routers_ = shape_.groups * shape_.routers_per_group;
    nodes_per_router_ = shape_.nodes_per_router;
}

void Fabric::set_torus(const ClusterSpec& spec) {
    routers_ = 1;
    for (const std::int64_t dimension : shape_.dimensions) {
        if (dimension < 1) refuse(spec, "fabric_shape.dimensions", dimension, "lengths of at least 1");
        routers_ *= dimension;
    }
    if (shape_.dimensions.size() < 2 || shape_.dimensions.size() > 3) {
        refuse(spec, "fabric_shape.dimensions", static_cast<std::int64_t>(shape_.dimensions.size()), "2 or 3 lengths");
    }
    if (spec.nodes > routers_) refuse(spec, "nodes", spec.nodes, at_most(routers_, "the product of the dimensions"));
}

std::int64_t Fabric::edge_switch(std::int64_t node, std::int64_t rail) const {
    return is_clos() && clos_.leaves_per_unit > 1 ? unit_of(node) * clos_.leaves_per_unit + rail : unit_of(node);
}

std::int64_t Fabric::unit_of(std::int64_t node) const {
    return is_clos() ? node / clos_.nodes_per_unit : node / nodes_per_router_;
}

std::int64_t Fabric::pod_of(std::int64_t node) const {
    if (kind_ == FabricKind::dragonfly) return unit_of(node) / shape_.routers_per_group;
    return clos_.units_per_pod > 0 ? unit_of(node) / clos_.units_per_pod : 0;
}

bool Fabric::coordinates_tell_distance() const {
    return routers_ == 0;
}

Vertex Fabric::vertex(std::int64_t number) const {
    const auto narrow = [](std::int64_t value) { return static_cast<std::int32_t>(value); };
    if (number < leaves_) {
        const std::int64_t unit = number / clos_.leaves_per_unit;
        const bool rails =
            clos_.leaves_per_unit > 1 || kind_ == FabricKind::rail_optimised || kind_ == FabricKind::rail_only;
        const std::int64_t group = !rails && clos_.units_per_pod > 0 ? unit / clos_.units_per_pod : rails ? unit : 0;
        return {VertexKind::leaf, rails ? narrow(number % clos_.leaves_per_unit) : -1, narrow(group), narrow(number)};
    }
    if (number < leaves_ + spines_) {
        const std::int64_t spine = number - leaves_, group = spine / clos_.uplinks_per_leaf;
        if (clos_.spines_of_one_rail) return {VertexKind::spine, narrow(group), 0, narrow(spine)};
        const std::int64_t plane = cores_ > 0 ? spine % clos_.uplinks_per_leaf : -1;
        return {VertexKind::spine, narrow(plane), narrow(group), narrow(spine)};
    }
    if (number < leaves_ + spines_ + cores_) {
        const std::int64_t core = number - leaves_ - spines_;
        return {VertexKind::core, narrow(core / clos_.uplinks_per_spine), 0, narrow(core)};
    }
    const std::int64_t group = kind_ == FabricKind::dragonfly ? number / shape_.routers_per_group : 0;
    return {VertexKind::router, -1, narrow(group), narrow(number)};
}

std::int64_t Fabric::trunk_count() const {
    std::int64_t count = 0;
    for_each_trunk([&count](std::int64_t, std::int64_t, LinkKind, std::int64_t) { ++count; });
    return count;
}

void Fabric::for_each_trunk(const Connect& connect) const {
    if (is_clos()) {
        connect_clos(connect);
    } else if (kind_ == FabricKind::dragonfly) {
        connect_dragonfly(connect);
    } else if (kind_ == FabricKind::torus) {
        connect_torus(connect);
    }
}

void Fabric::connect_clos(const Connect& connect) const {
    for (std::int64_t leaf = 0; leaf < leaves_; ++leaf) {
        const std::int64_t unit = leaf / clos_.leaves_per_unit;
        const std::int64_t group = clos_.spines_of_one_rail  ? leaf % clos_.leaves_per_unit
                                   : clos_.units_per_pod > 0 ? unit / clos_.units_per_pod
                                                             : 0;
        for (std::int64_t i = 0; i < clos_.uplinks_per_leaf; ++i) {
            connect(leaf, leaves_ + group * clos_.uplinks_per_leaf + i, LinkKind::trunk, 1);
        }
    }
    for (std::int64_t spine = 0; cores_ > 0 && spine < spines_; ++spine) {
        const std::int64_t plane = spine % clos_.uplinks_per_leaf;
        for (std::int64_t i = 0; i < clos_.uplinks_per_spine; ++i) {
            connect(leaves_ + spine, leaves_ + spines_ + plane * clos_.uplinks_per_spine + i, LinkKind::core_trunk, 1);
        }
    }
}

/// A group's global ports are numbered router by router: port q belongs to router q / h, with h global links per
/// router. Port q of group g leads to group (g + 1 + q) mod groups, whose port groups - 2 - q leads back. Each further
/// round of groups - 1 ports repeats this; ports that do not fill a round stay free.
void Fabric::connect_dragonfly(const Connect& connect) const {
    const std::int64_t groups = shape_.groups, routers = shape_.routers_per_group;
    for (std::int64_t group = 0; group < groups; ++group) {
        for (std::int64_t a = 0; a < routers; ++a) {
            for (std::int64_t b = a + 1; b < routers; ++b) {
                connect(group * routers + a, group * routers + b, LinkKind::trunk, 1);
            }
        }
    }
    if (groups == 1) return;
    const std::int64_t per_router = shape_.global_links_per_router, round = groups - 1;
    std::map<std::pair<std::int64_t, std::int64_t>, std::int64_t> cables;
    for (std::int64_t first = 0; first + round <= routers * per_router; first += round) {
        for (std::int64_t group = 0; group < groups; ++group) {
            for (std::int64_t q = 0; q < round; ++q) {
                const std::int64_t other = (group + 1 + q) % groups, back = round - 1 - q;
                if (other < group) continue;
                ++cables[{group * routers + (first + q) / per_router, other * routers + (first + back) / per_router}];
            }
        }
    }
    for (const auto& [ends, count] : cables) connect(ends.first, ends.second, LinkKind::core_trunk, count);
}

void Fabric::connect_torus(const Connect& connect) const {
    for (std::int64_t router = 0; router < routers_; ++router) {
        std::int64_t stride = 1;
        for (const std::int64_t length : shape_.dimensions) {
            const std::int64_t place = router / stride % length;
            const std::int64_t next = router + ((place + 1) % length - place) * stride;
            // With length 2 the neighbours on both sides are the same router, joined once.
            if (length > 2 || (length == 2 && place == 0)) connect(router, next, LinkKind::trunk, 1);
            stride *= length;
        }
    }
}

}  // namespace orrery::topologies
