// What the planner says about one plan: the row of a ranked table.
#pragma once

#include <string>

#include "sim/program/plan.h"

namespace orrery::program {

struct PlanResult {
    Plan plan;
    double step_time_s = 0;                            // steady period
    double step_time_low_s = 0, step_time_high_s = 0;  // as RunRecord has them
    double tokens_per_s_per_device = 0;
    double mfu = 0;                      // model FLOPs / (step time * devices * dense peak), 0 to 1
    std::string mfu_convention;          // name of the FlopsConvention, and the peak it is held against
    double peak_memory_gib = 0;          // worst rank, context included
    double exposed_communication_s = 0;  // communication that hides under no compute, mean over ranks
    double bubble_fraction = 0;          // as RunRecord::bubble_fraction
    bool feasible = false;  // false: of the figures above only peak_memory_gib may be set, and `reason` says why
    std::string reason;
};

}  // namespace orrery::program
