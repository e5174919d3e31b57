// The uncertainty of the ratio of two steps against figures computed by hand.
#include "sim/program/step_ratio.h"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::program {
namespace {

constexpr double kScale = kNormalQuantile90 / kStudentQuantile90;

Rate fitted(double sd) {
    return {.value = 1, .kind = topologies::Provenance::fitted, .sd = sd};
}

/// A plan with two rates, and the slopes of its step by them.
PlanResult result_of(const std::string& name, double step_s, const std::map<std::string, double>& slopes) {
    PlanResult result;
    result.plan.name = name;
    result.plan.rates.set(RateKey::products, {"d/products", fitted(0.2)});
    result.plan.rates.set(RateKey::elementwise, {"s/elementwise", fitted(0.1)});
    result.step_time_s = step_s;
    result.slopes = slopes;
    result.feasible = true;
    return result;
}

RateSpread spread_of(double residual_sd, double correlation) {
    RateSpread spread;
    spread.residual_sd = residual_sd;
    spread.names = {"d/products", "s/elementwise"};
    spread.correlations = {correlation};
    return spread;
}

TEST(StepRatio, AnErrorThatBothPlansShareCancels) {
    const PlanResult a = result_of("a", 10, {{"d/products", 0.8}}), b = result_of("b", 11, {{"d/products", 0.8}});
    EXPECT_NEAR(step_ratio_sd(a, b, spread_of(0, 0)), 0, 1e-12);
    // Only what no rate explains is left, once for each plan.
    EXPECT_NEAR(step_ratio_sd(a, b, spread_of(0.03, 0)), std::sqrt(2.0) * 0.03, 1e-12);
}

TEST(StepRatio, OnlyTheDifferenceOfTheSlopesCounts) {
    const PlanResult a = result_of("a", 10, {{"d/products", 0.8}, {"s/elementwise", 0.1}});
    const PlanResult b = result_of("b", 11, {{"d/products", 0.5}, {"s/elementwise", 0.4}});
    // 0.3 of 0.2 against 0.3 of 0.1.
    EXPECT_NEAR(step_ratio_sd(a, b, spread_of(0, 0)), kScale * std::hypot(0.06, 0.03), 1e-12);
    EXPECT_NEAR(step_ratio_sd(b, a, spread_of(0, 0)), kScale * std::hypot(0.06, 0.03), 1e-12);
    // Fully correlated rates: 0.06 - 0.03.
    EXPECT_NEAR(step_ratio_sd(a, b, spread_of(0, 1)), kScale * 0.03, 1e-12);
    // A rate that only one plan uses counts whole.
    const PlanResult c = result_of("c", 11, {{"d/products", 0.8}});
    EXPECT_NEAR(step_ratio_sd(a, c, spread_of(0, 0)), kScale * 0.1 * 0.1, 1e-12);
}

TEST(StepRatio, TiesAreRatiosWhoseIntervalHoldsOne) {
    const RateSpread spread = spread_of(0.03, 0);  // the scale of the ratio: 0.0424; 90% lie within 0.0904
    const std::map<std::string, double> slopes{{"d/products", 0.8}};
    const PlanResult first = result_of("a", 10, slopes);
    const auto near = ratio_to_first(result_of("b", 10.9, slopes), first, spread);
    ASSERT_TRUE(near.has_value());
    EXPECT_TRUE(near->is_tie());
    EXPECT_NEAR(near->ratio, 1.09, 1e-12);
    EXPECT_NEAR(std::log(near->high / near->ratio), 2.13 * std::sqrt(2.0) * 0.03, 1e-9);
    EXPECT_NEAR(std::log(near->ratio / near->low), 2.13 * std::sqrt(2.0) * 0.03, 1e-9);
    const auto far = ratio_to_first(result_of("c", 11, slopes), first, spread);
    ASSERT_TRUE(far.has_value());
    EXPECT_FALSE(far->is_tie());
    // 5% of the distribution lie beyond the end of its 90% interval.
    const auto at_end =
        ratio_to_first(result_of("d", 10 * std::exp(2.13 * std::sqrt(2.0) * 0.03), slopes), first, spread);
    EXPECT_NEAR(at_end->faster_probability, 0.05, 1e-3);
    const auto equal = ratio_to_first(result_of("e", 10, slopes), first, spread);
    EXPECT_NEAR(equal->faster_probability, 0.5, 1e-12);
}

TEST(StepRatio, APlanIsExactlyAsFastAsItself) {
    const PlanResult first = result_of("a", 10, {{"d/products", 0.8}});
    const auto itself = ratio_to_first(first, first, spread_of(0.03, 0));
    EXPECT_EQ(itself->low, 1);
    EXPECT_EQ(itself->high, 1);
    EXPECT_EQ(itself->faster_probability, 0);
}

TEST(StepRatio, UnknownWithoutDerivativesOrWhatDoesNotFit) {
    PlanResult first = result_of("a", 10, {{"d/products", 0.8}}), other = result_of("b", 11, {});
    EXPECT_FALSE(ratio_to_first(other, first).has_value());
    other.slopes = first.slopes;
    EXPECT_TRUE(ratio_to_first(other, first).has_value());
    other.feasible = false;
    EXPECT_FALSE(ratio_to_first(other, first).has_value());
}

}  // namespace
}  // namespace orrery::program
