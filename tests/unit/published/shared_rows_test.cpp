// Nearly all of the collected published rows, if they are present, must translate to plans that can be lowered.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "sim/program/program.h"
#include "sim/published/plan_of.h"

namespace orrery::published {
namespace {

TEST(SharedRows, AlmostAllScoredRowsAreExpressible) {
    const char* shared = std::getenv("ORRERY_SHARED");
    const std::string folder = shared != nullptr ? shared : std::string(ORRERY_SOURCE_DIR) + "/../shared";
    const std::string file = folder + "/validation/training.json";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there; set ORRERY_SHARED";
    std::size_t scored = 0, lowered = 0;
    std::map<std::string, std::size_t> reasons;
    for (const PublishedRow& row : read_published_rows({file})) {
        EXPECT_EQ(row.refused, "");
        if (!row.run.scored) continue;
        ++scored;
        const PlanOfRun translated = plan_of(row.run);
        if (!translated.plan) {
            ++reasons[translated.reason];
            continue;
        }
        EXPECT_FALSE(translated.assumptions.empty()) << row.run.id;
        EXPECT_EQ(translated.plan->parallelism.world_size(), row.run.hardware.gpus) << row.run.id;
        try {
            (void)program::lower(*translated.plan);
            ++lowered;
        } catch (const std::exception& error) {
            ++reasons[row.run.id + ": " + error.what()];
        }
    }
    std::string text;
    for (const auto& [reason, count] : reasons) text += "\n  " + std::to_string(count) + " x " + reason;
    EXPECT_GT(scored, 1000U);
    EXPECT_GE(static_cast<double>(lowered), 0.97 * static_cast<double>(scored)) << text;
}

}  // namespace
}  // namespace orrery::published
