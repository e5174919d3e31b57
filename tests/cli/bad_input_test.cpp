// Wrong input: one line that names the file, the key, the value and what is allowed; exit code 2; nothing written.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <functional>

#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

using nlohmann::json;

struct BadPlan {
    const char* name;
    std::function<void(json&)> corrupt;
    std::vector<std::string> words;  // expected in the message
    friend std::ostream& operator<<(std::ostream& out, const BadPlan& one) { return out << one.name; }
};

class BadPlanTest : public testing::TestWithParam<BadPlan> {};

TEST_P(BadPlanTest, IsRefused) {
    const Workplace here;
    json plan = small_plan(2);
    GetParam().corrupt(plan);
    here.write("bad.plan.json", plan);
    const std::vector<std::string> before = here.names();
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"simulate", "bad.plan.json", "--record", "r.json", "--trace", "t.json"},
          {"run", "bad.plan.json", "--steps", "1", "--record", "r.json"},
          {"validate", "bad.plan.json"}}) {
        SCOPED_TRACE(command.front());
        expect_refused(here.run(command), 2, GetParam().words);
        EXPECT_EQ(here.names(), before);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Plans, BadPlanTest,
    testing::Values(
        BadPlan{"unknown_key",
                [](json& plan) { plan["parallelism"]["tpp"] = 3; },
                {"bad.plan.json: /parallelism/tpp: unknown key, got 3", "did you mean",
                 "allowed keys: chunks, context_parallel, cp, data_parallel, dp"}},
        BadPlan{"unknown_key_at_the_top",
                [](json& plan) { plan["trainning"] = 1; },
                {"bad.plan.json: /trainning: unknown key", "did you mean \"training\"?"}},
        BadPlan{"missing_key",
                [](json& plan) { plan["training"].erase("sequence_length"); },
                {"bad.plan.json: /training/sequence_length: the key is missing", "allowed: an integer"}},
        BadPlan{"string_for_integer",
                [](json& plan) { plan["training"]["sequence_length"] = "32"; },
                {"bad.plan.json: /training/sequence_length: got \"32\"; allowed: an integer"}},
        BadPlan{"fraction_for_integer",
                [](json& plan) { plan["parallelism"]["dp"] = 1.5; },
                {"bad.plan.json: /parallelism/dp: got 1.5; allowed: an integer"}},
        BadPlan{"true_for_integer",
                [](json& plan) { plan["parallelism"]["dp"] = true; },
                {"bad.plan.json: /parallelism/dp: got true; allowed: an integer"}},
        BadPlan{"null", [](json& plan) { plan["model"] = nullptr; }, {"bad.plan.json: /model: got null; allowed:"}},
        BadPlan{"list_for_object",
                [](json& plan) { plan["training"] = json::array(); },
                {"bad.plan.json: /training: got []; allowed: an object"}},
        BadPlan{"negative",
                [](json& plan) { plan["training"]["global_batch_size"] = -8; },
                {"bad.plan.json: /training/global_batch_size: got -8; allowed: an integer from 1"}},
        BadPlan{"negative_rate",
                [](json& plan) {
                    plan["training"]["optimizer"] = {{"learning_rate", -1e-3}};
                },
                {"bad.plan.json: /training/optimizer/learning_rate: got -0.001; allowed: a number of at least 0"}},
        BadPlan{"zero_degree",
                [](json& plan) { plan["parallelism"]["tp"] = 0; },
                {"bad.plan.json: /parallelism/tp: got 0; allowed: an integer from 1"}},
        BadPlan{"zero_layers",
                [](json& plan) {
                    plan["model"] = json::parse(orrery({"models", "tiny-gpt", "--json"}).out);
                    plan["model"]["layers"] = 0;
                },
                {"bad.plan.json: /model/layers: got 0; allowed: an integer from 1"}},
        BadPlan{"heads_by_tp",
                [](json& plan) { plan["parallelism"]["tp"] = 3; },
                {"bad.plan.json: /parallelism/tp: got 3; allowed: a divisor of the model's heads, 4"}},
        BadPlan{"more_ranks_than_devices",
                [](json& plan) {
                    plan["cluster"] = json::parse(orrery({"clusters", "dgx-h100"}).out);
                    plan["parallelism"] = {{"dp", 8}, {"tp", 2}};
                },
                {"bad.plan.json: /parallelism: got dp 8 * tp 2 * pp 1 = 16; allowed: at most 8"}},
        BadPlan{"part_of_a_node",
                [](json& plan) {
                    plan["parallelism"] = {{"dp", 3}, {"tp", 4}};
                },
                {"devices: got 12; allowed: 1 to 8, or a multiple of the node's 8"}},
        BadPlan{"batch",
                [](json& plan) { plan["training"]["global_batch_size"] = 7; },
                {"bad.plan.json: /training/global_batch_size: got 7; allowed: a multiple of 2 = dp 2"}},
        BadPlan{"stages",
                [](json& plan) {
                    plan["parallelism"] = {{"pp", 2}, {"stage_layers", {3, 2}}};
                },
                {"bad.plan.json: /parallelism/stage_layers", "allowed:", "4, the model's layers"}},
        BadPlan{"schedule",
                [](json& plan) { plan["parallelism"]["schedule"] = "zero_bubble"; },
                {"bad.plan.json: /parallelism/schedule: got \"zero_bubble\"; allowed: \"naive\", \"gpipe\", \"1f1b\""}},
        BadPlan{"sequence_longer_than_positions",
                [](json& plan) { plan["training"]["sequence_length"] = 65; },
                {"bad.plan.json: /training/sequence_length: got 65; allowed: at most 64"}},
        BadPlan{"model",
                [](json& plan) { plan["model"] = "tiny-gtp"; },
                {"\"tiny-gtp\"", "did you mean \"tiny-gpt\"?", "allowed:", "llama3-70b"}},
        BadPlan{"cluster",
                [](json& plan) { plan["cluster"] = "dgx-h10"; },
                {"'dgx-h10'", "did you mean 'dgx-h100'?",
                 "allowed: aws-g5, aws-p4d, aws-p5, aws-p5en, aws-p6-b200, dgx-a100, "}},
        BadPlan{"implementation",
                [](json& plan) { plan["implementation"] = "orery"; },
                {"\"orery\"", "did you mean \"orrery\"?", "allowed: aa-scaling, "}},
        BadPlan{"schema",
                [](json& plan) { plan["schema"] = "orrery.plan/2"; },
                {"bad.plan.json: /schema: got \"orrery.plan/2\"; allowed: \"orrery.plan/1\""}}),
    [](const auto& one) { return std::string(one.param.name); });

