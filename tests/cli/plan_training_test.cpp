// What `orrery plan` takes as given about the training: the optimizer's moments and clipping, and the parts of the
// model's file that are left out.
#include <gtest/gtest.h>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

CommandResult plan_gpt2(const Workplace& here, const std::vector<std::string>& more) {
    std::vector<std::string> words{"plan",           "--model", "gpt2",  "--cluster", "dgx-h100", "--gpus", "16",
                                   "--global-batch", "32",      "--seq", "1024",      "--top",    "2"};
    words.insert(words.end(), more.begin(), more.end());
    return here.run(words);
}

json best_gpt2(const Workplace& here, std::vector<std::string> more) {
    more.emplace_back("--json");
    const CommandResult done = plan_gpt2(here, more);
    expect_done(done);
    return json::parse(done.out).at("plans").at(0);
}

TEST(Moments, InBf16SaveMemoryWhereTheImplementationHasThem) {
    const Workplace here;
    // All states on every rank; Megatron-Core has bf16 moments only with sharded states.
    const std::vector<std::string> whole{"--tp",  "1", "--pp", "1", "--data-parallel", "ddp", "--implementation",
                                         "orrery"};
    std::vector<std::string> narrow = whole;
    narrow.insert(narrow.end(), {"--moments", "bf16"});
    const json before = best_gpt2(here, whole), after = best_gpt2(here, narrow);
    EXPECT_EQ(before.at("plan").at("training").at("precision").at("moments"), "fp32");
    EXPECT_EQ(after.at("plan").at("training").at("precision").at("moments"), "bf16");
    EXPECT_EQ(after.at("plan").at("origins").at("/training/precision/moments"), "flag");
    // 4 bytes for each of GPT-2's 124.4 M parameters, whose vocabulary is padded.
    const double saved = before.at("peak_memory_gib").get<double>() - after.at("peak_memory_gib").get<double>();
    EXPECT_NEAR(saved * (1 << 30), 4 * 124.5e6, 4 * 0.3e6);
    EXPECT_LT(after.at("step_time_s").get<double>(), before.at("step_time_s").get<double>());

    const CommandResult both = plan_gpt2(here, {"--moments", "bf16"});
    expect_done(both);
    EXPECT_NE(both.out.find("without torch-fsdp2: "), std::string::npos) << both.out;
    EXPECT_NE(both.out.find("/training/precision/moments: got \"bf16\"; allowed: \"fp32\""), std::string::npos)
        << both.out;
    EXPECT_EQ(both.out.find("  ddp  "), std::string::npos) << both.out;
    expect_refused(plan_gpt2(here, {"--moments", "bf16", "--implementation", "megatron-core", "--data-parallel", "ddp",
                                    "--dp", "16"}),
                   2, {"/training/precision/moments", "no other unless states are sharded"});
    expect_refused(plan_gpt2(here, {"--moments", "fp16"}), 2, {"--moments"});
}

TEST(Moments, InBf16AreTrained) {
    const Workplace here;
    expect_done(here.run({"plan", "--model", "tiny-gpt", "--cluster", "local", "--ranks", "1", "--global-batch", "4",
                          "--seq", "32", "--moments", "bf16", "--output", "narrow.plan.json"}));
    expect_done(here.run({"run", "narrow.plan.json", "--steps", "3", "--warm-up", "0", "--quiet", "--record", "r"}));
    const auto losses = json::parse(here.read("r")).at("losses").get<std::vector<double>>();
    ASSERT_EQ(losses.size(), 3U);
    EXPECT_LT(losses.back(), losses.front());
}

