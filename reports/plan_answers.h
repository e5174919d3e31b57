// What the planner answers beside its ranking: what limits the best plan and what would help, the nearest plan if none
// fits, and the decision guide.
#pragma once

#include <optional>
#include <string>

#include "reports/breakdown.h"
#include "sim/program/plan_answers.h"

namespace orrery::reports {

/// `time`: where the best plan's step goes, from a simulation of `simulated_micro_batches` micro-batches. Three changes
/// of each kind are shown, and all meshes. Ends in a newline.
[[nodiscard]] std::string plan_advice_text(const program::PlanAdvice& advice, const StepBreakdown& time,
                                           std::int64_t simulated_micro_batches);

/// Ends in a newline.
[[nodiscard]] std::string plan_guide_text(const program::PlanGuide& guide);

/// One line, to follow the message that nothing fits: "the nearest, NAME, needs … on stage 0, … too much (…); it fits
/// with …; the smallest cluster found …".
[[nodiscard]] std::string nearest_plan_text(const program::NearestPlan& nearest);

/// What was asked for.
struct PlanAnswers {
    std::optional<program::PlanAdvice> advice;
    StepBreakdown time;  // of the advice
    std::int64_t simulated_micro_batches = 0;
    std::optional<program::PlanGuide> guide;
    std::optional<program::NearestPlan> nearest;
};
/// `orrery.plan_answers/1`. Ends in a newline.
[[nodiscard]] std::string plan_answers_json(const PlanAnswers& answers);

}  // namespace orrery::reports
