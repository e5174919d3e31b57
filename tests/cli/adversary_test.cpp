// Adverse conditions: outputs over inputs, empty or malformed values, broken streams, odd files, extreme sizes.
#include <gtest/gtest.h>

#include <set>

#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

using nlohmann::json;

/// Runs orrery in the workplace through a shell, which can redirect or close streams.
CommandResult shell(const Workplace& here, const std::string& arguments) {
    return run_command({"sh", "-c", orrery_path() + " " + arguments}, {.working_folder = here.path("")});
}

TEST(Outputs, MustNotBeInputsOrOtherOutputs) {
    const Workplace here;
    here.write("small.plan.json", small_plan());
    const std::string before = here.read("small.plan.json");
    for (const char* flag : {"--record", "--trace", "--timeline"}) {
        expect_refused(here.run({"simulate", "small.plan.json", flag, "small.plan.json"}), 2,
                       {flag, "small.plan.json"});
        expect_refused(here.run({"simulate", "small.plan.json", flag, "./small.plan.json"}), 2, {flag});
        EXPECT_EQ(here.read("small.plan.json"), before);
    }
    expect_refused(here.run({"simulate", "small.plan.json", "--record", "both", "--trace", "both"}), 2,
                   {"--trace", "both"});
    expect_refused(here.run({"run", "small.plan.json", "--on-cpu", "--record", "small.plan.json"}), 2, {"--record"});
    EXPECT_EQ(here.read("small.plan.json"), before);
    EXPECT_FALSE(here.has("both"));
}

/// No user, not even root, can create a file in /proc.
TEST(Outputs, AreCheckedBeforeAnythingStarts) {
    const Workplace here;
    here.write("small.plan.json", small_plan());
    const CommandResult result = here.run({"run", "small.plan.json", "--on-cpu", "--record", "/proc/record.json"});
    expect_refused(result, 2, {"/proc/record.json", "--record"});
}

TEST(Values, EmptyValuesAreRefused) {
    const Workplace here;
    here.write("small.plan.json", small_plan());
    expect_refused(here.run({"run", "small.plan.json", "--on-cpu", "--checkpoint", "", "--resume", ""}), 2,
                   {"got ''; allowed: a value"});
    expect_refused(here.run({"simulate", "small.plan.json", "--record", ""}), 2, {"--record: got ''"});
    expect_refused(here.run({"simulate", ""}), 2, {"got ''; allowed: a value"});
}

TEST(Values, MalformedNumbersAreRefused) {
    const Workplace here;
    here.write("small.plan.json", small_plan());
    expect_done(here.run({"simulate", "small.plan.json", "--record", "record.json"}));
    const std::vector<std::string> plan{"plan", "--model",        "tiny-gpt", "--cluster", "dgx-h100", "--gpus",
                                        "8",    "--global-batch", "8",        "--seq",     "32",       "--seed"};
    for (const char* seed : {"9223372036854775808", "010", "0x10", "1e3"}) {
        std::vector<std::string> command = plan;
        command.emplace_back(seed);
        expect_refused(here.run(command), 2, {"--seed", seed});
    }
    for (const char* stretch : {"nan", "inf", "1e400", "-1", "0"}) {
        expect_refused(here.run({"simulate", "small.plan.json", "--durations", "record.json", "--stretch", stretch}), 2,
                       {"--stretch", stretch});
    }
}

TEST(Streams, ClosedOrFullStreamsAreErrors) {
    const Workplace here;
    for (const char* command : {"models 2>&- >&-", "models >/dev/full", "--help >/dev/full", "models >&-"}) {
        const CommandResult result = shell(here, command);
        EXPECT_EQ(result.signal, 0) << command;
        EXPECT_EQ(result.exit_code, 1) << command << ": " << result.err;
    }
    const CommandResult result = shell(here, "simulate absent.json 2>/dev/full");
    EXPECT_EQ(result.signal, 0);
    EXPECT_EQ(result.exit_code, 2);
}

TEST(Files, DevicesAreRefusedAndPipesAreRead) {
    const Workplace here;
    here.write("small.plan.json", small_plan());
    for (const char* device : {"/dev/zero", "/dev/random"}) {
        expect_refused(here.run({"simulate", device}), 2, {device});
        expect_refused(here.run({"models", device}), 2, {device});
    }
    expect_refused(here.run({"simulate", "."}), 2, {"."});
    EXPECT_EQ(shell(here, "simulate /dev/stdin < small.plan.json").exit_code, 0);
    const CommandResult piped =
        run_command({"sh", "-c", "cat small.plan.json | " + orrery_path() + " simulate /dev/stdin"},
                    {.working_folder = here.path("")});
    EXPECT_EQ(piped.exit_code, 0) << piped.err;
}

