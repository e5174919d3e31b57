// Private to the planner: how long a plan's step takes.
#pragma once

#include <cstdint>

#include "sim/cost/roofline_cost.h"
#include "sim/planner/planner.h"
#include "sim/program/plan_result.h"
#include "topologies/cluster.h"

namespace orrery::sim {

/// Step time and the figures that follow from it. A plan that is not simulated whole is extrapolated from two runs with
/// fewer micro-batches: in steady state the step time is affine in their number. Even stages reach steady state at
/// once. Uneven stages may run ahead on the slack of the boundary buffers for a while before the slowest sets the pace;
/// the difference is small, so that the step is right to 2e-3 (to 1e-4 for most plans).
[[nodiscard]] program::PlanResult timed(const program::Plan& plan, const topologies::Cluster& cluster,
                                        const RooflineCost& cost);
/// By how much the extension of a few micro-batches may at most exceed the step of all (tested for several models,
/// schedules and implementations).
inline constexpr double kBriefError = 5e-3;
/// Whether brief_step_s holds for the plan (all but those with vocabulary parallelism), and simulates at most half as
/// many micro-batches as timed().
[[nodiscard]] bool has_brief(const program::Plan& plan);
/// Lower bound on timed(plan).step_time_s: a straight line through the step with twice as many micro-batches as
/// pipeline ranks, with the slope from there to four times as many. The step is the longest of several paths, each of
/// which is affine in the number of micro-batches. So it is convex, and the line through two numbers is below it at any
/// larger one. The slope is that of steps that find all ranks idle, which takes one simulated step less: another
/// micro-batch lengthens these as much as steps that follow another. Contention and periods of several micro-batches
/// may raise the line by kBriefError, which is taken off.
[[nodiscard]] double brief_step_s(const program::Plan& plan, const topologies::Cluster& cluster,
                                  const RooflineCost& cost);
/// Sets what follows from one simulation with derivatives: the 90% interval of the result's step time, its slopes, its
/// shares and its limit. A long step's derivatives are those of a shorter one, relative to its time.
void add_derivatives(const topologies::Cluster& cluster, const RooflineCost& cost, program::PlanResult& result);
/// Plans with few micro-batches for their depth are, because pipelines with uneven stages take long to reach steady
/// state. Without interleave_group the two numbers alone decide.
[[nodiscard]] bool is_simulated_whole(const program::Plan& plan);
[[nodiscard]] bool is_simulated_whole(std::int64_t micro_batches, std::int64_t pp);
/// The steps from which timed() extrapolates a plan that is not, and what is linear in the number of micro-batches.
[[nodiscard]] ShorterSteps extrapolated_from(const program::Plan& plan);
[[nodiscard]] double at_whole(const ShorterSteps& steps, std::int64_t micro_batches, double few, double more);
/// The simulated step that is measured; the first finds all ranks idle, and a third would repeat the second.
inline constexpr int kMeasuredStep = 2;

/// Fills in the peak memory, whether the plan fits, and the reason if it does not.
void check_fit(std::int64_t peak_bytes, std::int64_t allowed_bytes, program::PlanResult& result);

}  // namespace orrery::sim