/// zb-h2's stages are shifted against each other, so a norm that all of them wait for costs a bubble.
TEST(Clipping, EndsAStepUnlessItIsValidatedAfterwards) {
    const Workplace here;
    const auto step = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words{"plan",
                                       "--model",
                                       "llama3-70b",
                                       "--cluster",
                                       "dgx-h100",
                                       "--gpus",
                                       "64",
                                       "--dp",
                                       "1",
                                       "--tp",
                                       "8",
                                       "--pp",
                                       "8",
                                       "--cp",
                                       "1",
                                       "--micro-batch",
                                       "1",
                                       "--global-batch",
                                       "24",
                                       "--seq",
                                       "2048",
                                       "--schedule",
                                       "zb-h2",
                                       "--recompute",
                                       "none",
                                       "--stage-layout",
                                       "Et*9|(t*10|)*5t*11|t*10L",
                                       "--implementation",
                                       "orrery",
                                       "--json"};
        words.insert(words.end(), more.begin(), more.end());
        const CommandResult done = here.run(words);
        expect_done(done);
        const json document = json::parse(done.out);
        for (const json& one : document.at("plans")) {
            const json& plan = one.at("plan");
            EXPECT_EQ(plan.at("training").at("optimizer").at("post_validation"), more.size() == 3);
            if (plan.at("parallelism").at("sequence_parallel") == true) return one.at("step_time_s").get<double>();
        }
        ADD_FAILURE() << "no plan with sequence parallelism";
        return 0.0;
    };
    const double plain = step({});
    const double clipped = step({"--clip-norm", "1"});
    const double validated = step({"--clip-norm", "1", "--post-validation"});
    EXPECT_GT(clipped, 1.02 * plain);
    EXPECT_NEAR(validated / plain, 1, 5e-3);

    expect_refused(plan_gpt2(here, {"--post-validation"}), 2, {"--post-validation", "--clip-norm"});
    expect_refused(plan_gpt2(here, {"--clip-norm", "-1"}), 2, {"--clip-norm"});
    expect_refused(plan_gpt2(here, {"--clip-norm", "1", "--post-validation", "--implementation", "megatron-core"}), 2,
                   {"/training/optimizer/post_validation: got true; allowed: false", "megatron-core"});
}

TEST(LeftOut, LayersAreSaidWithTheirSizeAndRefusedWhenStrict) {
    const Workplace here;
    json config = json::parse(R"({"model_type": "deepseek_v3", "hidden_size": 64, "intermediate_size": 128,
        "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 512,
        "max_position_embeddings": 1024, "hidden_act": "silu", "rms_norm_eps": 1e-6, "q_lora_rank": 24,
        "kv_lora_rank": 12, "qk_nope_head_dim": 16, "qk_rope_head_dim": 8, "v_head_dim": 16, "n_routed_experts": 8,
        "num_experts_per_tok": 2, "moe_intermediate_size": 32, "n_shared_experts": 1, "first_k_dense_replace": 1,
        "moe_layer_freq": 1, "n_group": 1, "topk_group": 1, "scoring_func": "sigmoid", "norm_topk_prob": true,
        "routed_scaling_factor": 1.0, "topk_method": "noaux_tc", "num_nextn_predict_layers": 2})");
    here.write("config.json", config);
    const std::vector<std::string> words{
        "plan", "--model", "config.json", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "8", "--seq",
        "128",  "--top",   "1",           "--tp",      "1",        "--pp",   "1", "--ep",           "1"};
    const auto with = [&](const std::vector<std::string>& more) {
        std::vector<std::string> all = words;
        all.insert(all.end(), more.begin(), more.end());
        return here.run(all);
    };
    expect_refused(with({}), 2, {"num_nextn_predict_layers", "--text-only"});
    const CommandResult text = with({"--text-only"});
    expect_done(text);
    EXPECT_NE(text.out.find("left out: num_nextn_predict_layers: 2 ("), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("left out with these layers: "), std::string::npos) << text.out;
    EXPECT_NE(text.out.find(" of its FLOPs at 128 tokens a sequence"), std::string::npos) << text.out;
    const CommandResult machine = with({"--text-only", "--json"});
    expect_done(machine);
    const json document = json::parse(machine.out);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(machine.out), "");
    const json& left_out = document.at("left_out_of_model");
    EXPECT_EQ(left_out.at("keys").size(), 1U);
    // Two of four blocks, two projections and two heads more, of a model with a large vocabulary.
    EXPECT_GT(left_out.at("parameter_share").get<double>(), 0.3);
    EXPECT_GT(left_out.at("flops_share").get<double>(), 0.5);
    expect_refused(with({"--text-only", "--strict"}), 2,
                   {"config.json: --strict", "num_nextn_predict_layers: 2", "nothing is left out"});
    // Without such layers nothing is said.
    config.erase("num_nextn_predict_layers");
    here.write("config.json", config);
    const CommandResult whole = with({"--json"});
    expect_done(whole);
    EXPECT_FALSE(json::parse(whole.out).contains("left_out_of_model"));
}

}  // namespace
}  // namespace orrery::test
