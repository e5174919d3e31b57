// Rates (sim/program/rates.h) by which predicted steps come closest to measured ones. Each run knows how its step
// depends on the rates (Sensitivity); the fit moves along that, from where the runs were simulated, and not far, so
// that it can be checked by simulating again.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/program/sensitivity.h"

namespace orrery::sim {

/// One rate among those that are fitted.
struct FittedRate {
    std::string name;
    double prior = 1, sd = 0;          // before: mean, and of the logarithm
    double start = 1;                  // with which the runs were simulated
    double value = 1;                  // after
    double information = 0;            // 1 - variance after / before, of the logarithm
    std::size_t runs = 0;              // that it moves
    std::size_t groups = 0;            // their groups
    std::vector<std::string> sources;  // their sources, in the order in which they first appear
};

/// A run with what its predicted step consists of.
struct RunToFit {
    std::string source;  // runs of a source weigh together
    std::string group;   // runs of a group tell the same
    double measured_s = 0, predicted_s = 0;
    /// Part of the predicted step, and by which rates it is multiplied.
    struct Term {
        double seconds = 0;
        struct Use {
            std::size_t rate = 0;  // in RateProblem::rates
            double power = 1;
        };
        std::vector<Use> uses;
    };
    std::vector<Term> terms;
};

struct RateProblem {
    std::vector<FittedRate> rates;
    std::vector<RunToFit> runs;

    /// The run's terms by the plan's rates, which are the same figures in all runs; a BugError otherwise.
    void add(const program::Plan& plan, const program::Sensitivity& sensitivity, RunToFit run);

  private:
    std::size_t rate_of(const program::Rates::Resolved& resolved);
    std::map<std::string, std::size_t> places_;
};

/// A rate moves a run when the step changes by this share of the rate's change, both in logarithms.
inline constexpr double kMovesShare = 0.01;
/// Runs of a source count as so many together where they are more (by the square root of the ratio).
inline constexpr double kSourceRuns = 20;
/// Runs of a group, which differ in little, count as so many together where they are more.
inline constexpr double kGroupRuns = 4;

struct RateFit {
    std::vector<FittedRate> rates;
    double objective_before = 0, objective_after = 0;
    /// Covariance of the rates' logarithms after the fit, by row.
    std::vector<double> covariance;
    /// Step times of all runs by the fitted rates, to first order in what the terms hold.
    std::vector<double> predicted_s;
};

/// Minimises, over the logarithms x of the rates,
///     sum over runs of w 2 (sqrt(1 + (e / s)^2) - 1)  +  sum over rates of ((x - log prior) / sd)^2
/// where e = log(predicted / measured), s = kSoftError, w = g sqrt(min(1, kSourceRuns / sum of the source's g)),
/// g = min(1, kGroupRuns / runs of the group), no rate moving by more than `reach` (of its logarithm) from where the
/// runs were simulated. `chosen`: runs that count; empty: all of them.
[[nodiscard]] RateFit fit_rates(const RateProblem& problem, double reach, const std::vector<bool>& chosen = {});

/// What fit_rates minimises, at the runs' predicted times and the rates they were simulated with.
[[nodiscard]] double rate_objective(const RateProblem& problem, const std::vector<bool>& chosen = {});

}  // namespace orrery::sim
