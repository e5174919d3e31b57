#include "sim/planner/obstacles.h"

#include <algorithm>

#include "sim/planner/tried_degrees.h"

namespace orrery::sim {
namespace {

using models::Support;
using program::Obstacle;

bool has_techniques(const PlanRequest& request) {
    const Support& supports = request.implementation.supports;
    if (supports.source.empty()) return true;
    const auto has_axis = [&](const char* axis, std::int64_t degree) {
        return degree == 1 || Support::lists(supports.axes, axis);
    };
    const auto has_kind = [&](program::DataParallel kind) {
        return Support::lists(supports.data_parallel, name_of(kind));
    };
    return has_axis("tp", request.tp) && has_axis("pp", request.pp) &&
           (request.dp == 1 || std::ranges::any_of(request.data_parallel, has_kind));
}

bool has_nodes(const PlanRequest& request) {
    const std::int64_t nodes = request.cluster.nodes, most = request.implementation.supports.most_nodes;
    const auto is_one_process = [](program::DataParallel kind) { return kind == program::DataParallel::dp; };
    return (most == 0 || nodes <= most) && (nodes == 1 || !std::ranges::all_of(request.data_parallel, is_one_process));
}

}  // namespace

Obstacle obstacle_to(const PlanRequest& request) {
    if (!has_techniques(request)) return Obstacle::implementation;
    if (!has_nodes(request)) return Obstacle::nodes;
    const TriedDegrees tried(request);
    if (const auto obstacle = tried.obstacle_to_tensor(request.tp)) return *obstacle;
    if (const auto obstacle = tried.obstacle_to_pipeline(request.pp)) return *obstacle;
    return request.training.global_batch_size % request.dp != 0 ? Obstacle::batch : Obstacle::rule;
}

}  // namespace orrery::sim
