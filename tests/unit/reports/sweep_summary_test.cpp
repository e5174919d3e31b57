#include "reports/sweep_summary.h"

#include <gtest/gtest.h>

namespace orrery::reports {
namespace {

/// Predicted in this order; the fastest measured one is at `best`, the others take 10% longer each further on.
std::vector<SweepRun> sweep(const std::string& name, const std::vector<double>& measured) {
    std::vector<SweepRun> runs;
    for (std::size_t i = 0; i < measured.size(); ++i) {
        runs.push_back({name, 1.0 + 0.01 * static_cast<double>(i), measured[i]});
    }
    return runs;
}

TEST(SweepSummary, MeasuringTheFirstThreeAvoidsTheRegretOfTheFirst) {
    const SweepSummary summary = sweep_summary(sweep("a", {1.2, 1.5, 1.0, 0.8, 2.0}));
    EXPECT_EQ(summary.sweeps, 1U);
    EXPECT_DOUBLE_EQ(summary.runs_median, 5);
    EXPECT_DOUBLE_EQ(summary.regret_p90, 1.2 / 0.8 - 1);
    EXPECT_DOUBLE_EQ(summary.measured_regret_p90, 1.0 / 0.8 - 1) << "the fastest is the fourth choice";
    EXPECT_EQ(measured_regret_text(summary),
              "Measuring the predicted top 3 of each sweep (5 runs, median): regret median 25.0%, p90 25.0%, at most "
              "25.0% instead of 50.0%\n");
}

TEST(SweepSummary, QuantilesAreTakenOverSweeps) {
    std::vector<SweepRun> runs = sweep("a", {1.5, 1.0, 2.0, 2.0});
    for (const SweepRun& run : sweep("b", {1.0, 1.0, 2.0, 2.0})) runs.push_back(run);
    for (const SweepRun& run : sweep("too short", {9.0, 1.0, 1.0})) runs.push_back(run);
    const SweepSummary summary = sweep_summary(runs);
    EXPECT_EQ(summary.sweeps, 2U);
    EXPECT_DOUBLE_EQ(summary.regret_median, 0.25);
    EXPECT_DOUBLE_EQ(summary.regret_most, 0.5);
    EXPECT_DOUBLE_EQ(summary.measured_regret_most, 0);
}

}  // namespace
}  // namespace orrery::reports
