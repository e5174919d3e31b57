// Translates a published run to a plan.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/published/published_run.h"

namespace orrery::published {

struct PlanOfRun {
    std::optional<program::Plan> plan;  // passes check_plan; its name is the run's id
    /// Facts that the source leaves open, with their assumed values and reasons: "vocab: 50257 (GPT-2's; not stated)".
    /// The plan's origins hold the same by JSON pointer.
    std::vector<std::string> assumptions;
    std::string reason;  // why there is no plan
};

/// Follows the rules of docs/validation.md. They use only what is published about a run, never its measurements, and no
/// rule names a single row.
[[nodiscard]] PlanOfRun plan_of(const PublishedRun& run);

}  // namespace orrery::published
