#include "reports/comparison.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "tests/house/json_schema.h"
#include "tests/unit/reports/sample.h"

namespace orrery::reports {
namespace {

const ComparisonRow& row_of(const Comparison& comparison, Quantity quantity, const std::string& scope,
                            const std::string& stream) {
    for (const ComparisonRow& row : comparison.rows) {
        if (row.quantity == quantity && row.scope == scope && row.stream == stream) return row;
    }
    throw std::runtime_error("no row " + name_of(quantity) + " of " + scope + " " + stream);
}

Comparison sample_comparison() {
    return compare(sample::program(), sample::predicted(), sample::measured());
}

TEST(Comparison, StepTimeComesFirst) {
    const Comparison comparison = sample_comparison();
    EXPECT_EQ(comparison.step_time().quantity, Quantity::step_time_s);
    EXPECT_DOUBLE_EQ(*comparison.step_time().error, 20.0 / 25.0 - 1);
}

TEST(Comparison, BusyTimeIsAMeanOverRanks) {
    const Comparison comparison = sample_comparison();
    const ComparisonRow& all = row_of(comparison, Quantity::busy_s, "all ranks", "compute");
    EXPECT_DOUBLE_EQ(all.predicted, 10e-6);
    EXPECT_DOUBLE_EQ(all.measured, (8e-6 + 12e-6 + 20e-6 + 20e-6) / 4);
    const ComparisonRow& first = row_of(comparison, Quantity::busy_s, "stage 0", "compute");
    EXPECT_DOUBLE_EQ(first.measured, 10e-6);
    EXPECT_NEAR(*first.error, 0, 1e-12);
    EXPECT_NEAR(*row_of(comparison, Quantity::busy_s, "stage 1", "compute").error, -0.5, 1e-12);
    EXPECT_DOUBLE_EQ(row_of(comparison, Quantity::busy_s, "all ranks", "pp").predicted, 0.5e-6);
    EXPECT_THROW((void)row_of(comparison, Quantity::busy_s, "all ranks", "dp"), std::runtime_error);
}

TEST(Comparison, MemoryIsTheWorstRankAndBytesAreTheSum) {
    const Comparison comparison = sample_comparison();
    EXPECT_EQ(row_of(comparison, Quantity::peak_memory_bytes, "all ranks", "").measured, 7 << 20);
    EXPECT_EQ(row_of(comparison, Quantity::peak_memory_bytes, "stage 0", "").predicted, 6 << 20);
    EXPECT_EQ(row_of(comparison, Quantity::bytes_sent, "all ranks", "tp").predicted, 4000);
    EXPECT_EQ(row_of(comparison, Quantity::bytes_sent, "all ranks", "tp").measured, 4000);
    EXPECT_EQ(row_of(comparison, Quantity::bytes_sent, "all ranks", "pp").measured, 128);
}

TEST(Comparison, SpansAreJoinedByStageAndKey) {
    const Comparison comparison = sample_comparison();
    EXPECT_EQ(comparison.joined, 5);
    EXPECT_EQ(comparison.only_predicted, 0);
    EXPECT_EQ(comparison.only_measured, 0);
    ASSERT_EQ(comparison.phases.size(), 3U);
    EXPECT_EQ(comparison.phases[0].phase, "forward");
    EXPECT_EQ(comparison.phases[0].stream, "compute");
    EXPECT_EQ(comparison.phases[0].instructions, 2);
    EXPECT_DOUBLE_EQ(comparison.phases[0].predicted_s, 10e-6);
    EXPECT_DOUBLE_EQ(comparison.phases[0].measured_s, 15e-6);
    EXPECT_EQ(comparison.phases[1].stream, "tp");
    EXPECT_DOUBLE_EQ(comparison.phases[1].measured_s, 4.5e-6);
    EXPECT_EQ(comparison.phases[2].phase, "transfer");

    ASSERT_EQ(comparison.worst.size(), 5U);
    EXPECT_EQ(comparison.worst[0].stage, "stage 1");
    EXPECT_EQ(comparison.worst[0].stream, "compute");
    EXPECT_DOUBLE_EQ(comparison.worst[0].measured_s, 20e-6);
    EXPECT_EQ(comparison.worst[1].stream, "tp");
    EXPECT_EQ(comparison.worst[1].stage, "stage 0");
    EXPECT_DOUBLE_EQ(comparison.worst[1].measured_wait_s, 2e-6);
}

TEST(Comparison, SpansOnOneSideOnlyAreCounted) {
    program::RunRecord predicted = sample::predicted();
    program::RunRecord measured = sample::measured();
    predicted.ranks[0].spans.pop_back();
    for (program::RankRecord& rank : measured.ranks) {
        if (rank.rank_class == 1) rank.spans.pop_back();
    }
    const Comparison comparison = compare(sample::program(), predicted, measured);
    EXPECT_EQ(comparison.joined, 3);
    EXPECT_EQ(comparison.only_predicted, 1);
    EXPECT_EQ(comparison.only_measured, 1);

    for (program::RankRecord& rank : measured.ranks) rank.spans.clear();
    const Comparison without = compare(sample::program(), predicted, measured);
    EXPECT_TRUE(without.phases.empty());
    EXPECT_EQ(comparison_text(without).find("By phase"), std::string::npos);
}

TEST(Comparison, RefusesOtherPlansAndEmptyRecords) {
    program::RunRecord measured = sample::measured();
    measured.plan_name = "another";
    EXPECT_THROW((void)compare(sample::program(), sample::predicted(), measured), InputError);
    measured = sample::measured();
    measured.ranks.clear();
    EXPECT_THROW((void)compare(sample::program(), sample::predicted(), measured), InputError);
}

TEST(Comparison, MedianIsOverJudgedComparisons) {
    const auto with_error = [](double error, bool judged) {
        Comparison comparison = sample_comparison();
        comparison.rows.front().error = error;
        comparison.judged = judged;
        return comparison;
    };
    std::vector<Comparison> all = {with_error(-0.3, true), with_error(0.1, true), with_error(5, false)};
    EXPECT_DOUBLE_EQ(*agreement_of(all).median_step_time_error, 0.2);
    all.push_back(with_error(0.12, true));
    EXPECT_DOUBLE_EQ(*agreement_of(all).median_step_time_error, 0.12);
    EXPECT_FALSE(agreement_of({}).median_step_time_error.has_value());
}

TEST(Comparison, TextShowsErrorsAndEquality) {
    Comparison comparison = sample_comparison();
    comparison.judged = false;
    const std::string text = comparison_text(comparison);
    for (const char* part : {"sample (dp 1 x tp 2 x pp 2", "not judged", "-20.0%", "equal", "-50.0%", "20.0 us",
                             "By phase", "predicted: no efficiency was measured"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
    comparison.judged = true;
    const std::vector<Comparison> two = {comparison, comparison};
    const std::string both = comparisons_text(two);
    EXPECT_NE(both.find("median error of step time: 20.0%"), std::string::npos) << both;
    EXPECT_EQ(both.find("-50.0%"), std::string::npos)
        << "rows of single stages are shown only for a single comparison\n"
        << both;
}

TEST(Comparison, AMeasurementOfZeroHasNoError) {
    program::RunRecord measured = sample::measured();
    for (program::RankRecord& rank : measured.ranks) rank.bytes_sent = {};
    const Comparison comparison = compare(sample::program(), sample::predicted(), measured);
    EXPECT_FALSE(row_of(comparison, Quantity::bytes_sent, "all ranks", "tp").error.has_value());
    EXPECT_NE(comparison_text(comparison).find("n/a"), std::string::npos);
    const auto document = nlohmann::json::parse(comparisons_json(std::vector<Comparison>{comparison}));
    EXPECT_TRUE(document.at("comparisons").at(0).at("rows").back().at("error").is_null());
}

TEST(Comparison, JsonConformsToItsSchema) {
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    const std::vector<Comparison> comparisons = {sample_comparison()};
    const std::string text = comparisons_json(comparisons);
    EXPECT_EQ(schemas.check(text), "");
    EXPECT_EQ(schemas.check(comparisons_json({})), "");
    EXPECT_EQ(text.rfind("{\n  \"schema\": \"orrery.comparison/1\"", 0), 0U);
    const auto document = nlohmann::json::parse(text);
    EXPECT_EQ(document.at("comparisons").at(0).at("worst_instructions").size(), 5U);
    EXPECT_EQ(document.at("median_step_time_error"), *agreement_of(comparisons).median_step_time_error);
}

}  // namespace
}  // namespace orrery::reports