TEST(Files, ByteOrderMarksAndCarriageReturnsChangeNothing) {
    const Workplace here;
    const std::string plan = small_plan().dump(1);
    std::string returned = "\xEF\xBB\xBF";
    for (const char letter : plan) returned += letter == '\n' ? std::string("\r\n") : std::string(1, letter);
    here.write("plain.plan.json", plan);
    here.write("marked.plan.json", returned);
    const CommandResult plain = here.run({"simulate", "plain.plan.json", "--json"});
    const CommandResult marked = here.run({"simulate", "marked.plan.json", "--json"});
    expect_done(marked);
    EXPECT_EQ(json::parse(plain.out).at("step_time_s"), json::parse(marked.out).at("step_time_s"));
}

/// If a plan does not fit, the output begins with that, and the exit code tells scripts.
TEST(Misfits, ArePrintedFirst) {
    const Workplace here;
    json plan = small_plan(8);
    plan["model"] = "llama3-70b";
    plan["training"]["sequence_length"] = 8192;
    here.write("large.plan.json", plan);
    const CommandResult result = here.run({"simulate", "large.plan.json"});
    EXPECT_EQ(result.exit_code, 3) << result.err;
    const std::string first = result.out.substr(0, result.out.find('\n'));
    EXPECT_NE(first.find("does not fit"), std::string::npos) << first;
    EXPECT_NE(first.find("78.6 GiB"), std::string::npos) << first;
    EXPECT_NE(result.out.find("step time"), std::string::npos);
    const CommandResult ignored = here.run({"simulate", "large.plan.json", "--ignore-memory"});
    EXPECT_EQ(ignored.exit_code, 0) << ignored.err;
    EXPECT_NE(ignored.out.find("does not fit"), std::string::npos) << "the message remains";
    const CommandResult as_json = here.run({"simulate", "large.plan.json", "--json"});
    EXPECT_EQ(as_json.exit_code, 3);
    EXPECT_TRUE(json::accept(as_json.out));
}

/// A tenth less capacity is less than the stated usable memory, which must not cause an error.
TEST(Misfits, StrictTestsASmallerMemoryCapacity) {
    const Workplace here;
    json plan = small_plan();
    plan["cluster"] = json::parse(orrery({"clusters", "dgx-h100", "--json"}).out);
    plan["cluster"]["device"]["memory_capacity_gib"]["kind"] = "fallback";
    here.write("assumed.plan.json", plan);
    const CommandResult result = here.run({"simulate", "assumed.plan.json", "--strict"});
    EXPECT_EQ(result.err.find("usable_memory_gib"), std::string::npos) << result.err;
    EXPECT_NE(result.err.find("a prediction that rests on"), std::string::npos) << result.err;
}

TEST(Implementations, AreSearchedOnlyForWhatTheySupport) {
    const Workplace here;
    const auto plan = [&](const std::string& implementation) {
        return here.run({"plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch", "32",
                         "--seq", "512", "--implementation", implementation, "--json"});
    };
    expect_refused(plan("torch-dp"), 2, {"torch-dp"});  // supports one node, and this needs two
    for (const auto& [implementation, allowed] :
         {std::pair{"torch-ddp", "allowed: none, since torch-ddp has no pipelines"},
          {"megatron-core", "allowed: 1f1b, interleaved-1f1b"}}) {
        expect_refused(here.run({"plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch",
                                 "32", "--seq", "512", "--implementation", implementation, "--schedule", "zb-v"}),
                       2, {"--schedule: got zb-v", allowed});
    }
    const CommandResult replicas = plan("torch-ddp");
    const CommandResult both = plan("torch-ddp,megatron-core");
    expect_done(replicas);
    expect_done(both);
    const json of_replicas = json::parse(replicas.out), of_both = json::parse(both.out);
    ASSERT_FALSE(of_replicas.at("plans").empty());
    for (const json& one : of_replicas.at("plans")) {
        EXPECT_EQ(one.at("plan").at("parallelism").at("dp"), 16);
        EXPECT_EQ(one.at("plan").at("parallelism").at("pp"), 1) << "torch-ddp has no pipelines";
    }
    std::set<std::string> stacks;
    for (const json& one : of_both.at("plans")) {
        stacks.insert(one.at("plan").at("implementation").at("name").get<std::string>());
    }
    EXPECT_EQ(stacks, (std::set<std::string>{"megatron-core", "torch-ddp"}));
}

