// Errors of the predictions of the published runs in sim/published/data must equal those recorded in
// tests/data/accuracy.json. A change that moves them, also for the better, records them again with ORRERY_RECORD=1 in
// the environment and says what moved.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

using json = nlohmann::ordered_json;

const std::string kRoot = ORRERY_SOURCE_DIR;
const std::string kRecorded = kRoot + "/tests/data/accuracy.json";
constexpr double kTolerance = 0.002;  // 0.2 percentage points

/// Rounded far below the tolerance, so that the record does not change insignificantly.
json errors_of(const json& summary) {
    if (summary.is_null()) return nullptr;
    const auto rounded = [&](const char* key) { return std::round(summary.at(key).get<double>() * 1e5) / 1e5; };
    return {{"rows", summary.at("rows")},
            {"median", rounded("median_absolute_error")},
            {"mean", rounded("mean_absolute_error")}};
}

json figures_of(const json& summary) {
    return {{"step_time", errors_of(summary.at("step_time"))}, {"peak_memory", errors_of(summary.at("peak_memory"))}};
}

/// The current errors, in the form of the record.
json accuracy() {
    const CommandResult result = orrery({"validate", "--rows", kRoot + "/sim/published/data", "--json"});
    expect_done(result);
    const json summary = json::parse(result.out).at("summary");
    EXPECT_EQ(summary.at("skipped"), 0);
    json figures{{"all", figures_of(summary)}, {"sources", json::object()}};
    for (const json& source : summary.at("sources")) {
        figures["sources"][source.at("source").get<std::string>()] = figures_of(source);
    }
    return figures;
}

void expect_near(const json& now, const json& recorded, const std::string& whose) {
    SCOPED_TRACE(whose);
    for (const char* quantity : {"step_time", "peak_memory"}) {
        ASSERT_EQ(now.at(quantity).is_null(), recorded.at(quantity).is_null()) << quantity;
        if (now.at(quantity).is_null()) continue;
        EXPECT_EQ(now.at(quantity).at("rows"), recorded.at(quantity).at("rows")) << quantity;
        for (const char* key : {"median", "mean"}) {
            EXPECT_NEAR(now.at(quantity).at(key).get<double>(), recorded.at(quantity).at(key).get<double>(), kTolerance)
                << quantity << ", " << key << " of absolute errors";
        }
    }
}

TEST(Accuracy, ErrorsEqualTheRecordedOnes) {
    const json now = accuracy();
    if (std::getenv("ORRERY_RECORD") != nullptr) {
        write_file_atomically(kRecorded, now.dump(1) + "\n");
        return;
    }
    ASSERT_TRUE(std::filesystem::exists(kRecorded)) << "ORRERY_RECORD=1 records it";
    const json recorded = json::parse(read_text_file(kRecorded));
    expect_near(now.at("all"), recorded.at("all"), "all");
    EXPECT_EQ(now.at("sources").size(), recorded.at("sources").size());
    for (const auto& [source, figures] : now.at("sources").items()) {
        ASSERT_TRUE(recorded.at("sources").contains(source)) << source;
        expect_near(figures, recorded.at("sources").at(source), source);
    }
}

}  // namespace
}  // namespace orrery::test
