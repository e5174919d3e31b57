// How sure the order of two predicted step times is: the uncertainty of their ratio.
#pragma once

#include <optional>

#include "sim/program/plan_result.h"
#include "sim/program/rate_spread.h"

namespace orrery::program {

/// The scale of log(T_a / T_b), where T are the step times of two plans: sqrt(q^2 (J_a - J_b) S (J_a - J_b)' + 2 r^2).
/// J, S and q as for step_time_sd, with the derivatives of each plan by the names of its rates. An error of a rate that
/// both plans share moves both steps, so only the difference of their derivatives counts; rates of two stacks that were
/// fitted together keep their correlation. r is RateSpread::residual_sd: what no rate explains is assumed to be
/// independent between the two plans. Published runs of one job under several layouts support that: the ratio of two of
/// them is off by sqrt(2) times 0.035 (every job weighted alike), one alone by 0.037; and the interval holds for 85% of
/// their ratios, 95% as the mean of the jobs (tests/cli/tie_accuracy_test.cpp). Plans that differ less than any two
/// published runs may share more of that error; for them the assumption is cautious. 0 for twice the same plan.
[[nodiscard]] double step_ratio_sd(const PlanResult& a, const PlanResult& b,
                                   const RateSpread& spread = built_in_spread());

/// Compares a result with the one of rank 1. As for single steps, the logarithm of the measured ratio over the
/// predicted one follows a Student distribution with 4 degrees of freedom, whose scale is step_ratio_sd. No value if
/// one of them is not feasible or has no derivatives.
[[nodiscard]] std::optional<RatioToFirst> ratio_to_first(const PlanResult& result, const PlanResult& first,
                                                         const RateSpread& spread = built_in_spread());

}  // namespace orrery::program
