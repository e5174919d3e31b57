// Each fault of a rate catalogue is reported, and the built-in catalogue has none.
#include "sim/program/rate_check.h"

#include <gtest/gtest.h>

namespace orrery::program {
namespace {

using topologies::Provenance;

Rate fitted_rate() {
    return {.value = 1.3,
            .kind = Provenance::fitted,
            .source = "orrery calibrate --rows: 76 runs of 70 groups move it, of A paper; Another paper",
            .prior = 1.1,
            .sd = 0.2,
            .information = 0.9};
}

std::vector<std::string> faults_with(const std::string& name, const Rate& rate) {
    return rate_faults({{name, rate}});
}

TEST(RateCheck, TheBuiltInCatalogueHasNoFaults) {
    EXPECT_EQ(rate_faults(built_in_rates()), std::vector<std::string>{});
    EXPECT_GT(fitted_rates(built_in_rates()), 10U);
}

TEST(RateCheck, NamesTheFault) {
    const std::string name = "device/sm_90/products";
    EXPECT_TRUE(faults_with(name, fitted_rate()).empty());
    const auto expect_one = [&](const Rate& rate, const std::string& what) {
        EXPECT_EQ(faults_with(name, rate), std::vector<std::string>{name + ": " + what});
    };
    Rate rate = fitted_rate();
    rate.information = 0.3;
    expect_one(rate, "its information is 0.30; allowed: at least 0.50");
    rate = fitted_rate();
    rate.sd = 0.6;
    expect_one(rate, "the prior's sd is 0.60; allowed: at most 0.50");
    rate.sd = 0;
    expect_one(rate, "has no prior");
    rate = fitted_rate();
    rate.prior = 0;
    expect_one(rate, "has no prior");
    rate = fitted_rate();
    rate.source = "orrery calibrate --rows: 76 runs of 3 groups move it, of A paper";
    expect_one(rate, "runs of 3 groups move it; allowed: at least 4");
    for (const char* source : {"a guess", "76 runs of  groups move it, of A paper", "76 runs of 70 groups move it, of ",
                               "76 runs of -7 groups move it, of A paper"}) {
        rate.source = source;
        expect_one(rate, "its source does not state the runs to which it was fitted");
    }
}

TEST(RateCheck, AKeyMayJustifyAWiderPrior) {
    Rate rate = fitted_rate();
    rate.sd = row_of(RateKey::host_step_ms).sd;
    ASSERT_GT(rate.sd, kWidestPrior);
    EXPECT_TRUE(faults_with("implementation/nemo/host_step_ms", rate).empty());
}

TEST(RateCheck, CountsOnlyFittedFigures) {
    RateCatalogue catalogue;
    for (std::size_t i = 0; i <= kMostFittedRates; ++i) {
        catalogue["implementation/made-up-" + std::to_string(i) + "/head"] = fitted_rate();
    }
    EXPECT_EQ(rate_faults(catalogue), std::vector<std::string>{"111 fitted rates; allowed: at most 110"});
    Rate assumed = fitted_rate();
    assumed.kind = Provenance::fallback;
    assumed.information = 0;
    catalogue["implementation/made-up-0/head"] = assumed;
    EXPECT_EQ(fitted_rates(catalogue), kMostFittedRates);
    EXPECT_TRUE(rate_faults(catalogue).empty());
}

}  // namespace
}  // namespace orrery::program
