// What the planner says about one plan: the row of a ranked table, whether it fits, and what would.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/program/utilization.h"

namespace orrery::program {

struct PlanResult {
    Plan plan;
    double step_time_s = 0;                            // steady period
    double step_time_low_s = 0, step_time_high_s = 0;  // as RunRecord has them
    double tokens_per_s_per_device = 0;
    Utilization utilization;
    double peak_memory_gib = 0;          // worst rank, context included
    double exposed_communication_s = 0;  // communication that hides under no compute, mean over ranks
    double idle_fraction = 0;            // as RunRecord::idle_fraction
    double bubble_fraction = 0;          // of it, what ranks wait for other stages of the pipeline; 0 without one
    bool feasible = false;  // false: of the figures above only peak_memory_gib may be set, and `reason` says why
    std::string reason;
};

/// What the fullest rank has in use of its device, beside what it may take.
struct MemoryFit {
    std::int64_t needed_bytes = 0, allowed_bytes = 0;
    std::string where;  // the fullest ranks' class
    [[nodiscard]] bool fits() const { return needed_bytes <= allowed_bytes; }
};

/// Changes with which a plan would fit that does not.
struct Remedy {
    std::vector<std::string> changes;  // "micro-batch 2 instead of 4"
    Plan plan;                         // with them
    double peak_memory_gib = 0, step_time_s = 0;
};

}  // namespace orrery::program
