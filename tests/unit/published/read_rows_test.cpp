// Reading published rows: which values are read, refused and ignored.
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

TEST(ReadRows, ReadsPublishedValues) {
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

TEST(ReadRows, ReadsBothSpellingsOfExperts) {
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

TEST(ReadRows, ReadsMeasurementsSeparately) {
    json row = sample_row();
    row["measured"] = json::parse(R"({"step_time_s": 2.25, "step_time_is": "printed", "peak_memory_gib": 40.5,
        "memory_kind": "allocated", "mfu": 0.4, "tflops_per_gpu": 137, "hfu": null, "unheard_of": "words",
        "stage_forward_ms": [1, 2.5], "stage_times_ms": {"T_F": 18.5, "T_comm": 0.6},
        "peak_alloc_mb_by_rank": {"0": 100, "1": 90}})");
    const PublishedMeasurement measured = read(json::array({row})).at(0).measured;
    EXPECT_EQ(measured.step_time_s, 2.25);
    EXPECT_EQ(measured.peak_memory_gib, 40.5);
    EXPECT_EQ(measured.memory_words, "allocated");
    EXPECT_EQ(measured.memory_kind, MemoryKind::allocated);
    EXPECT_EQ(measured.stage_forward_ms, (std::vector<double>{1, 2.5}));
    EXPECT_EQ(measured.stage_times_ms.at("T_comm"), 0.6);
    EXPECT_EQ(measured.peak_allocated_mb_by_rank.at("1"), 90);
    EXPECT_EQ(measured.figures, (std::map<std::string, double>{{"mfu", 0.4}, {"tflops_per_gpu", 137}}));
}

TEST(ReadRows, FindsMemoryKindsInWords) {
    const auto measured = [](const json& words, const std::string& notes, const json& reserved = nullptr) {
        json row = sample_row();
        row["notes"] = notes;
        row["measured"].update({{"peak_memory_gib", 40.5}, {"memory_kind", words}, {"peak_reserved_gib", reserved}});
        return read(json::array({row})).at(0).measured;
    };
    EXPECT_EQ(measured("nvidia-smi GB", "").memory_kind, MemoryKind::in_use);
    EXPECT_EQ(measured(nullptr, "Memory = nvidia-smi used MiB.").memory_kind, MemoryKind::in_use);
    EXPECT_EQ(measured(nullptr, "", 42.5).memory_kind, MemoryKind::allocated);
    EXPECT_EQ(measured("torch.cuda.max_memory_reserved", "").memory_kind, MemoryKind::reserved);
    EXPECT_EQ(measured("GB as stated", "logs max allocated and max reserved; which one is not stated").memory_kind,
              MemoryKind::unstated);
    EXPECT_EQ(measured(nullptr, "").memory_kind, MemoryKind::unstated);
    const PublishedMeasurement last =
        measured("torch.cuda.max_memory_allocated on the logging rank (last pipeline rank for PP4)", "");
    EXPECT_EQ(last.memory_kind, MemoryKind::allocated);
    EXPECT_TRUE(last.memory_of_last_stage);
    EXPECT_FALSE(measured("nvidia-smi GB", "").memory_of_last_stage);
}

json sweep_row() {
    return {{"file", "llama_13B.xlsx"},
            {"trial_id", 17},
            {"model", "LLaMA-13B"},
            {"seq_len", 2048},
            {"num_gpus", 32},
            {"tp", 1},
            {"pp", 2},
            {"dp", 16},
            {"micro_batch", 8},
            {"global_batch", 2048},
            {"sequence_parallel", false},
            {"kernel", "flash_attention2 + RMS kernel"},
            {"activation_checkpointing", "disabled"},
            {"result", "OOM Error"},
            {"source", "Aleph-Alpha 2311.05610 sweep (A100-80GB, bf16)"}};
}

TEST(ReadRows, ReadsRunsThatRanOutOfMemory) {
    const PublishedRow row = read(json::array({sweep_row()})).at(0);
    EXPECT_EQ(row.refused, "");
    EXPECT_TRUE(row.ran_out);
    EXPECT_EQ(row.run.id, "out-of-memory-1");
    EXPECT_EQ(row.run.model.layers, 40);
    EXPECT_EQ(row.run.flash_attention, true);
    EXPECT_FALSE(row.measured.step_time_s.has_value());
    const PlanOfRun plan = plan_of(row.run);
    ASSERT_TRUE(plan.plan.has_value()) << plan.reason;
    EXPECT_EQ(plan.plan->implementation.name, "aa-scaling");
    EXPECT_TRUE(plan.plan->implementation.kernels.fused_norm);
    const std::string dimensions = "dimensions: of LLaMA-13B (arXiv 2302.13971)";
    EXPECT_NE(std::find(plan.assumptions.begin(), plan.assumptions.end(), dimensions), plan.assumptions.end());

    json logged{{"source", "bigscience chronicles-prequel.md line 917"},
                {"gpu", "A100-80GB"},
                {"size", "184B"},
                {"hidden", 12288},
                {"layers", 100},
                {"heads", 64},
                {"tp", 4},
                {"pp", 6},
                {"dp", 16},
                {"num_gpus", 384},
                {"micro_batch", 2},
                {"global_batch", 2048},
                {"seq_len", 2048},
                {"vocab", 250000},
                {"zero_stage", 1},
                {"recompute", "full"},
                {"precision", "bf16 optimizer, fp32 grad accumulation"},
                {"result", "OOM"}};
    const PlanOfRun big = plan_of(read(json::array({logged})).at(0).run);
    ASSERT_TRUE(big.plan.has_value()) << big.reason;
    EXPECT_EQ(big.plan->implementation.name, "bigscience-megatron-deepspeed");
    EXPECT_EQ(big.plan->parallelism.data_parallel, program::DataParallel::zero1);
}

/// A complete row may also state that it ran out of memory.
TEST(ReadRows, ReadsCompleteRowsThatRanOutOfMemory) {
    json row = sample_row();
    row["result"] = "OOM";
    row.erase("measured");
    const PublishedRow read_back = read(json::array({row})).at(0);
    EXPECT_EQ(read_back.refused, "");
    EXPECT_TRUE(read_back.ran_out);
    EXPECT_EQ(read_back.run.id, "made-up-1");
    EXPECT_TRUE(read_back.run.inferred.empty());
}

TEST(ReadRows, RefusalsOfRunsOutOfMemoryNameTheKey) {
    const auto refusal = [](const char* key, const json& value) {
        json row = sweep_row();
        row[key] = value;
        return read(json::array({row})).at(0).refused;
    };
    EXPECT_NE(refusal("model", "LLaMA-14B").find("LLaMA-13B"), std::string::npos);
    EXPECT_NE(refusal("source", "somebody").find("source"), std::string::npos);
    EXPECT_NE(refusal("tp", -1).find("tp"), std::string::npos);
    EXPECT_NE(refusal("activation_checkpointing", "some").find("every_layer"), std::string::npos);
}

TEST(ReadRows, IgnoresUnknownKeys) {
    json row = sample_row();
    row["remark"] = {1, 2};
    row["model"]["colour"] = "blue";
    EXPECT_EQ(read(json::array({row})).at(0).refused, "");
}

/// A row with one invalid value, and the words that its refusal must contain.
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
    EXPECT_EQ(rows[0].refused, "");  // the other row is read
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

TEST(ReadRows, RefusesFilesThatAreNotAListOfRows) {
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
    EXPECT_THROW((void)read_published_rows({std::string("/there/is/none.json")}), InputError);
}

}  // namespace
}  // namespace orrery::published