struct BadFile {
    const char* name;
    std::string content;
    std::vector<std::string> words;
    friend std::ostream& operator<<(std::ostream& out, const BadFile& one) { return out << one.name; }
};

class BadFileTest : public testing::TestWithParam<BadFile> {};

TEST_P(BadFileTest, IsRefused) {
    const Workplace here;
    here.write("bad.json", GetParam().content);
    const std::vector<std::string> before = here.names();
    const std::vector<std::string> size{"--gpus", "8", "--global-batch", "8", "--seq", "32", "--output", "o.json"};
    std::vector<std::string> as_model{"plan", "--model", "bad.json", "--cluster", "dgx-h100"};
    std::vector<std::string> as_cluster{"plan", "--model", "tiny-gpt", "--cluster", "./bad.json"};
    as_model.insert(as_model.end(), size.begin(), size.end());
    as_cluster.insert(as_cluster.end(), size.begin(), size.end());
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"simulate", "bad.json", "--record", "r.json"}, as_model, as_cluster}) {
        SCOPED_TRACE(command.front());
        expect_refused(here.run(command), 2, GetParam().words);
        EXPECT_EQ(here.names(), before);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Files, BadFileTest,
    testing::Values(
        BadFile{"empty", "", {"bad.json: the file is empty"}},
        BadFile{"truncated", small_plan().dump().substr(0, 70), {"bad.json:1:", "not valid JSON"}},
        BadFile{"not_a_number", R"({"schema":"orrery.plan/1","name":NaN})", {"bad.json:1:", "not valid JSON"}},
        BadFile{"infinite", R"({"schema":"orrery.plan/1","name":1e400})", {"bad.json:1:", "1e400"}},
        BadFile{"key_twice", R"({"schema":"orrery.plan/1","schema":"orrery.plan/1"})", {"bad.json: /schema", "twice"}},
        BadFile{"no_object", "[1, 2]", {"bad.json", "object"}},
        BadFile{"bytes",
                std::string("\x7f"
                            "ELF\0\1\2",
                            7),
                {"bad.json:1:", "not valid JSON"}},
        BadFile{"deep", std::string(100'000, '['), {"bad.json"}}),
    [](const auto& one) { return std::string(one.param.name); });

TEST(BadInput, UnreadablePlanFile) {
    const Workplace here;
    expect_refused(here.run({"simulate", "absent.json"}), 2, {"absent.json: cannot be read: No such file"});
    expect_refused(here.run({"simulate", "."}), 2, {".: cannot be read: it is a folder; allowed: a file"});
    if (geteuid() == 0) return;  // permissions do not apply to root
    here.write("locked.json", small_plan());
    chmod(here.path("locked.json").c_str(), 0);
    expect_refused(here.run({"simulate", "locked.json"}), 2, {"locked.json: cannot be read: Permission denied"});
}

TEST(BadInput, HuggingFaceConfig) {
    const json good = json::parse(R"({"model_type": "gpt2", "n_layer": 4, "n_embd": 64, "n_head": 4, "n_positions": 64,
        "vocab_size": 128, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5})");
    struct Case {
        json key_value;
        std::vector<std::string> words;
    };
    const Workplace here;
    for (const Case& one :
         {Case{{{"n_layer", 0}}, {"config.json: /n_layer: got 0; allowed: an integer from 1"}},
          Case{{{"n_head", 7}}, {"config.json: /n_head: got 7; allowed: a divisor of n_embd, 64"}},
          Case{{{"n_head", "4"}}, {"config.json: /n_head: got \"4\"; allowed: an integer"}},
          Case{{{"n_embd", -64}}, {"config.json: /n_embd: got -64; allowed: an integer from 1"}},
          Case{{{"model_type", "mamba"}}, {"config.json: /model_type: got \"mamba\"", "gpt2", "none is near"}}}) {
        json config = good;
        config.update(one.key_value);
        here.write("config.json", config);
        expect_refused(here.run({"plan", "--model", "config.json", "--cluster", "dgx-h100", "--gpus", "1",
                                 "--global-batch", "1", "--seq", "32", "--output", "o.json"}),
                       2, one.words);
        EXPECT_FALSE(here.has("o.json"));
    }
    json config = good;
    config.erase("n_embd");
    here.write("config.json", config);
    expect_refused(here.run({"models", "config.json"}), 2, {"config.json: /n_embd: the key is missing; allowed:"});
}

std::vector<std::string> plan_command(const std::vector<std::string>& changes) {
    std::vector<std::string> words{"plan"};
    const auto add = [&](const std::string& flag, const std::string& value) {
        for (std::size_t i = 0; i < changes.size(); i += 2) {
            if (changes[i] == flag) return;
        }
        words.insert(words.end(), {flag, value});
    };
    add("--model", "tiny-gpt");
    add("--cluster", "dgx-h100");
    add("--gpus", "8");
    add("--global-batch", "8");
    add("--seq", "32");
    add("--output", "o.json");
    words.insert(words.end(), changes.begin(), changes.end());
    return words;
}

TEST(BadInput, FlagsOfPlan) {
    struct Case {
        std::vector<std::string> changes;
        std::vector<std::string> words;
    };
    const Workplace here;
    const std::vector<std::string> before = here.names();
    for (const Case& one : {
             Case{{"--tp", "3"}, {"--tp: got 3; allowed: a divisor of the model's heads, 4"}},
             Case{{"--pp", "8"}, {"--pp: got 8; allowed: at most 6"}},
             Case{{"--gpus", "3", "--tp", "2"}, {"--gpus: got 3; allowed: a multiple of 2"}},
             Case{{"--dp", "2", "--tp", "2", "--pp", "4"}, {"--gpus: got 8; allowed: 16"}},
             Case{{"--global-batch", "7", "--dp", "8"}, {"--global-batch: got 7; allowed: a multiple of 8"}},
             Case{{"--micro-batch", "3"}, {"--global-batch: got 8; allowed: a multiple of 3"}},
             Case{{"--gpus", "12"}, {"devices: got 12; allowed: 1 to 8, or a multiple of the node's 8"}},
             Case{{"--gpus", "0"}, {"--gpus", "0", "1 to "}},
             Case{{"--gpus", "eight"}, {"--gpus", "eight"}},
             Case{{"--gpus", "99999999999999999999"}, {"--gpus", "99999999999999999999"}},
             Case{{"--seq", "100"}, {"100", "64"}},
             Case{{"--seq", "1.5"}, {"--seq", "1.5"}},
             Case{{"--seed", "-1"}, {"--seed", "-1"}},
             Case{{"--prove-top", "5", "--top", "2"}, {"--prove-top: got 5; allowed: at most --top, 2"}},
             Case{{"--prove-top", "0"}, {"--prove-top", "0"}},
             Case{{"--precision", "fp4"}, {"--precision", "fp4", "fp32", "tf32", "bf16", "fp16", "fp8"}},
             Case{{"--schedule", "zb"}, {"--schedule", "zb", "gpipe"}},
             Case{{"--model", "lama3-8b"}, {"\"lama3-8b\"", "did you mean \"llama3-8b\"?"}},
             Case{{"--cluster", "dgx-h10"}, {"'dgx-h10'", "did you mean 'dgx-h100'?"}},
             Case{{"--implementation", "megatron"},
                  {"\"megatron\"", "allowed: aa-scaling, ", "megatron-core", "orrery"}},
             Case{{"--data", "text.txt"}, {"text.txt", "vocab", "256"}},
             Case{{"--modl", "gpt2"}, {"--modl", "did you mean '--model'?"}},
         }) {
        SCOPED_TRACE(testing::PrintToString(one.changes));
        expect_refused(here.run(plan_command(one.changes)), 2, one.words);
        EXPECT_EQ(here.names(), before);
    }
}

TEST(BadInput, UnknownArguments) {
    const Workplace here;
    here.write("small.plan.json", small_plan());
    expect_refused(here.run({}), 2, {"subcommand", "orrery --help"});
    expect_refused(here.run({"simulat", "small.plan.json"}), 2, {"simulat", "did you mean 'simulate'?", "validate"});
    expect_refused(here.run({"--jsn"}), 2, {"--jsn", "allowed:"});
    expect_refused(here.run({"simulate"}), 2, {"plan is required"});
    expect_refused(here.run({"simulate", "small.plan.json", "more.json"}), 2, {"more.json"});
    expect_refused(here.run({"simulate", "small.plan.json", "--traces", "x"}), 2,
                   {"--traces", "did you mean '--trace'?"});
    expect_refused(here.run({"run", "small.plan.json", "--steps", "0"}), 2, {"--steps", "0", "1 to "});
    expect_refused(here.run({"run", "small.plan.json", "--warm-up", "-1"}), 2, {"--warm-up", "-1", "0 to "});
    expect_refused(here.run({"models", "lama3-8b"}), 2, {"did you mean \"llama3-8b\"?"});
    expect_refused(here.run({"clusters", "dgx-h10"}), 2, {"did you mean 'dgx-h100'?"});
}

TEST(BadInput, NoProfileOfThisMachine) {
    const Workplace here;
    const CommandOptions without{.environment = {"ORRERY_PROFILE=" + here.path("absent.json")}};
    expect_refused(here.run(plan_command({"--cluster", "local"}), without), 2,
                   {"cluster local", "absent.json does not exist", "orrery calibrate"});
    json plan = small_plan();
    plan["cluster"] = "local";
    here.write("local.plan.json", plan);
    expect_refused(here.run({"simulate", "local.plan.json"}, without), 2, {"absent.json does not exist"});
    expect_refused(here.run({"clusters", "local"}, without), 2, {"absent.json does not exist"});
    // The list of clusters works without a profile.
    const CommandResult list = here.run({"clusters"}, without);
    expect_done(list);
    EXPECT_NE(list.out.find("dgx-h100"), std::string::npos);
    EXPECT_NE(list.out.find("once `orrery calibrate` has measured it"), std::string::npos);
    expect_done(here.run({"clusters", "--json"}, without));
}

TEST(BadInput, NothingFits) {
    const Workplace here;
    expect_refused(here.run(plan_command({"--model", "llama3-405b", "--seq", "8192"})), 3,
                   {"no feasible plan: llama3-405b", "78.6 GiB", "the nearest, ", "GiB on stage"});
    EXPECT_FALSE(here.has("o.json"));
}

TEST(BadInput, OutputThatCannotBeWritten) {
    const Workplace here;
    here.write("small.plan.json", small_plan());
    for (const char* flag : {"--record", "--trace", "--timeline"}) {
        expect_refused(here.run({"simulate", "small.plan.json", flag, "absent/x"}), 2,
                       {"absent/x: " + std::string(flag) + ": got a file in a folder that does not exist; allowed:"});
    }
    expect_refused(here.run({"plan", "--model", "tiny-gpt", "--cluster", "dgx-h100", "--gpus", "2", "--global-batch",
                             "8", "--seq", "32", "--output", "."}),
                   2, {".: --output: got a folder; allowed: a file"});
}

}  // namespace
}  // namespace orrery::test
