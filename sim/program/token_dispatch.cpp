#include "sim/program/token_dispatch.h"

#include <algorithm>
#include <cmath>
#include <map>

namespace orrery::program {
namespace {

std::int64_t share_of(double bytes, std::int64_t others, std::int64_t all) {
    return std::llround(bytes * static_cast<double>(others) / static_cast<double>(all));
}

}  // namespace

GroupSpread spread_of(const Program& program, GroupAxis axis, ClassIndex rank_class) {
    const topologies::ClusterSpec& cluster = program.plan->cluster;
    const std::vector<std::int64_t>& placed = program.plan->parallelism.placement;
    const std::int64_t member = program.mesh->rank_at({.pp = program.classes.at(rank_class).pp_index});
    GroupSpread spread{.ranks = program.mesh->group_size(axis), .nodes = 0};
    std::map<std::int64_t, std::int64_t> members;  // by node
    for (const std::int64_t rank : program.group_of(axis, member)) {
        const std::int64_t device =
            placed.empty() ? rank % cluster.device_count() : placed[static_cast<std::size_t>(rank)];
        spread.members = std::max(spread.members, ++members[device / cluster.devices_per_node]);
    }
    spread.nodes = std::ssize(members);
    return spread;
}

DispatchBytes dispatch_bytes(const models::TokenRouting& routing, std::int64_t bytes, const GroupSpread& spread) {
    const double tokens = static_cast<double>(bytes) / static_cast<double>(routing.top_k);
    const double to_nodes = tokens * models::expected_places(routing, spread.nodes);
    const double to_ranks = tokens * models::expected_places(routing, spread.ranks);
    return {.nic = share_of(to_nodes, spread.nodes - 1, spread.nodes),
            .port = share_of(to_ranks, spread.members - 1, spread.members),
            .own = share_of(to_ranks, 1, spread.ranks)};
}

}  // namespace orrery::program