TEST(StageLayouts, AreTakenAndPrintedAsMegatronWritesThem) {
    const Workplace here;
    const auto plan = [&](const std::string& layout, const std::string& format) {
        std::vector<std::string> words{"plan",
                                       "--model",
                                       "gpt2",
                                       "--cluster",
                                       "dgx-h100",
                                       "--gpus",
                                       "4",
                                       "--pp",
                                       "4",
                                       "--global-batch",
                                       "32",
                                       "--seq",
                                       "512",
                                       "--top",
                                       "1",
                                       "--implementation",
                                       "megatron-core",
                                       "--schedule",
                                       "1f1b",
                                       "--stage-layout"};
        words.push_back(layout);
        if (!format.empty()) words.push_back(format);
        return here.run(words);
    };
    const CommandResult done = plan("E|t*5|(t)*5|t*2L", "--json");
    expect_done(done);
    EXPECT_EQ(json::parse(done.out).at("plans").at(0).at("plan").at("parallelism").at("stage_layers"),
              json({0, 5, 5, 2}));
    const CommandResult text = plan("Ett|t*4,|t*4|ttL", "");
    expect_done(text);
    EXPECT_NE(text.out.find("Et*2|(t*4|)*2t*2L"), std::string::npos) << text.out;
    expect_refused(plan("Et*4|t*4|m|t*4L", ""), 2, {"--stage-layout: got Et*4|t*4|m|t*4L", "not 'm'"});
    expect_refused(plan("Et*4|t*4||t*4L", ""), 2, {"/parallelism/stage_layers/2: got 0"});
    expect_refused(plan("Et*4|t*4|t*4|t*4L", ""), 2, {"a sum of 16", "12, the model's layers"});
    expect_refused(plan("Et*4|t*8L", ""), 2, {"no plan divides", "stage layout of 2 stages"});
    expect_refused(
        here.run({"plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "2", "--pp", "2", "--global-batch",
                  "32", "--seq", "512", "--implementation", "megatron-lm-2021", "--stage-layout", "Et*5|t*7L"}),
        2, {"/parallelism/stage_layers: got Et*5|t*7L", "\"megatron-lm-2021\" cannot be given"});
    expect_refused(here.run({"plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "16", "--pp", "15",
                             "--global-batch", "32", "--seq", "512"}),
                   2, {"--pp: got 15", "at most 14"});
}

TEST(Implementations, ThatSupportAllNamesTakeEachOfThem) {
    const Workplace here;
    const CommandResult done =
        here.run({"plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch", "32", "--seq",
                  "512", "--implementation", "orrery", "--pp", "2", "--schedule", "interleaved-1f1b", "--json"});
    expect_done(done);
    const json ranked = json::parse(done.out);
    ASSERT_FALSE(ranked.at("plans").empty());
    for (const json& one : ranked.at("plans")) {
        EXPECT_EQ(one.at("plan").at("parallelism").at("schedule"), "interleaved-1f1b");
        EXPECT_EQ(one.at("plan").at("training").at("precision").at("activation"), "bf16") << "the default on GPUs";
    }
}

