#include "reports/collective_predictions.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/house/json_schema.h"

namespace orrery::reports {
namespace {

CollectivePrediction row(const std::string& device, std::int64_t nodes, std::int64_t bytes, double predicted_us) {
    return {.id = "r",
            .op = "all_reduce",
            .hardware = device,
            .device = device,
            .ranks = 8 * nodes,
            .nodes = nodes,
            .bytes = bytes,
            .algorithm = "ring",
            .protocol = "Simple",
            .predicted_us = predicted_us,
            .measured_us = 100};
}

std::vector<CollectivePrediction> some_rows() {
    CollectivePrediction skipped{.id = "s", .op = "odd", .hardware = "MI\xff", .ranks = 8, .nodes = 1};
    skipped.skipped = "no device profile";
    CollectivePrediction doubtful = row("b", 1, 1 << 20, 500);
    doubtful.skipped = "one digit";
    return {row("b", 1, 1 << 20, 110),
            row("b", 1, 1 << 21, 90),
            row("b", 2, 1 << 20, 150),
            row("a", 1, 1 << 20, 100),
            row("a", 1, (1 << 20) - 1, 80.0),
            skipped,
            doubtful};
}

TEST(CollectivePredictions, SummaryByDeviceAndRegime) {
    const auto summaries = summarise(some_rows());
    ASSERT_EQ(summaries.size(), 7U);
    EXPECT_EQ(summaries[0].device, "a");
    EXPECT_EQ(summaries[1].regime, "below_1_mib");
    EXPECT_NEAR(summaries[1].errors.bias, -0.2, 1e-12);
    EXPECT_EQ(summaries[2].device, "b");
    EXPECT_EQ(summaries[2].errors.rows, 2U);  // skipped rows do not count
    EXPECT_NEAR(summaries[2].errors.mean, 0.1, 1e-12);
    EXPECT_NEAR(summaries[2].errors.bias, 0, 1e-12);
    EXPECT_EQ(summaries[3].regime, "across_nodes");
    EXPECT_EQ(summaries[4].device, "all");
    EXPECT_EQ(summaries[4].errors.rows, 3U);
}

TEST(CollectivePredictions, Text) {
    const std::string text = collective_predictions_text(some_rows(), false);
    EXPECT_NE(text.find("across nodes, 1 MiB and more     1   50.0%"), std::string::npos) << text;
    EXPECT_NE(text.find("1 x no device profile (first: s)"), std::string::npos) << text;
    EXPECT_EQ(text.find("1,048,576"), std::string::npos);
    EXPECT_NE(collective_predictions_text(some_rows(), true).find("1,048,576"), std::string::npos);
    EXPECT_NE(collective_predictions_text({}, true).find("median"), std::string::npos);
}

TEST(CollectivePredictions, JsonConformsToItsSchema) {
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    for (const auto& rows : {some_rows(), std::vector<CollectivePrediction>{}}) {
        EXPECT_EQ(schemas.check(collective_predictions_json(rows)), "") << collective_predictions_json(rows);
    }
    const auto document = nlohmann::json::parse(collective_predictions_json(some_rows()));
    EXPECT_EQ(document.at("rows").size(), 7U);
    EXPECT_EQ(document.at("rows")[0].at("predicted_time_us"), 110);
    EXPECT_EQ(document.at("rows")[0].at("skipped"), nullptr);
    EXPECT_EQ(document.at("rows")[5].at("bytes"), nullptr);
    EXPECT_EQ(document.at("summary").at("predicted"), 5);
    EXPECT_EQ(document.at("summary").at("skipped"), 2);
}

}  // namespace
}  // namespace orrery::reports
