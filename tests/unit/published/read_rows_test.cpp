// Reading published rows: what is taken over, what is refused and what is passed over.
#include <gtest/gtest.h>

#include <functional>

#include "core/error.h"
#include "tests/unit/published/sample_rows.h"

namespace orrery::published {
namespace {

using nlohmann::json;
using test::llama_row;
using test::read;
using test::sample_row;

TEST(ReadRows, TakesWhatIsPublished) {
    json row = llama_row();
    row["parallel"]["vocab_method"] = "redis";
    row["parallel"]["layers_last_stage"] = 0;
    row["parallel"]["data_parallel_as_published"] = 3;  // some sources print a bare number
    row["model"]["untied_embeddings"] = false;
    const std::vector<PublishedRow> rows = read(json::array({sample_row(), [&] {
                                                                 row["id"] = "made-up-2";
                                                                 return row;
                                                             }()}));
    ASSERT_EQ(rows.size(), 2U);
    const PublishedRun& gpt = rows[0].run;
    EXPECT_EQ(rows[0].refused, "");
    EXPECT_EQ(gpt.id, "made-up-1");
    EXPECT_EQ(gpt.source, "Made up 2021");
    EXPECT_TRUE(gpt.scored);
    EXPECT_EQ(gpt.hardware.gpus, 8);
    EXPECT_EQ(gpt.hardware.inter_node, "");
    EXPECT_EQ(gpt.model.layers, 8);
    EXPECT_EQ(gpt.model.sequence_length, 1024);
    EXPECT_FALSE(gpt.model.experts.has_value());
    EXPECT_FALSE(gpt.model.tied_embeddings.has_value());
    EXPECT_EQ(gpt.parallel.chunks, 1);
    EXPECT_EQ(gpt.global_batch, 32);
    EXPECT_EQ(gpt.flash_attention, false);
    const PublishedRun& llama = rows[1].run;
    EXPECT_EQ(llama.parallel.vocabulary_method, "redis");
    EXPECT_EQ(llama.parallel.last_stage_layers, 0);
    EXPECT_EQ(llama.parallel.data_parallel_words, "3");
    EXPECT_EQ(llama.model.tied_embeddings, true);
}

TEST(ReadRows, TakesBothSpellingsOfExperts) {
    json row = llama_row();
    row["model"]["moe"] = {{"num_experts", 8}, {"top_k", 2}, {"moe_ffn_hidden", 1408}, {"shared_experts", 2}};
    const PublishedRun one = test::run_of(row);
    ASSERT_TRUE(one.model.experts.has_value());
    EXPECT_EQ(one.model.experts->count, 8);
    EXPECT_EQ(one.model.experts->shared_ffn_hidden, 2816);
    row["model"]["moe"] = {
        {"experts", 16},
        {"top_k", 4},
        {"moe_ffn_hidden", 1408},
        {"dense_layers", 1},
        {"capacity_factor", 1},
        {"pad_to_capacity", true},
        {"shared_expert_ffn_hidden", 512},
        {"mla", {{"q_lora", 0}, {"kv_lora", 512}, {"qk_head", 128}, {"rope_head", 64}, {"v_head", 96}}}};
    const PublishedRun other = test::run_of(row);
    EXPECT_EQ(other.model.experts->count, 16);
    EXPECT_EQ(other.model.experts->shared_ffn_hidden, 512);
    EXPECT_EQ(other.model.experts->dense_layers, 1);
    EXPECT_EQ(other.model.experts->capacity_factor, 1);
    EXPECT_TRUE(other.model.experts->pads_to_capacity);
    ASSERT_TRUE(other.model.latent.has_value());
    EXPECT_EQ(other.model.latent->v_head, 96);
}

TEST(ReadRows, MeasurementsStandApart) {
    json row = sample_row();
    row["measured"] = json::parse(R"({"step_time_s": 2.25, "step_time_is": "printed", "peak_memory_gib": 40.5,
        "memory_kind": "allocated", "mfu": 0.4, "tflops_per_gpu": 137, "hfu": null, "unheard_of": "words",
        "stage_forward_ms": [1, 2.5], "stage_times_ms": {"T_F": 18.5, "T_comm": 0.6},
        "peak_alloc_mb_by_rank": {"0": 100, "1": 90}})");
    const PublishedMeasurement measured = read(json::array({row})).at(0).measured;
    EXPECT_EQ(measured.step_time_s, 2.25);
    EXPECT_EQ(measured.peak_memory_gib, 40.5);
    EXPECT_EQ(measured.memory_kind, "allocated");
    EXPECT_EQ(measured.stage_forward_ms, (std::vector<double>{1, 2.5}));
    EXPECT_EQ(measured.stage_times_ms.at("T_comm"), 0.6);
    EXPECT_EQ(measured.peak_allocated_mb_by_rank.at("1"), 90);
    EXPECT_EQ(measured.figures, (std::map<std::string, double>{{"mfu", 0.4}, {"tflops_per_gpu", 137}}));
}

TEST(ReadRows, UnknownKeysArePassedOver) {
    json row = sample_row();
    row["remark"] = {1, 2};
    row["model"]["colour"] = "blue";
    EXPECT_EQ(read(json::array({row})).at(0).refused, "");
}

/// A row that is broken in one place, and the words that its refusal must have.
struct BadRow {
    const char* name;
    std::function<void(json&)> breaks;
    std::vector<std::string> words;
};
class Refused : public testing::TestWithParam<BadRow> {};

TEST_P(Refused, NamesFileRowAndKey) {
    json bad = sample_row();
    bad["id"] = "the-bad-one";
    GetParam().breaks(bad);
    const std::vector<PublishedRow> rows = read(json::array({sample_row(), bad}));
    ASSERT_EQ(rows.size(), 2U);
    EXPECT_EQ(rows[0].refused, "");  // the others are read
    EXPECT_EQ(rows[1].run.framework, "");
    for (const std::string& word : GetParam().words) {
        EXPECT_NE(rows[1].refused.find(word), std::string::npos) << rows[1].refused << "\nlacks " << word;
    }
    EXPECT_NE(rows[1].refused.find("rows.json"), std::string::npos) << rows[1].refused;
}

INSTANTIATE_TEST_SUITE_P(
    Rows, Refused,
    testing::Values(
        BadRow{"NoLayersKind", [](json& r) { r["model"]["layers"] = "many"; }, {"the-bad-one", "layers", "many"}},
        BadRow{"NegativeHidden", [](json& r) { r["model"]["hidden"] = -1; }, {"the-bad-one", "hidden", "-1"}},
        BadRow{"FractionOfGpus", [](json& r) { r["hardware"]["num_gpus"] = 7.5; }, {"num_gpus", "7.5"}},
        BadRow{"NegativeTime", [](json& r) { r["measured"]["step_time_s"] = -2; }, {"the-bad-one", "step_time_s"}},
        BadRow{"ZeroTime", [](json& r) { r["measured"]["step_time_s"] = 0; }, {"step_time_s"}},
        BadRow{"NanAsText", [](json& r) { r["measured"]["step_time_s"] = "NaN"; }, {"step_time_s", "NaN"}},
        BadRow{"NegativeMemory", [](json& r) { r["measured"]["peak_memory_gib"] = -0.5; }, {"peak_memory_gib"}},
        BadRow{"NegativeFigure", [](json& r) { r["measured"]["mfu"] = -0.5; }, {"mfu", "-0.5"}},
        BadRow{"NegativeStage",
               [](json& r) {
                   r["measured"]["stage_forward_ms"] = {1, -1};
               },
               {"stage_forward_ms"}},
        BadRow{"NoParallel", [](json& r) { r.erase("parallel"); }, {"the-bad-one", "parallel"}},
        BadRow{"NoSource", [](json& r) { r.erase("source"); }, {"the-bad-one", "source"}},
        BadRow{"NoId", [](json& r) { r.erase("id"); }, {"row 1", "id"}},
        BadRow{"SameId", [](json& r) { r["id"] = "made-up-1"; }, {"made-up-1", "no earlier row"}},
        BadRow{"ScoredInWords", [](json& r) { r["scored"] = "yes"; }, {"scored"}},
        BadRow{"ZeroTp", [](json& r) { r["parallel"]["tp"] = 0; }, {"tp", "0"}},
        BadRow{"NoTopK",
               [](json& r) {
                   r["model"]["moe"] = {{"experts", 8}, {"moe_ffn_hidden", 64}};
               },
               {"top_k"}}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(ReadRows, WhatIsNoListOfRowsIsRefused) {
    const auto refused = [](const std::string& text) {
        try {
            (void)published_rows_from_json_text(text, "rows.json");
        } catch (const InputError& error) {
            return std::string(error.what()).find("rows.json") != std::string::npos;
        }
        return false;
    };
    for (const char* text :
         {"", " \n", "{}", "3", "[1]", "[{}", "[{}]]", "[{\"a\": NaN}]", "[{\"a\": 1e999}]", "[[]]"}) {
        EXPECT_TRUE(refused(text)) << text;
    }
    EXPECT_TRUE(published_rows_from_json_text(" []", "rows.json").empty());
    EXPECT_THROW((void)read_published_rows("/there/is/none.json"), InputError);
}

}  // namespace
}  // namespace orrery::published
