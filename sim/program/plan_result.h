// The planner's results for one plan: its row in a ranked table, whether it fits, and the changes that would make it
// fit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/program/step_limits.h"
#include "sim/program/utilization.h"

namespace orrery::program {

/// The step time of a plan over that of the plan with rank 1.
struct RatioToFirst {
    double ratio = 1;               // predicted
    double low = 1, high = 1;       // 90% interval of the measured ratio
    double faster_probability = 0;  // probability that the plan is the faster one when both are measured
    /// The model's known error cannot tell which of the two plans is faster.
    [[nodiscard]] bool is_tie() const { return low <= 1 && high >= 1; }
};

/// The smallest change known that would help a plan.
struct PlanFix {
    std::string change;      // such as "micro-batch 2 instead of 4"
    double gib = 0;          // by which the peak memory of the fullest rank changes
    double step_time_s = 0;  // with the change
};

/// Limits on the memory of a rank.
struct LimitRange {
    double low_gib = 0, high_gib = 0;
};

struct PlanResult {
    Plan plan;
    std::int64_t spare_devices = 0;                    // available or, with costs, paid for, but not used by the plan
    double step_time_s = 0;                            // steady period
    double step_time_low_s = 0, step_time_high_s = 0;  // as in RunRecord
    double tokens_per_s_per_device = 0;
    Utilization utilization;
    double peak_memory_gib = 0;          // of the fullest rank, device context included
    double exposed_communication_s = 0;  // communication without concurrent compute, mean over ranks
    double idle_fraction = 0;            // as RunRecord::idle_fraction
    double bubble_fraction = 0;          // the part of idle_fraction spent waiting for other pipeline stages
    bool feasible = false;  // false: `reason` says why, and at most peak_memory_gib of the figures above is set
    std::string reason;
    /// d log(step time) / d log(rate), by the rates' full names (rate_slopes). Empty: not known.
    std::map<std::string, double> slopes;
    /// Where the time of a feasible plan's step goes, the largest share first (step_shares). Empty: not known.
    std::vector<LimitShare> shares;
    /// What limits the plan: of a feasible one the kind of work with the largest share; otherwise the memory it lacks.
    std::optional<Limit> limit;
    std::optional<RatioToFirst> to_first;  // ratio_to_first; not set: not known, or not feasible
    /// Set on a Pareto front: no plan is faster whose peak memory is at most a limit within this range.
    std::optional<LimitRange> fastest_within;
    std::optional<PlanFix> fix;
    /// Set if the objective is one of them and the figure is known; spare devices included.
    std::optional<double> usd_per_billion_tokens, kwh_per_billion_tokens;
};

/// The memory that the fullest rank needs on its device, and the memory that it may use.
struct MemoryFit {
    std::int64_t needed_bytes = 0, allowed_bytes = 0;
    std::string where;  // the rank class of the fullest ranks
    [[nodiscard]] bool fits() const { return needed_bytes <= allowed_bytes; }
};

/// Changes that make a plan fit into memory.
struct Remedy {
    std::vector<std::string> changes;  // such as "micro-batch 2 instead of 4"
    Plan plan;                         // the plan with these changes
    double peak_memory_gib = 0, step_time_s = 0;
};

}  // namespace orrery::program
