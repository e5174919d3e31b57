// Summary of many comparisons.
#include <gtest/gtest.h>

#include <cmath>

#include "reports/comparison.h"

namespace orrery::reports {
namespace {

Comparison compared(double predicted, double measured, double memory_error = 0, double bytes = 8) {
    Comparison comparison;
    comparison.rows = {{Quantity::step_time_s, kAllRanks, "", predicted, measured, predicted / measured - 1},
                       {Quantity::peak_memory_bytes, kAllRanks, "", 1 + memory_error, 1, memory_error},
                       {Quantity::bytes_sent, kAllRanks, "dp", bytes, 8, bytes / 8 - 1}};
    return comparison;
}

TEST(Agreement, WithoutComparisonsIsEmpty) {
    const Agreement agreement = agreement_of({});
    EXPECT_EQ(agreement.plans, 0);
    EXPECT_FALSE(agreement.median_step_time_error || agreement.rank_correlation || agreement.median_memory_error);
    const std::vector<Comparison> one{compared(1, 1)};
    EXPECT_FALSE(agreement_of(one).rank_correlation.has_value());
}

TEST(Agreement, CountsOnlyJudgedComparisons) {
    std::vector<Comparison> all{compared(1.1, 1, 0.01), compared(1.6, 2, -0.03), compared(3.0, 3, 0.02, 9)};
    all.push_back(compared(8, 4, 0.5));
    all.back().judged = false;
    const Agreement agreement = agreement_of(all);
    EXPECT_EQ(agreement.plans, 4);
    EXPECT_EQ(agreement.judged, 3);
    EXPECT_NEAR(*agreement.median_step_time_error, 0.1, 1e-12);
    EXPECT_NEAR(*agreement.worst_step_time_error, 0.2, 1e-12);
    EXPECT_NEAR(*agreement.median_memory_error, 0.02, 1e-12);
    EXPECT_NEAR(*agreement.worst_memory_error, 0.03, 1e-12);
    EXPECT_NEAR(*agreement.median_error_not_judged, 1.0, 1e-12);
    EXPECT_EQ(agreement.equal_bytes, 3);
    EXPECT_NEAR(*agreement.rank_correlation, 1, 1e-12);
}

TEST(Agreement, RankCorrelationIsSpearmans) {
    std::vector<Comparison> all{compared(1, 10), compared(2, 30), compared(3, 20), compared(4, 40)};
    EXPECT_NEAR(*agreement_of(all).rank_correlation, 1 - 6.0 * 2 / (4 * 15), 1e-12);  // 1 - 6 sum d^2 / (n (n^2 - 1))
    all = {compared(1, 3), compared(2, 2), compared(3, 1)};
    EXPECT_NEAR(*agreement_of(all).rank_correlation, -1, 1e-12);
    // Ranks 0.5, 0.5, 2 and 0, 1, 2.
    all = {compared(1, 1), compared(1, 2), compared(3, 3)};
    EXPECT_NEAR(*agreement_of(all).rank_correlation, 1.5 / std::sqrt(1.5 * 2), 1e-12);
    all = {compared(1, 1), compared(1, 2)};
    EXPECT_FALSE(agreement_of(all).rank_correlation.has_value());
}

}  // namespace
}  // namespace orrery::reports
