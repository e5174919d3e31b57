#include "reports/shortlist.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/house/json_schema.h"

namespace orrery::reports {
namespace {

Shortlist sample() {
    Shortlist shortlist{
        .model = "gpt2", .cluster = "local", .devices = 2, .global_batch = 8, .sequence_length = 128, .steps = 20};
    shortlist.choices.push_back({.number = 1,
                                 .plan_name = "a",
                                 .implementation = "orrery",
                                 .strategy = "dp 2 x tp 1 x pp 1",
                                 .step_time_s = 1.0,
                                 .step_time_low_s = 0.9,
                                 .step_time_high_s = 1.1,
                                 .peak_memory_gib = 2,
                                 .plan_file = "1.plan.json",
                                 .launch_file = "1.sh",
                                 .record_file = "1.record.json"});
    shortlist.choices.push_back({.number = 2,
                                 .plan_name = "b",
                                 .implementation = "orrery",
                                 .strategy = "dp 1 x tp 2 x pp 1",
                                 .step_time_s = 1.25,
                                 .peak_memory_gib = 1,
                                 .distance = 1,
                                 .plan_file = "2.plan.json",
                                 .why_not_run = "its precision",
                                 .record_file = "2.record.json"});
    return shortlist;
}

TEST(Shortlist, IsReadAsItIsWritten) {
    const std::string text = shortlist_json(sample());
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(text), "");
    EXPECT_EQ(shortlist_json(shortlist_from_json_text(text, "shortlist.json")), text);
}

TEST(Shortlist, FilesLieInItsFolder) {
    Shortlist shortlist = sample();
    shortlist.choices[1].plan_file = "../2.plan.json";
    try {
        (void)shortlist_from_json_text(shortlist_json(shortlist), "shortlist.json");
        ADD_FAILURE() << "a path out of the folder was accepted";
    } catch (const InputError& error) {
        EXPECT_NE(std::string(error.what()).find("/choices/1/plan_file"), std::string::npos) << error.what();
    }
}

TEST(Shortlist, TextNamesWhatCannotBeRun) {
    const std::string text = shortlist_text(sample(), "folder");
    for (const char* part : {"folder", "+25.0%", "choice 2 has no launch script: its precision"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
}

TEST(Picked, TakesTheFastestRecordAndSaysWhatItSaved) {
    const Shortlist shortlist = sample();
    Picked picked{.is_measured = true};
    picked.choices = {{.choice = shortlist.choices[0], .step_time_s = 1.5},
                      {.choice = shortlist.choices[1], .step_time_s = 1.2}};
    EXPECT_EQ(picked.fastest().choice.number, 2);
    ASSERT_TRUE(picked.regret_avoided().has_value());
    EXPECT_DOUBLE_EQ(*picked.regret_avoided(), 0.25);
    const std::string text = picked_text(picked);
    for (const char* part : {"picked: choice 2", "25.0% slower", "-33.3%", "+4.2%"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(picked_json(picked)), "");
}

TEST(Picked, KnowsNoRegretIfTheFirstChoiceWasNotMeasured) {
    const Shortlist shortlist = sample();
    Picked picked{.is_measured = true};
    picked.choices = {{.choice = shortlist.choices[0], .why_not = "no record"},
                      {.choice = shortlist.choices[1], .step_time_s = 1.2}};
    EXPECT_FALSE(picked.regret_avoided().has_value());
    EXPECT_NE(picked_text(picked).find("has no complete record"), std::string::npos);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(picked_json(picked)), "");
}

}  // namespace
}  // namespace orrery::reports
