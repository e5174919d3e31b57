// If no plan fits: the plan that lacks the least memory, what it lacks, and the smallest cluster on which a plan fits.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "sim/planner/planner.h"
#include "sim/program/plan_answers.h"

namespace orrery::sim {

/// The same request, one for each implementation, on as many devices of the same kind. Throws InputError if the cluster
/// cannot have that size.
using RequestsFor = std::function<std::vector<PlanRequest>(std::int64_t devices)>;

/// What a rank of the request's plans may use: memory_per_rank_bytes, or less if the request limits it further.
[[nodiscard]] std::int64_t allowed_bytes(const PlanRequest& request, const program::Plan& plan);

/// The memory of the plan's fullest rank, exactly, and what it may use.
[[nodiscard]] program::MemoryNeed memory_need(const program::Plan& plan, std::int64_t allowed_bytes);

/// The plan of all requests that needs the least memory: of each request the candidates with the least analytic bounds
/// are lowered, with the smallest micro-batch and the strongest recomputation. Throws the first InputError if no
/// request has a candidate.
struct LeanPlan {
    program::Plan plan;
    program::MemoryNeed memory;
};
[[nodiscard]] LeanPlan leanest_plan(const std::vector<PlanRequest>& requests);

/// The fewest changes that make the plan fit; those that keep the mesh come before those that do not, faster ones
/// before slower ones. Nothing if none of remedies() does. The result is lowered and simulated.
[[nodiscard]] std::optional<program::Remedy> smallest_fix(const program::Plan& plan, const topologies::Cluster& cluster,
                                                          std::optional<double> margin_gib = {});

/// The best plans of all requests, of which `prove` are proven. Throws the first InfeasibleError if none
/// fits, and the first InputError if no request has a candidate.
[[nodiscard]] PlanSearch search_each(const std::vector<PlanRequest>& requests, std::size_t keep, std::size_t prove);

/// The largest cluster that smallest_cluster tries, in devices.
inline constexpr std::int64_t kMostDevicesTried = std::int64_t{1} << 17;

/// The smallest cluster found on which a plan fits: sizes double from `devices` until one fits, then the interval
/// between the last size without and the first with a plan is bisected over the sizes (devices up to a node, then whole
/// nodes) on which some plan divides. A size fits if the search finds a plan for it; so the next smaller size that was
/// tried has none. Nothing if no size up to kMostDevicesTried does, or if ranks share the memory of one machine.
[[nodiscard]] std::optional<program::SmallestCluster> smallest_cluster(const RequestsFor& requests,
                                                                       std::int64_t devices, std::int64_t& most_tried);

/// Of a request on `devices` devices for which no plan fits.
[[nodiscard]] program::NearestPlan nearest_plan(const RequestsFor& requests, std::int64_t devices);

}  // namespace orrery::sim
