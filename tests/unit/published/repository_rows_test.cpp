// The published runs in sim/published/data, the basis of the accuracy tables.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "core/file.h"
#include "sim/program/plan.h"
#include "sim/published/plan_of.h"
#include "sim/published/run_groups.h"
#include "tests/house/json_schema.h"

namespace orrery::published {
namespace {

using nlohmann::json;

const std::string kRoot = ORRERY_SOURCE_DIR;
const std::string kData = kRoot + "/sim/published/data";
const std::string kFoldsFile = kRoot + "/tests/data/folds.json";

TEST(RepositoryRows, FilesConformToTheirSchema) {
    const house::SchemaSet schemas = house::repository_schemas(kRoot);
    std::size_t bytes = 0;
    for (const auto& entry : std::filesystem::directory_iterator(kData)) {
        EXPECT_EQ(entry.path().extension(), ".json");
        const std::string text = read_text_file(entry.path().string());
        EXPECT_EQ(schemas.check(text), "") << entry.path();
        bytes += text.size();
    }
    EXPECT_LE(bytes, 300U * 1024);
}

TEST(RepositoryRows, EachIsScoredAndTranslatesToAPlan) {
    const std::vector<PublishedRow> rows = read_published_rows({kData});
    EXPECT_GE(rows.size(), 1186U);
    for (const PublishedRow& row : rows) {
        EXPECT_EQ(row.refused, "");
        EXPECT_TRUE(row.run.scored) << row.run.id;
        EXPECT_TRUE(row.measured.step_time_s.has_value()) << row.run.id;
        const PlanOfRun translated = plan_of(row.run);
        ASSERT_TRUE(translated.plan.has_value()) << row.run.id << ": " << translated.reason;
        EXPECT_FALSE(translated.plan->origins.contains("/implementation/supports"))
            << row.run.id << ": " << translated.plan->origins.at("/implementation/supports");
    }
}

/// The repository's rows leave out published words that plans do not use; their plans must equal those of the collected
/// rows.
TEST(RepositoryRows, GiveTheSamePlansAsTheCollectedRows) {
    const char* shared = std::getenv("ORRERY_SHARED");
    const std::string folder = shared != nullptr ? shared : kRoot + "/../shared";
    const std::string file = folder + "/validation/training.json";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there; set ORRERY_SHARED";
    std::map<std::string, PublishedRow> ours;
    for (PublishedRow& row : read_published_rows({kData})) {
        const std::string id = row.run.id;
        ours.emplace(id, std::move(row));
    }
    std::size_t scored = 0;
    for (const PublishedRow& row : read_published_rows({file})) {
        if (!row.run.scored) continue;
        ++scored;
        const auto found = ours.find(row.run.id);
        ASSERT_NE(found, ours.end()) << row.run.id;
        const PublishedRow& mine = found->second;
        const PlanOfRun collected = plan_of(row.run), translated = plan_of(mine.run);
        ASSERT_EQ(translated.plan.has_value(), collected.plan.has_value()) << row.run.id;
        if (collected.plan) {
            EXPECT_EQ(program::to_json_text(*translated.plan), program::to_json_text(*collected.plan)) << row.run.id;
        }
        EXPECT_EQ(translated.assumptions, collected.assumptions) << row.run.id;
        EXPECT_EQ(group_of(mine.run), group_of(row.run));
        EXPECT_EQ(mine.run.source, row.run.source);
        EXPECT_EQ(mine.run.quality, row.run.quality) << row.run.id;
        EXPECT_EQ(mine.measured.step_time_s, row.measured.step_time_s) << row.run.id;
        EXPECT_EQ(mine.measured.step_time_is, row.measured.step_time_is) << row.run.id;
        EXPECT_EQ(mine.measured.peak_memory_gib, row.measured.peak_memory_gib) << row.run.id;
        EXPECT_EQ(mine.measured.memory_kind, row.measured.memory_kind) << row.run.id;
        EXPECT_EQ(mine.measured.memory_of_last_stage, row.measured.memory_of_last_stage) << row.run.id;
        EXPECT_EQ(mine.measured.stage_forward_ms, row.measured.stage_forward_ms) << row.run.id;
        EXPECT_EQ(mine.measured.stage_times_ms, row.measured.stage_times_ms) << row.run.id;
    }
    EXPECT_EQ(scored, ours.size());
}

/// Rates are fitted to four folds and tested on the fifth, so a changed split would change the results. With
/// ORRERY_RECORD=1 new runs are added; existing ones keep their folds.
TEST(RepositoryRows, FoldsEqualTheCommittedOnes) {
    std::ifstream stream(kFoldsFile);
    json committed = stream ? json::parse(stream) : json::object();
    const char* record = std::getenv("ORRERY_RECORD");
    const std::vector<PublishedRow> rows = read_published_rows({kData});
    for (const PublishedRow& row : rows) {
        if (record != nullptr && !committed.contains(row.run.id)) committed[row.run.id] = fold_of(row.run);
        ASSERT_TRUE(committed.contains(row.run.id)) << row.run.id << " has no fold; ORRERY_RECORD=1 adds it";
        EXPECT_EQ(committed.at(row.run.id), fold_of(row.run)) << row.run.id;
    }
    EXPECT_EQ(committed.size(), rows.size());
    if (record != nullptr) write_file_atomically(kFoldsFile, committed.dump(0) + "\n");
}

}  // namespace
}  // namespace orrery::published
