// Fits rates (sim/program/rates.h) to measured step times. Each run has the sensitivity of its step to the rates; the
// fit extrapolates along it from the simulated rates by a limited distance, after which the runs can be simulated
// again.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/program/sensitivity.h"

namespace orrery::sim {

/// A rate that is fitted.
struct FittedRate {
    std::string name;
    double prior = 1, sd = 0;          // prior mean, and standard deviation of the logarithm
    double start = 1;                  // value with which the runs were simulated
    double value = 1;                  // fitted value
    double information = 0;            // 1 - variance after / before, of the logarithm
    std::size_t runs = 0;              // runs whose step it affects
    std::size_t groups = 0;            // groups of these runs
    std::vector<std::string> sources;  // sources of these runs, in order of first appearance
};

/// A measured run with the terms of its predicted step.
struct RunToFit {
    std::string source;  // runs of a source share a limited weight
    std::string group;   // runs of a group are nearly the same run
    double measured_s = 0, predicted_s = 0;
    /// Part of the predicted step, and the rates that multiply it.
    struct Term {
        double seconds = 0;
        struct Use {
            std::size_t rate = 0;  // index in RateProblem::rates
            double power = 1;
        };
        std::vector<Use> uses;
    };
    std::vector<Term> terms;
};

struct RateProblem {
    std::vector<FittedRate> rates;
    std::vector<RunToFit> runs;

    /// Adds a run with its terms by the plan's rates. Throws BugError if another run was simulated with a different
    /// value of a rate.
    void add(const program::Plan& plan, const program::Sensitivity& sensitivity, RunToFit run);

  private:
    std::size_t rate_of(const program::Rates::Resolved& resolved);
    std::map<std::string, std::size_t> places_;
};

/// A rate affects a run if the step changes by at least this share of the rate's change, both in logarithms.
inline constexpr double kMovesShare = 0.01;
/// If a source has more runs than this, their weights are scaled by the square root of the ratio.
inline constexpr double kSourceRuns = 20;
/// The runs of a group, which differ little, count together as at most this many.
inline constexpr double kGroupRuns = 4;

struct RateFit {
    std::vector<FittedRate> rates;
    double objective_before = 0, objective_after = 0;
    /// Covariance of the rates' logarithms after the fit, row by row.
    std::vector<double> covariance;
    /// Step times of all runs with the fitted rates, by scaling their terms.
    std::vector<double> predicted_s;
};

/// Minimises, over the logarithms x of the rates,
///     sum over runs of w 2 (sqrt(1 + (e / s)^2) - 1)  +  sum over rates of ((x - log prior) / sd)^2
/// where e = log(predicted / measured), s = kSoftError, w = g sqrt(min(1, kSourceRuns / sum of the source's g)), g =
/// min(1, kGroupRuns / runs of the group), with each log rate within `reach` of the value with which the runs were
/// simulated. `chosen`: the runs to fit; empty: all.
[[nodiscard]] RateFit fit_rates(const RateProblem& problem, double reach, const std::vector<bool>& chosen = {});

/// The objective of fit_rates at the rates with which the runs were simulated.
[[nodiscard]] double rate_objective(const RateProblem& problem, const std::vector<bool>& chosen = {});

}  // namespace orrery::sim
