// What `orrery plan` is to find: the objective, its limits, and what it must not consider.
#pragma once

#include <CLI/CLI.hpp>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "cli/cost_options.h"
#include "sim/planner/least_cost.h"
#include "sim/planner/objectives.h"
#include "sim/planner/planner.h"

namespace orrery::cli {

/// As given on the command line.
struct PlanGoal {
    std::string objective = "time";
    bool pareto = false;
    std::string max_step_time;  // seconds, or a percentage
    std::optional<double> max_memory_gib;
    std::vector<std::string> exclude;
    CostOptions costs;
    [[nodiscard]] bool is_by_cost() const { return objective == "cost" || objective == "energy"; }
};

void add_goal_options(CLI::App& command, PlanGoal& goal);
/// --max-memory and --exclude alone.
void add_limit_options(CLI::App& command, PlanGoal& goal);

/// Throws InputError if the options exclude each other or a value is wrong.
void check_goal(const PlanGoal& goal, std::size_t top, std::size_t prove);

/// --exclude, parsed.
[[nodiscard]] std::vector<sim::Exclusion> exclusions_of(const PlanGoal& goal);
/// Drops the implementations that --exclude names; throws InputError if none is left.
void drop_excluded(const PlanGoal& goal, std::vector<std::string>& implementations);
/// --max-memory in bytes; 0: not given. Throws InputError if a rank of the plan may not use as much anyway.
[[nodiscard]] std::int64_t max_memory_bytes(const PlanGoal& goal, const program::Plan& of_cluster,
                                            std::optional<double> margin_gib);

/// --objective cost or energy with the figures of the cluster's device. Throws InputError if the one that it needs is
/// not known.
[[nodiscard]] sim::CostGoal cost_goal_of(const PlanGoal& goal, const topologies::ClusterSpec& cluster);

/// The plans for the objective, each with its standing beside the first one (sim::compare_with_first). `search` takes a
/// further limit on the memory (0: none); `least` gives the least memory of any plan, and is asked at most once.
[[nodiscard]] sim::ObjectiveSearch search_for(const PlanGoal& goal, const topologies::ClusterSpec& cluster,
                                              std::size_t top, const sim::LimitedSearch& search,
                                              const std::function<sim::LeastMemory()>& least);

}  // namespace orrery::cli