TEST(PlanFlags, FixWhatTheSearchWouldChoose) {
    const Workplace here;
    const auto plan = [&](std::vector<std::string> flags) {
        std::vector<std::string> words{
            "plan",           "--model", "gpt2",  "--cluster", "dgx-h100",         "--gpus", "16",    "--tp", "2",
            "--global-batch", "32",      "--seq", "512",       "--implementation", "orrery", "--top", "2"};
        words.insert(words.end(), flags.begin(), flags.end());
        return here.run(words);
    };
    const CommandResult done =
        plan({"--pp", "2", "--chunks", "3", "--dp-shard", "4", "--reshard-after-forward", "false", "--order",
              "tp,cp,ep,pp,dp", "--recompute-parts", "norm,mlp_in", "--json"});
    expect_done(done);
    const json ranked = json::parse(done.out);
    ASSERT_FALSE(ranked.at("plans").empty());
    for (const json& one : ranked.at("plans")) {
        const json& parallelism = one.at("plan").at("parallelism");
        EXPECT_EQ(parallelism.at("chunks"), 3);
        EXPECT_EQ(parallelism.at("data_parallel"), "zero3");
        EXPECT_EQ(parallelism.at("dp_shard").get<int>() % 4, 0);  // 0: all four replicas
        EXPECT_EQ(parallelism.at("reshard_after_forward"), false);
        EXPECT_EQ(parallelism.at("order"), json({"tp", "cp", "ep", "pp", "dp"}));
        EXPECT_EQ(one.at("plan").at("training").at("memory").at("recompute_parts"), json({"norm", "mlp_in"}));
    }
    const CommandResult table = plan({"--pp", "1", "--dp-shard", "4", "--reshard-after-forward", "false"});
    expect_done(table);
    for (const char* word : {" shards ", " gathered ", " kept "}) {
        EXPECT_NE(table.out.find(word), std::string::npos) << word << table.out;
    }
    for (const auto& [flags, words] : std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>{
             {{"--dp-shard", "8", "--data-parallel", "ddp"},
              {"--dp-shard: got 8", "--data-parallel zero1, zero2 or zero3"}},
             {{"--dp-shard", "3"}, {"no plan divides", "dp_shard 3"}},
             {{"--reshard-after-forward", "true", "--data-parallel", "ddp"},
              {"--reshard-after-forward: got true", "zero3"}},
             {{"--reshard-after-forward", "maybe"}, {"--reshard-after-forward", "true"}},
             {{"--recompute-parts", "norms"}, {"--recompute-parts", "norms"}},
             {{"--recompute-parts", "norm", "--recompute", "full"}, {"--recompute-parts: got norm", "selective"}},
             {{"--order", "pp,dp"}, {"--order", "tp,cp,ep,pp,dp"}},
             {{"--chunks", "5", "--schedule", "1f1b"}, {"no plan divides", "chunks 5"}}}) {
        expect_refused(plan(flags), 2, words);
    }
}

TEST(PlanCount, MayLeaveDevicesIdle) {
    const Workplace here;
    const auto plan = [&](std::vector<std::string> flags) {
        std::vector<std::string> words{"plan",
                                       "--model",
                                       "gpt2",
                                       "--cluster",
                                       "dgx-h100",
                                       "--global-batch",
                                       "32",
                                       "--seq",
                                       "512",
                                       "--implementation",
                                       "megatron-core",
                                       "--top",
                                       "2",
                                       "--recompute",
                                       "none",
                                       "--data-parallel",
                                       "ddp"};
        words.insert(words.end(), flags.begin(), flags.end());
        return here.run(words);
    };
    const CommandResult table = plan({"--gpus-at-most", "27", "--output", "best.plan.json"});
    expect_done(table);
    for (const char* word : {"at most 27 h100-sxm-80gb (8 a node)", " devices  spares ",
                             "rank 1: 27 devices = 16 used + 11 spare", "rank 1 is proven"}) {
        EXPECT_NE(table.out.find(word), std::string::npos) << word << table.out;
    }
    expect_done(here.run({"simulate", "best.plan.json"}));
    const CommandResult ranked = plan({"--gpus-at-most", "27", "--json"});
    expect_done(ranked);
    for (const json& one : json::parse(ranked.out).at("plans")) {
        EXPECT_EQ(one.at("devices").get<int>() + one.at("spare_devices").get<int>(), 27);
    }
    for (const auto& [flags, words] : std::vector<std::pair<std::vector<std::string>, std::vector<std::string>>>{
             {{"--gpus", "27"}, {"got 27", "multiple of the node's 8", "24 and 32", "--gpus-at-most 27"}},
             {{"--gpus", "136"}, {"no plan divides", "128 and 144", "--gpus-at-most 136"}},
             {{"--gpus-at-most", "0"}, {"--gpus-at-most"}},
             {{"--gpus-at-most", "8", "--tp", "12"}, {"--gpus-at-most: got 8", "at least 12"}},
             {{"--gpus-at-most", "8", "--gpus", "8"}, {"--gpus", "excludes"}},
             {{}, {"--gpus or --gpus-at-most is required"}}}) {
        expect_refused(plan(flags), 2, words);
    }
}

