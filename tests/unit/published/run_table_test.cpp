// Tables of one source's runs: they give the same rows as a list, and each invalid content has its error.
#include "sim/published/run_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <set>

#include "core/error.h"
#include "sim/program/plan.h"
#include "tests/unit/core/test_folder.h"
#include "tests/unit/published/sample_rows.h"

namespace orrery::published {
namespace {

using nlohmann::json;
using test::llama_row;
using test::sample_row;

/// Two runs that differ in most columns, and their common values.
json sample_table() {
    const json row = sample_row();
    return {
        {"schema", "orrery.published_runs/1"},
        {"source", {{"title", "Made up 2021"}, {"where", "here"}}},
        {"common",
         {{"quality", "A"},
          {"scored", true},
          {"hardware", {{"gpus_per_node", 8}, {"intra_node", "NVLink"}}},
          {"model", {{"name", "GPT"}, {"layers", 8}, {"hidden", 1024}, {"heads", 16}, {"vocab", 51200}}},
          {"parallel", row["parallel"]},
          {"batch", row["batch"]},
          {"recompute", "none"},
          {"framework", "Megatron-LM (commit 1234567)"},
          {"measured", {{"step_time_s", 1.5}}}}},
        {"columns",
         {"/id", "/hardware/gpu", "/hardware/num_gpus", "/model/kv_heads", "/model/ffn_hidden", "/model/seq_len",
          "/model/gated_mlp", "/model/moe", "/precision", "/precision_as_published", "/flash_attention",
          "/measured/peak_memory_gib", "/measured/stage_times_ms"}},
        {"rows",
         {{"made-up-1", "a100-sxm-80gb", 8, 16, 4096, 1024, false, nullptr, "fp16", "fp16", false, nullptr, nullptr},
          {"made-up-2",
           "h100-sxm-80gb",
           8,
           8,
           2816,
           1024,
           true,
           nullptr,
           "bf16",
           "bf16",
           true,
           40.5,
           {{"T_F", 18.5}}}}}};
}

std::vector<PublishedRow> read_table(const json& table) {
    return published_rows_from_json_text(table.dump(), "table.json");
}

TEST(RunTable, GivesTheSameRowsAsAList) {
    const std::vector<PublishedRow> rows = read_table(sample_table());
    ASSERT_EQ(rows.size(), 2U);
    json second = llama_row();
    second["id"] = "made-up-2";
    second["measured"]["peak_memory_gib"] = 40.5;
    const std::vector<PublishedRow> list = test::read(json::array({sample_row(), second}));
    for (std::size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(rows[i].refused, "");
        EXPECT_TRUE(rows[i].run.scored);
        const PlanOfRun plan = plan_of(rows[i].run), expected = plan_of(list[i].run);
        ASSERT_TRUE(plan.plan.has_value()) << plan.reason;
        EXPECT_EQ(program::to_json_text(*plan.plan), program::to_json_text(*expected.plan));
        EXPECT_EQ(rows[i].measured.step_time_s, list[i].measured.step_time_s);
        EXPECT_EQ(rows[i].measured.peak_memory_gib, list[i].measured.peak_memory_gib);
    }
    EXPECT_EQ(rows[1].measured.stage_times_ms.at("T_F"), 18.5);
}

TEST(RunTable, RefusesInvalidContent) {
    const auto refusal = [](const json& table) {
        try {
            (void)read_table(table);
        } catch (const InputError& error) {
            return std::string(error.what());
        }
        return std::string("not refused");
    };
    const auto changed = [&](const char* pointer, const json& value) {
        json table = sample_table();
        table[json::json_pointer(pointer)] = value;
        return refusal(table);
    };
    const auto expect = [](const std::string& text, const std::vector<std::string>& words) {
        EXPECT_EQ(text.find("table.json: "), 0U) << text;
        for (const std::string& word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
    };
    expect(changed("/columns/2", "/hardware/num_gpu"), {"/columns/2", "did you mean '/hardware/num_gpus'?"});
    expect(changed("/columns/2", "/measured/mfu"), {"/columns/2", "'/measured/mfu'", "a pointer to a value of a run"});
    expect(changed("/columns/2", "/id"), {"/columns/2", "neither an earlier column nor common"});
    expect(changed("/columns/2", "/model/layers"), {"/columns/2", "neither an earlier column nor common"});
    expect(changed("/columns/2", 7), {"/columns"});
    expect(changed("/rows/1", json::array({"made-up-2"})), {"/rows/1", "1 values", "13 values, one per column"});
    expect(changed("/rows/1", 3), {"/rows/1", "13 values, one per column"});
    expect(changed("/rows", 3), {"/rows", "a list"});
    expect(changed("/common/model/depth", 3), {"/common/model/depth", "a pointer to a value of a run"});
    expect(changed("/common/hardware", 3), {"/common/hardware"});
    expect(changed("/common", 3), {"/common"});
    expect(changed("/source/title", 3), {"/source/title"});
    expect(changed("/source/when", 2021), {"/source/when"});
    expect(changed("/rest", 3), {"/rest"});
    expect(changed("/schema", "orrery.published_runs/2"), {"orrery.published_runs/1"});
    expect(refusal(json::object({{"rows", json::array()}})), {"orrery.published_runs/1"});
}

TEST(RunTable, RefusesOnlyTheRowWithAnInvalidValue) {
    json table = sample_table();
    table["rows"][0][2] = -8;
    const std::vector<PublishedRow> rows = read_table(table);
    ASSERT_EQ(rows.size(), 2U);
    for (const char* word : {"made-up-1", "table.json", "/rows/0/hardware/num_gpus", "-8"}) {
        EXPECT_NE(rows[0].refused.find(word), std::string::npos) << rows[0].refused;
    }
    EXPECT_EQ(rows[1].refused, "");
    table["rows"][0][2] = 8;
    table["rows"][1][0] = "made-up-1";
    EXPECT_NE(read_table(table)[1].refused.find("an id that no earlier row has"), std::string::npos);
}

TEST(RunTable, AFolderStandsForItsFilesSortedByName) {
    const TestFolder folder;
    const auto write = [&](const std::string& name, const std::string& text) {
        std::ofstream(folder.file(name)) << text;
        return folder.file(name);
    };
    const std::string whole = folder.path().string();
    EXPECT_THROW((void)read_published_rows({whole}), InputError);
    json other = sample_row();
    other["id"] = "made-up-3";
    write("b.json", sample_table().dump());
    write("notes.txt", "no rows");
    const std::string list = write("a.json", json::array({other}).dump());
    std::vector<PublishedRow> rows = read_published_rows({whole});
    ASSERT_EQ(rows.size(), 3U);
    EXPECT_EQ(rows[0].run.id, "made-up-3");
    EXPECT_EQ(rows[2].run.id, "made-up-2");
    rows = read_published_rows({whole, list});
    ASSERT_EQ(rows.size(), 4U);
    EXPECT_NE(rows[3].refused.find("an id that no earlier row has"), std::string::npos) << rows[3].refused;
}

TEST(RunTable, TheSchemaListsThePointers) {
    std::ifstream stream(std::string(ORRERY_SOURCE_DIR) + "/docs/schema/orrery.published_runs.1.schema.json");
    const json schema = json::parse(stream);
    const auto listed = schema.at("/properties/columns/items/enum"_json_pointer).get<std::vector<std::string>>();
    EXPECT_EQ(listed, std::vector<std::string>(run_table_pointers().begin(), run_table_pointers().end()));
}

}  // namespace
}  // namespace orrery::published
