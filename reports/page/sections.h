// Sections of a report, one function for each kind of result.
#pragma once

#include <string>
#include <vector>

#include "reports/page/page.h"
#include "reports/page/run_facts.h"
#include "sim/program/capacity_answer.h"
#include "sim/program/crossover.h"
#include "sim/program/input_sweep.h"
#include "sim/program/plan_diff.h"
#include "sim/program/scaling_curve.h"
#include "sim/program/technique_curves.h"
#include "sim/program/tornado.h"

namespace orrery::reports {

[[nodiscard]] PageSection scaling_section(const program::ScalingCurve& curve);

/// Curves of one job, one series each. `names`: of the series, where clusters alone do not tell them apart.
[[nodiscard]] PageSection scaling_comparison(const std::vector<program::ScalingCurve>& curves);
/// Whether the curves are of one model, mode, batch and sequence, so that they can be compared.
[[nodiscard]] bool are_of_one_job(const program::ScalingCurve& a, const program::ScalingCurve& b);

[[nodiscard]] PageSection sweep_section(const program::InputSweep& sweep);

[[nodiscard]] PageSection tornado_section(const program::Tornado& tornado);
[[nodiscard]] PageSection crossover_section(const program::Crossover& crossover);
[[nodiscard]] PageSection technique_section(const program::TechniqueCurves& curves);

/// `date_after`: as for capacity_text.
[[nodiscard]] PageSection capacity_section(const program::Capacity& capacity,
                                           std::string (*date_after)(const std::string& start, double days));

[[nodiscard]] PageSection diff_section(const program::PlanDiff& diff);

[[nodiscard]] PageSection run_section(const RunFacts& run);
[[nodiscard]] PageSection step_section(const StepFacts& step);
[[nodiscard]] PageSection validation_section(const ValidationFacts& validation);
[[nodiscard]] PageSection published_section(const PublishedFacts& published);

/// A figure that a result depends on.
struct FigureUsed {
    std::string what, unit;
    program::DatedFigure figure;
    bool operator==(const FigureUsed&) const = default;
};
[[nodiscard]] std::vector<FigureUsed> figures_used(const program::CostFigures& figures, const std::string& of);
[[nodiscard]] std::vector<FigureUsed> figures_used(const program::FaultFigures& figures);

}  // namespace orrery::reports