TEST(Implementations, WithoutReplicasOfTheirOwnArePlanned) {
    const Workplace here;
    const CommandResult done =
        here.run({"plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "32", "--seq",
                  "512", "--implementation", "torch-dp", "--json"});
    expect_done(done);
    const json ranked = json::parse(done.out);
    ASSERT_FALSE(ranked.at("plans").empty());
    for (const json& one : ranked.at("plans")) {
        EXPECT_EQ(one.at("plan").at("parallelism").at("data_parallel"), "dp");
    }
}

/// Each of these inputs once caused an internal error (exit code 70) or exhausted memory.
TEST(Limits, AreCheckedOnInput) {
    const Workplace here;
    const auto refused = [&](const json& plan, const std::vector<std::string>& words) {
        here.write("odd.plan.json", plan);
        expect_refused(here.run({"simulate", "odd.plan.json"}), 2, words);
    };
    json plan = small_plan();
    plan["model"] = "llama3-8b";
    plan["training"]["micro_batch_size"] = 1048576;
    plan["training"]["global_batch_size"] = 1048576;
    for (const std::int64_t sequence : {131072, 16777216}) {
        plan["training"]["sequence_length"] = sequence;
        refused(plan, {"/training/micro_batch_size: got 1048576; allowed: at most ", "134217728 together"});
    }
    plan = small_plan();
    plan["training"]["expert_load"] = {{"capacity_factor", 1e-300}};
    refused(plan, {"/training/expert_load/capacity_factor: got 1e-300; allowed: 0 or a number from 0.001 to 1000"});
    plan = small_plan();
    plan["cluster"] = json::parse(orrery({"clusters", "dgx-h100", "--json"}).out);
    plan["cluster"]["nic"]["latency_us"]["value"] = 1e9;
    refused(plan, {"/nic/latency_us/value: got 1000000000.0; allowed: a number of at least 0, at most 1e+06"});
    const CommandResult result =
        here.run({"plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "2048", "--global-batch", "1",
                  "--seq", "1048576", "--cp", "2048", "--implementation", "orrery"});
    expect_refused(result, 2, {"/parallelism/cp: got 2048; allowed: an integer from 1 to 1024"});
}

/// A million micro-batches once took minutes and 6 to 20 GiB.
TEST(Limits, LongStepsAreExtrapolatedFromShorterOnes) {
    const Workplace here;
    json plan = small_plan(1, 1, 4);
    plan["training"]["global_batch_size"] = 1 << 20;
    here.write("long.plan.json", plan);
    const CommandResult result = here.run({"simulate", "long.plan.json"});
    expect_done(result);
    EXPECT_NE(result.out.find("of 1048576 micro-batches 80 were simulated"), std::string::npos) << result.out;
    for (const char* output : {"--record", "--trace", "--timeline"}) {
        expect_refused(here.run({"simulate", "long.plan.json", output, "out"}), 2,
                       {"/training/global_batch_size: got 1048576 (1048576 micro-batches a step)", output});
    }
    expect_refused(here.run({"simulate", "long.plan.json", "--explain"}), 2, {"--explain"});
    expect_refused(here.run({"simulate", "long.plan.json", "--cluster", "dgx-h100"}), 2, {"--cluster"});
    expect_refused(here.run({"run", "long.plan.json", "--on-cpu"}), 2, {"orrery run"});
    EXPECT_FALSE(here.has("out"));
}

/// A name with a line break must not produce a second line with arbitrary text.
TEST(Messages, AreOneLineForAnyInput) {
    const Workplace here;
    expect_refused(here.run({"simulate", "no\norrery: all is well"}), 2, {"no\\norrery: all is well"});
    json plan = small_plan();
    plan["model"] = "tiny\nmodel";
    here.write("odd.plan.json", plan);
    expect_refused(here.run({"simulate", "odd.plan.json"}), 2, {"/model: got \"tiny\\nmodel\""});
    plan = small_plan();
    plan["parallelism"]["\x1b[2J"] = 1;
    here.write("odd.plan.json", plan);
    expect_refused(here.run({"simulate", "odd.plan.json"}), 2, {"\\x1b[2J: unknown key"});
    plan = small_plan();
    plan["name"] = "two\nlines";
    here.write("odd.plan.json", plan);
    expect_refused(here.run({"simulate", "odd.plan.json"}), 2,
                   {"/name: got \"two\\nlines\"; allowed: a string without control characters"});
    expect_refused(here.run({"simulate", "--no\nsuch"}), 2, {"--no\\nsuch"});
}

}  // namespace
}  // namespace orrery::test
