#include "reports/row_predictions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/house/json_schema.h"

namespace orrery::reports {
namespace {

RowPrediction row(const std::string& id, const std::string& source, double predicted, double measured) {
    return {.id = id,
            .source = source,
            .counts = true,
            .predicted_step_time_s = predicted,
            .measured_step_time_s = measured};
}

std::vector<RowPrediction> sample_rows() {
    std::vector<RowPrediction> rows{row("a1", "A", 1.1, 1), row("a2", "A", 1.6, 2), row("a3", "A", 3, 3),
                                    row("b1", "B", 1.5, 1)};
    rows[3].predicted_peak_memory_gib = 30;
    rows[3].measured_peak_memory_gib = 40;
    rows[3].memory_kind = "allocated";
    rows.push_back({.id = "b2", .source = "B", .counts = true, .measured_step_time_s = 4, .skipped = "no such GPU"});
    rows.push_back({.id = "b3", .source = "B", .counts = true, .skipped = "no such GPU\n  and more of it"});
    rows.push_back(row("c1", "C", 9, 1));
    rows.back().counts = false;
    return rows;
}

TEST(RowPredictions, Errors) {
    // |errors| 0, 0.1, 0.2, 0.5: the median is halfway between the middle two, p90 at position 2.7 of 0..3.
    const ErrorSummary errors = error_summary({0.1, -0.2, 0, 0.5});
    EXPECT_EQ(errors.rows, 4U);
    EXPECT_DOUBLE_EQ(errors.median, 0.15);
    EXPECT_DOUBLE_EQ(errors.mean, 0.2);
    EXPECT_NEAR(errors.p90, 0.41, 1e-12);
    EXPECT_NEAR(errors.bias, 0.1, 1e-12);
    EXPECT_EQ(error_summary({}).rows, 0U);
    EXPECT_DOUBLE_EQ(error_summary({-0.3}).p90, 0.3);
}

TEST(RowPredictions, BySourceAndTogether) {
    const std::vector<SourceSummary> sources = summarise(sample_rows());
    ASSERT_EQ(sources.size(), 3U);  // C has no row that counts
    EXPECT_EQ(sources[0].source, "A");
    EXPECT_EQ(sources[0].rows, 3U);
    EXPECT_EQ(sources[0].skipped, 0U);
    EXPECT_NEAR(sources[0].step_time.median, 0.1, 1e-12);
    EXPECT_NEAR(sources[0].step_time.bias, -0.1 / 3, 1e-12);
    EXPECT_EQ(sources[0].peak_memory.rows, 0U);
    EXPECT_EQ(sources[1].rows, 1U);
    EXPECT_EQ(sources[1].skipped, 2U);
    EXPECT_DOUBLE_EQ(sources[1].peak_memory.bias, -0.25);
    EXPECT_EQ(sources[1].memory_kinds, std::vector<std::string>{"allocated"});
    EXPECT_EQ(sources[2].source, "all");
    EXPECT_EQ(sources[2].step_time.rows, 4U);
    EXPECT_EQ(sources[2].skipped, 2U);
}

TEST(RowPredictions, PredictedFitsAreComparedWithOutcomes) {
    std::vector<RowPrediction> rows = sample_rows();
    for (RowPrediction& one : rows) one.memory_allowed_gib = 80;
    rows[0].predicted_memory_in_use_gib = 79;
    rows[1].predicted_memory_in_use_gib = 81;
    rows[1].memory_words = "stage 1: activations 70.0 GiB";
    const auto ran_out = [&](const std::string& id, double in_use) {
        rows.push_back({.id = id,
                        .source = "D",
                        .predicted_memory_in_use_gib = in_use,
                        .memory_allowed_gib = 80,
                        .ran_out = true,
                        .inferred = {"vocab: 128000 (of others)"}});
    };
    ran_out("d1", 100);
    ran_out("d2", 78);
    ran_out("d3", 40);
    const FitSummary fit = fit_of(rows);
    EXPECT_EQ(fit.ran, 2U);
    EXPECT_EQ(fit.ran_refused, 1U);
    EXPECT_EQ(fit.ran_out, 3U);
    EXPECT_EQ(fit.said_to_fit, 2U);
    EXPECT_EQ(fit.with_room, 1U);
    EXPECT_DOUBLE_EQ(fit.most_spare, 0.5);
    EXPECT_EQ(fit.roomiest, "d3");
    const std::string text = row_predictions_text(rows);
    EXPECT_NE(text.find("of 2 runs that ran, 1 (50.0%) are said not to fit"), std::string::npos) << text;
    EXPECT_NE(text.find("Of 3 runs that ran out of memory, 2 are said to fit, 1 with more than 10.0% to spare"),
              std::string::npos)
        << text;
    EXPECT_NE(text.find("3 x vocab: 128000 (of others)"), std::string::npos) << text;
    EXPECT_EQ(text.find("stage 1"), std::string::npos) << text;
    const std::string listed = row_predictions_text(rows, {.misfits = true});
    const std::size_t ran = listed.find("Ran, and are said not to fit (GiB)"),
                      out = listed.find("Ran out of memory, and are said to fit (GiB)");
    ASSERT_LT(ran, out);
    ASSERT_NE(out, std::string::npos);
    const std::size_t second = listed.find("a2");
    EXPECT_TRUE(ran < second && second < out) << listed;
    EXPECT_NE(listed.find("stage 1: activations 70.0 GiB"), std::string::npos) << listed;
    EXPECT_LT(listed.find("d3", out), listed.find("d2", out)) << "the worst first: " << listed;
    EXPECT_EQ(listed.find("d1", out), std::string::npos) << listed;
    const auto document = nlohmann::json::parse(row_predictions_json(rows));
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(document.dump()), "");
    EXPECT_EQ(document.at("summary").at("fit").at("ran_said_not_to_fit"), 1);
}

TEST(RowPredictions, Text) {
    const std::string text = row_predictions_text(sample_rows());
    EXPECT_NE(text.find("2 x no such GPU (first: b2)"), std::string::npos) << text;
    EXPECT_NE(text.find("+50.0%"), std::string::npos) << text;
    EXPECT_EQ(text.find("a2"), std::string::npos) << text;
    const std::string each = row_predictions_text(sample_rows(), {.each_row = true});
    EXPECT_NE(each.find("a2"), std::string::npos) << each;
    EXPECT_NE(each.find("-20.0%"), std::string::npos) << each;
    EXPECT_NE(each.find("c1"), std::string::npos) << each;  // shown although it does not count
    EXPECT_NE(row_predictions_text({}, {.each_row = true}).find("all"), std::string::npos);
}

TEST(RowPredictions, JsonConformsToItsSchema) {
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    for (const auto& rows : {sample_rows(), std::vector<RowPrediction>{}}) {
        EXPECT_EQ(schemas.check(row_predictions_json(rows)), "") << row_predictions_json(rows);
    }
    const auto document = nlohmann::json::parse(row_predictions_json(sample_rows()));
    EXPECT_EQ(document.at("rows").size(), 7U);
    EXPECT_EQ(document.at("rows").at(0).at("predicted_step_time_s"), 1.1);
    EXPECT_TRUE(document.at("rows").at(0).at("skipped").is_null());
    EXPECT_TRUE(document.at("rows").at(4).at("predicted_step_time_s").is_null());
    EXPECT_EQ(document.at("rows").at(4).at("measured_step_time_s"), 4);
    EXPECT_EQ(document.at("rows").at(4).at("skipped"), "no such GPU");
    EXPECT_EQ(document.at("summary").at("predicted"), 4);
    EXPECT_EQ(document.at("summary").at("sources").size(), 2U);
    EXPECT_TRUE(document.at("summary").at("sources").at(0).at("peak_memory").is_null());
    std::vector<RowPrediction> foreign = sample_rows();
    foreign[0].id = "\xff\xfe";
    EXPECT_EQ(schemas.check(row_predictions_json(foreign)), "");
}

}  // namespace
}  // namespace orrery::reports
