// A published run as a plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/published/published_run.h"

namespace orrery::published {

struct PlanOfRun {
    std::optional<program::Plan> plan;  // passes check_plan; its name is the run's id
    /// What the source leaves open and who fills it in: "vocab: 50257 (GPT-2's; not stated)". The plan's origins say
    /// the same by JSON pointer.
    std::vector<std::string> assumptions;
    std::string reason;  // why there is no plan
};

/// By the rules of docs/validation.md. They look at what is published of a run, never at what was measured, and none
/// names a single row.
[[nodiscard]] PlanOfRun plan_of(const PublishedRun& run);

}  // namespace orrery::published
