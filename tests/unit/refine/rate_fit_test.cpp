#include "sim/refine/rate_fit.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"

namespace orrery::sim {
namespace {

/// Runs of two kinds of work in varying shares, measured with factors `a` and `b`.
RateProblem two_rates(double a, double b, int runs) {
    RateProblem problem;
    problem.rates = {{.name = "a", .prior = 1.2, .sd = 0.5},
                     {.name = "b", .prior = 1.2, .sd = 0.5},
                     {.name = "nobody", .prior = 2, .sd = 0.5, .start = 2, .value = 2}};
    for (int i = 0; i < runs; ++i) {
        const double share = (i + 1.0) / (runs + 1.0);
        RunToFit run{.source = i % 2 == 0 ? "even" : "odd", .group = std::to_string(i), .predicted_s = 1};
        run.terms = {{share, {{0, 1}}}, {1 - share, {{1, 1}}}};
        run.measured_s = share * a + (1 - share) * b;
        problem.runs.push_back(run);
    }
    return problem;
}

TEST(FitRates, FindsTheRatesAndTheirInformation) {
    const RateFit fit = fit_rates(two_rates(1.5, 0.8, 40), 5);
    EXPECT_NEAR(fit.rates[0].value, 1.5, 0.01);
    EXPECT_NEAR(fit.rates[1].value, 0.8, 0.01);
    EXPECT_EQ(fit.rates[2].value, 2);  // affects no run: keeps the prior mean
    EXPECT_GT(fit.rates[0].information, 0.95);
    EXPECT_NEAR(fit.rates[2].information, 0, 1e-9);
    EXPECT_EQ(fit.rates[0].groups, 40U);
    EXPECT_EQ(fit.rates[2].runs, 0U);
    EXPECT_EQ(fit.rates[0].sources, (std::vector<std::string>{"even", "odd"}));
    EXPECT_LT(fit.objective_after, fit.objective_before);
    EXPECT_NEAR(fit.predicted_s[3], two_rates(1.5, 0.8, 40).runs[3].measured_s, 0.01);
}

TEST(FitRates, MovesNoFurtherThanItsReach) {
    const RateFit fit = fit_rates(two_rates(3, 3, 20), 0.3);
    EXPECT_NEAR(fit.rates[0].value, std::exp(0.3), 1e-9);
}

TEST(FitRates, OnlyChosenRunsCount) {
    RateProblem problem = two_rates(1.5, 0.8, 40);
    std::vector<bool> chosen(40, true);
    for (std::size_t i = 0; i < 10; ++i) {
        problem.runs[i].measured_s *= 5;
        chosen[i] = false;
    }
    EXPECT_NEAR(fit_rates(problem, 5, chosen).rates[0].value, 1.5, 0.02);
    EXPECT_GT(rate_objective(problem), rate_objective(problem, chosen));
}

TEST(FitRates, OneOutlierMovesTheFitLittle) {
    RateProblem problem = two_rates(1.5, 0.8, 40);
    problem.runs[20].measured_s *= 10;
    EXPECT_NEAR(fit_rates(problem, 5).rates[0].value, 1.5, 0.1);
}

/// A hundred runs of one group that disagree with thirty others count as four runs.
TEST(FitRates, ManyRunsOfOneGroupCountAsFew) {
    RateProblem few = two_rates(1.5, 0.8, 30), many = few;
    const auto add = [](RateProblem& problem, int runs) {
        for (int i = 0; i < runs; ++i) {
            RunToFit run = problem.runs[7];
            run.measured_s *= 1.1;
            run.group = "alike";
            problem.runs.push_back(run);
        }
    };
    add(few, 4);
    add(many, 100);
    EXPECT_NEAR(rate_objective(many), rate_objective(few), 1e-9);
    EXPECT_NEAR(fit_rates(many, 5).rates[0].value, fit_rates(few, 5).rates[0].value, 1e-9);
}

TEST(FitRates, TermsDependOnPowersOfRates) {
    RateProblem problem;
    problem.rates = {{.name = "growth", .prior = 1.5, .sd = 0.5}};
    for (int doublings = 0; doublings < 5; ++doublings) {
        RunToFit run{.source = "s",
                     .group = std::to_string(doublings),
                     .measured_s = std::pow(2.0, doublings),
                     .predicted_s = 1};
        run.terms = {{1, {{0, static_cast<double>(doublings)}}}};
        problem.runs.push_back(run);
    }
    EXPECT_NEAR(fit_rates(problem, 5).rates[0].value, 2, 0.01);
}

/// All runs of a fit start from the rates with which they were simulated, so each rate must have one value.
TEST(FitRates, RunsOfOneProblemMustHaveTheSameRates) {
    using program::RateKey;
    program::Plan plan;
    plan.rates.set(RateKey::computation, {"implementation/x/computation", {.value = 1.5, .prior = 1, .sd = 0.1}});
    const program::Sensitivity sensitivity{{{.work = models::WorkClass::optimizer}, 1.0}};
    RateProblem problem;
    problem.add(plan, sensitivity, {.measured_s = 1, .predicted_s = 1});
    problem.add(plan, sensitivity, {.measured_s = 2, .predicted_s = 1});
    EXPECT_EQ(problem.rates.size(), 1U);
    EXPECT_EQ(problem.rates.front().start, 1.5);
    plan.rates.set(RateKey::computation, {"implementation/x/computation", {.value = 1.6, .prior = 1, .sd = 0.1}});
    EXPECT_THROW(problem.add(plan, sensitivity, {.measured_s = 1, .predicted_s = 1}), BugError);
}

}  // namespace
}  // namespace orrery::sim
