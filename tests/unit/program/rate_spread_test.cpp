#include "sim/program/rate_spread.h"

#include <gtest/gtest.h>

#include <cmath>

#include "models/implementation.h"
#include "sim/program/rates.h"
#include "topologies/cluster_spec.h"

namespace orrery::program {
namespace {

Plan plan_of_stack(const std::string& name) {
    Plan plan;
    plan.cluster = topologies::load_cluster("dgx-h100", 8);
    plan.implementation = models::load_implementation("nemo");
    plan.implementation.name = name;
    plan.rates = resolve_rates(plan.implementation, plan.cluster);
    return plan;
}

/// Standard deviation of a step of one second that consists of elementwise work.
double sd_of_elementwise_step(const Plan& plan, const RateSpread& spread) {
    const Sensitivity sensitivity{{{.work = models::WorkClass::elementwise}, 1.0}};
    return step_time_sd(plan, sensitivity, 1, spread);
}

TEST(RateSpread, OfAKeyLiesBetweenThePriorsAndTheFittedRates) {
    EXPECT_DOUBLE_EQ(sd_of_key(0.4, {}), 0.4);
    EXPECT_DOUBLE_EQ(sd_of_key(0.4, {0.0, 0.0, 0.0, 0.0}), 0.4 / std::sqrt(2.0));
    EXPECT_DOUBLE_EQ(sd_of_key(0.3, {0.5, -0.5}), std::sqrt((4 * 0.09 + 0.5) / 6));
}

// A stack without runs: its rates are as uncertain as the fitted rates of other stacks vary.
TEST(RateSpread, AnUnknownStackHasTheSpreadOfItsKeys) {
    const Plan plan = plan_of_stack("nobodys");
    const RateSpread priors;
    RateSpread near = priors, far = priors;
    near.sd_of_key["elementwise"] = near.sd_of_key["computation"] = 0.01;
    far.sd_of_key["elementwise"] = 1;
    const double scale = kNormalQuantile90 / kStudentQuantile90;
    EXPECT_NEAR(sd_of_elementwise_step(plan, priors), scale * std::hypot(0.4, 0.1), 1e-9);
    EXPECT_NEAR(sd_of_elementwise_step(plan, near), scale * std::hypot(0.01, 0.01), 1e-9);
    EXPECT_NEAR(sd_of_elementwise_step(plan, far), scale * std::hypot(1, 0.1), 1e-9);
}

TEST(RateSpread, AFittedRateKeepsTheUncertaintyOfItsFit) {
    Plan plan = plan_of_stack("nobodys");
    RateSpread spread;
    spread.sd_of_key["elementwise"] = spread.sd_of_key["computation"] = 0.01;
    Rates::Resolved elementwise = plan.rates.of(RateKey::elementwise);
    elementwise.rate.kind = topologies::Provenance::fitted;
    elementwise.rate.information = 0.75;
    plan.rates.set(RateKey::elementwise, elementwise);
    EXPECT_NEAR(sd_of_elementwise_step(plan, spread),
                kNormalQuantile90 / kStudentQuantile90 * std::hypot(elementwise.rate.sd / 2, 0.01), 1e-9);
}

TEST(RateSpread, RoundTripsThroughItsFile) {
    RateSpread spread{.residual_sd = 0.05, .memory_sd = 0.1};
    spread.sd_of_key = {{"head", 0.15}, {"tp", 0.5}};
    spread.names = {"a/head", "b/tp"};
    spread.correlations = {-0.25};
    const RateSpread read = spread_from_json_text(to_json_text(spread), "spread.json");
    EXPECT_EQ(read.sd_of_key, spread.sd_of_key);
    EXPECT_EQ(read.names, spread.names);
    EXPECT_EQ(read.correlations, spread.correlations);
    EXPECT_EQ(read.residual_sd, spread.residual_sd);
}

}  // namespace
}  // namespace orrery::program
