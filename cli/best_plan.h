// The best plan for a number of devices, as commands that compare many numbers or many inputs need it.
#pragma once

#include <optional>

#include "cli/plan_job.h"
#include "sim/program/plan_result.h"
#include "sim/program/search_summary.h"

namespace orrery::cli {

struct BestPlan {
    program::PlanResult result;
    program::SearchCounts counts;
};

/// The fastest plan of all implementations on job.devices devices or, if no plan has as many, on the number at most as
/// large on which the fastest plan is (PlanResult::spare_devices). Throws InfeasibleError or InputError if there is
/// none. `only`: requests are restricted to the choices of this plan except for its number of replicas.
[[nodiscard]] BestPlan best_plan(const PlanJob& job, const models::ModelSpec& model,
                                 const std::optional<program::Plan>& only = {});

}  // namespace orrery::cli
