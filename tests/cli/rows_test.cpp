// `orrery validate --rows`: predictions of published runs.
#include <gtest/gtest.h>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"
#include "tests/unit/published/sample_rows.h"

namespace orrery::test {
namespace {

using nlohmann::json;
using published::test::llama_row;
using published::test::sample_row;

/// Two scored rows of two sources, an unscored one, one that cannot be a plan, and one that is not a valid row.
json some_rows() {
    json other = llama_row(), unscored = sample_row(), odd = sample_row(), broken = sample_row();
    other["id"] = "made-up-2";
    other["source"]["title"] = "Another 2022";
    other["framework"] = "Megatron-Core 0.9+";
    other["measured"]["peak_memory_gib"] = 20.0;
    unscored["id"] = "made-up-3";
    unscored["scored"] = false;
    odd["id"] = "made-up-4";
    odd["hardware"]["gpu"] = "tpu-v4";
    broken["id"] = "made-up-5";
    broken["measured"]["step_time_s"] = -1;
    return json::array({sample_row(), other, unscored, odd, broken});
}

const json& row_of(const json& document, const std::string& id) {
    for (const json& row : document.at("rows")) {
        if (row.at("id") == id) return row;
    }
    throw std::runtime_error("no row " + id);
}

TEST(Rows, PredictsRowsAndSkipsUnpredictableOnes) {
    const Workplace here;
    here.write("rows.json", some_rows());
    const CommandResult result = here.run({"validate", "--rows", "rows.json", "--json", "--check"});
    expect_done(result);
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    const json document = json::parse(result.out);
    EXPECT_EQ(document.at("rows").size(), 4U);
    for (const char* id : {"made-up-1", "made-up-2"}) {
        EXPECT_GT(row_of(document, id).at("predicted_step_time_s").get<double>(), 0) << result.out;
        EXPECT_GT(row_of(document, id).at("predicted_memory_in_use_gib").get<double>(), 0);
        EXPECT_EQ(row_of(document, id).at("measured_step_time_s"), 1.5);
    }
    EXPECT_NE(row_of(document, "made-up-4").at("skipped").get<std::string>().find("tpu-v4"), std::string::npos);
    EXPECT_NE(row_of(document, "made-up-5").at("skipped").get<std::string>().find("step_time_s"), std::string::npos);
    EXPECT_EQ(document.at("summary").at("predicted"), 2);
    EXPECT_EQ(document.at("summary").at("skipped"), 2);
    EXPECT_EQ(document.at("summary").at("peak_memory").at("rows"), 1);
}

TEST(Rows, RunsThatRanOutOfMemoryAreReportedSeparately) {
    const Workplace here;
    json rows = some_rows();
    rows[1]["measured"]["memory_kind"] = "nvidia-smi GB";
    rows.push_back({{"file", "llama_13B.xlsx"},
                    {"trial_id", 17},
                    {"model", "LLaMA-13B"},
                    {"seq_len", 2048},
                    {"num_gpus", 8},
                    {"tp", 1},
                    {"pp", 1},
                    {"dp", 8},
                    {"micro_batch", 8},
                    {"global_batch", 64},
                    {"sequence_parallel", false},
                    {"kernel", "flash_attention2"},
                    {"activation_checkpointing", "disabled"},
                    {"result", "OOM Error"},
                    {"source", "Aleph-Alpha 2311.05610 sweep (A100-80GB, bf16)"}});
    here.write("rows.json", rows);
    const CommandResult result = here.run({"validate", "--rows", "rows.json", "--json"});
    expect_done(result);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(result.out), "");
    const json document = json::parse(result.out);
    const json& ran_out = row_of(document, "out-of-memory-6");
    EXPECT_EQ(ran_out.at("ran_out_of_memory"), true);
    EXPECT_TRUE(ran_out.at("predicted_step_time_s").is_null());
    EXPECT_GT(ran_out.at("predicted_memory_in_use_gib").get<double>(), 80);
    EXPECT_FALSE(ran_out.at("inferred").empty());
    EXPECT_EQ(row_of(document, "made-up-2").at("memory_kind"), "in use");
    const json& fit = document.at("summary").at("fit");
    EXPECT_EQ(fit.at("ran"), 2);
    EXPECT_EQ(fit.at("ran_said_not_to_fit"), 0);
    EXPECT_EQ(fit.at("ran_out_of_memory"), 1);
    EXPECT_EQ(fit.at("ran_out_said_to_fit"), 0);
    const CommandResult table = here.run({"validate", "--rows", "rows.json"});
    expect_done(table);
    EXPECT_NE(table.out.find("Of 1 runs that ran out of memory, 0 are said to fit"), std::string::npos) << table.out;
    EXPECT_NE(table.out.find("1 x vocab: 128000"), std::string::npos) << table.out;
    const CommandResult one = here.run({"validate", "--rows", "rows.json", "--explain-row", "out-of-memory-6"});
    expect_done(one);
    EXPECT_NE(one.out.find("dimensions: of LLaMA-13B"), std::string::npos) << one.out;
    EXPECT_NE(one.out.find("Memory of a device"), std::string::npos) << one.out;
}

TEST(Rows, UnscoredRowsArePredictedOnRequestAndNeverCount) {
    const Workplace here;
    here.write("rows.json", some_rows());
    const json document = json::parse(here.run({"validate", "--rows", "rows.json", "--all", "--json"}).out);
    EXPECT_EQ(document.at("rows").size(), 5U);
    EXPECT_GT(row_of(document, "made-up-3").at("predicted_step_time_s").get<double>(), 0);
    EXPECT_EQ(document.at("summary").at("step_time").at("rows"), 2);
}

TEST(Rows, Text) {
    const Workplace here;
    here.write("rows.json", some_rows());
    const CommandResult table = here.run({"validate", "--rows", "rows.json"});
    expect_done(table);
    EXPECT_NE(table.out.find("Another 2022"), std::string::npos) << table.out;
    EXPECT_NE(table.out.find("1 x no device profile for gpu 'tpu-v4' (first: made-up-4)"), std::string::npos);
    const CommandResult only = here.run({"validate", "--rows", "rows.json", "--only", "2022", "--verbose"});
    expect_done(only);
    EXPECT_NE(only.out.find("made-up-2"), std::string::npos) << only.out;
    EXPECT_EQ(only.out.find("made-up-1"), std::string::npos) << only.out;
    const CommandResult explained = here.run({"validate", "--rows", "rows.json", "--explain-row", "made-up-1"});
    expect_done(explained);
    EXPECT_NE(explained.out.find("dropout: 0.1 (default of megatron-lm-2021)"), std::string::npos) << explained.out;
    EXPECT_NE(explained.out.find("step time"), std::string::npos) << explained.out;
    const CommandResult without = here.run({"validate", "--rows", "rows.json", "--explain-row", "made-up-4"});
    expect_done(without);
    EXPECT_NE(without.out.find("tpu-v4"), std::string::npos) << without.out;
}

TEST(Rows, RefusesWrongInput) {
    const Workplace here;
    here.write("rows.json", some_rows());
    here.write("object.json", json::object());
    here.write("broken.json", std::string("[{"));
    const auto refused = [&](std::vector<std::string> words, const std::vector<std::string>& expected) {
        words.insert(words.begin(), "validate");
        expect_refused(here.run(words), 2, expected);
    };
    refused({"--rows", "absent.json"}, {"absent.json"});
    refused({"--rows", "object.json"}, {"object.json", "a JSON list of rows"});
    refused({"--rows", "broken.json"}, {"broken.json"});
    refused({"--rows", "rows.json", "--only", "nobody"}, {"--only", "nobody"});
    refused({"--rows", "rows.json", "--explain-row", "made-up-11"}, {"--explain-row", "did you mean 'made-up-1'?"});
    refused({"--rows", "rows.json", "--explain-row", "made-up-5"}, {"made-up-5", "step_time_s"});
    refused({"some.plan.json", "--rows", "rows.json"}, {"--rows", "plans"});
    refused({"--rows", "rows.json", "--all", "--scored-only"}, {"--all", "--scored-only"});
    refused({"--all"}, {"--rows"});
    refused({}, {"plans", "--rows FILE"});
}

}  // namespace
}  // namespace orrery::test
