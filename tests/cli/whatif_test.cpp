// `orrery whatif`.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

std::string example_plan() {
    return std::string(ORRERY_SOURCE_DIR) + "/examples/llama3-8b-64-h100.plan.json";
}

CommandResult whatif(const Workplace& here, const std::string& plan, const std::vector<std::string>& flags) {
    std::vector<std::string> words{"whatif", plan};
    words.insert(words.end(), flags.begin(), flags.end());
    return here.run(words);
}

json sweep_of(const CommandResult& result) {
    expect_done(result);
    static const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    return json::parse(result.out);
}

TEST(WhatIf, PointsAreThoseOfTheEditedPlan) {
    const Workplace here;
    const json sweep = sweep_of(whatif(here, example_plan(),
                                       {"--set", "cluster.nic.bandwidth_gb_per_s_per_direction=0.5x,50", "--set",
                                        "training.micro_batch_size=1,2", "--json"}));
    EXPECT_EQ(sweep.at("base_values"), json({"50.0", "1"}));
    const json& points = sweep.at("points");
    ASSERT_EQ(points.size(), 4U);
    EXPECT_EQ(points[1].at("values"), json({"0.5x", "2"}));
    // The values of the file give the base, which is what `simulate` predicts.
    EXPECT_EQ(points[2].at("point"), sweep.at("base").at("point"));
    const CommandResult simulated = here.run({"simulate", example_plan(), "--json"});
    expect_done(simulated);
    EXPECT_EQ(sweep.at("base").at("point").at("step_time_s"), json::parse(simulated.out).at("step_time_s"));
    EXPECT_LT(points[0].at("speed"), 1);
    // The same as editing the file by hand.
    json plan = json::parse(here.run({"plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "16",
                                      "--global-batch", "32", "--seq", "512", "--top", "1", "--json"})
                                .out)
                    .at("plans")
                    .at(0)
                    .at("plan");
    here.write("gpt2.plan.json", plan);
    plan["cluster"]["nic"]["latency_us"]["value"] = 40;
    here.write("slow.plan.json", plan);
    const json slow = sweep_of(whatif(here, "gpt2.plan.json", {"--set", "cluster.nic.latency_us=40", "--json"}));
    const json by_hand = json::parse(here.run({"simulate", "slow.plan.json", "--json"}).out);
    EXPECT_EQ(slow.at("points")[0].at("point").at("step_time_s"), by_hand.at("step_time_s"));
}

TEST(WhatIf, AnUnusedLinkChangesNothing) {
    const Workplace here;
    here.write("one_node.plan.json", small_plan(2));
    const json sweep = sweep_of(whatif(here, "one_node.plan.json",
                                       {"--set", "cluster.nic.bandwidth_gb_per_s_per_direction=0.1x,10x", "--json"}));
    for (const json& point : sweep.at("points")) EXPECT_EQ(point.at("speed"), 1);
}

TEST(WhatIf, ReplanningIsNeverSlower) {
    const Workplace here;
    const std::vector<std::string> set{"--set", "training.sequence_length=4096,16384", "--json"};
    const json fixed = sweep_of(whatif(here, example_plan(), set));
    std::vector<std::string> replanned = set;
    replanned.emplace_back("--replan");
    const json best = sweep_of(whatif(here, example_plan(), replanned));
    for (std::size_t i = 0; i < 2; ++i) {
        const json &a = best.at("points")[i], &b = fixed.at("points")[i];
        EXPECT_TRUE(a.at("fits"));
        if (b.at("fits").get<bool>()) {
            EXPECT_LE(a.at("point").at("step_time_s"), b.at("point").at("step_time_s"));
        }
    }
}

TEST(WhatIf, StragglersAndFailedLinksAreInputs) {
    const Workplace here;
    const json sweep = sweep_of(whatif(
        here, example_plan(),
        {"--set",
         R"(cluster.slow_devices=absent,[],[{"device":5,"speed":0.8}],[{"device":5,"speed":0.8},{"device":9,"speed":0.9}])",
         "--set", R"(cluster.overrides=absent,[{"link":"node 3 nic 1 - leaf 1","bandwidth":"failed"}])", "--json"}));
    const json& points = sweep.at("points");
    ASSERT_EQ(points.size(), 8U);
    const auto speed = [&](std::size_t i) { return points[i].at("speed").get<double>(); };
    EXPECT_EQ(speed(0), 1);
    EXPECT_EQ(speed(2), 1);
    EXPECT_LT(speed(1), 1);
    EXPECT_LT(speed(4), 0.9);
    EXPECT_GT(speed(4), 0.8);
    EXPECT_LE(speed(6), speed(4));
    EXPECT_LE(speed(5), speed(4));
    const auto refused = [&](const std::string& set, const std::vector<std::string>& words) {
        expect_refused(whatif(here, example_plan(), {"--set", set}), 2, words);
    };
    refused(R"(cluster.slow_devices=[{"device":64,"speed":0.8}])", {"device", "64", "63"});
    refused(R"(cluster.slow_devices=[{"device":1,"speed":0}])", {"speed", "0"});
    refused(R"(cluster.slow_devices=[{"device":1,"speed":0.5},{"device":1,"speed":0.6}])", {"device", "once"});
    refused(R"(cluster.slow_device=[{"device":1,"speed":0.5}])", {"slow_device", "slow_devices"});
    refused("cluster.slow_devices=fast", {"slow_devices"});
}

TEST(WhatIf, RulesThatAreBrokenAreListed) {
    const Workplace here;
    const CommandResult result = whatif(here, example_plan(), {"--set", "parallelism.tp=2,3", "--csv", "table.csv"});
    expect_done(result);
    EXPECT_NE(result.out.find("\n3: "), std::string::npos) << result.out;
    const std::string csv = here.read("table.csv");
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
    const json sweep = sweep_of(whatif(here, example_plan(), {"--set", "parallelism.tp=2,3", "--json"}));
    EXPECT_EQ(sweep.at("points")[1].at("point").at("devices"), 64);
    EXPECT_NE(sweep.at("points")[1].at("point").at("reason"), "");
}

TEST(WhatIf, RefusesPathsAndValuesThatItCannotRead) {
    const Workplace here;
    const auto refused = [&](const std::string& set, const std::vector<std::string>& words) {
        expect_refused(whatif(here, example_plan(), {"--set", set}), 2, words);
    };
    refused("cluster.nicc=1", {"cluster.nicc", "nicc", "nic"});
    refused("cluster.nic.latency_us=fast", {"fast", "a number"});
    refused("training.micro_batch_size=1.5", {"1.5", "integer"});
    refused("parallelism.sequence_parallel=yes", {"yes", "true or false"});
    refused("parallelism.stage_layers=[1,", {"[1,", "JSON"});
    refused("training.micro_batch_size", {"--set", "PATH=VALUE"});
    refused("training.micro_batch_size=1,,2", {"no empty value"});
    refused("training..x=1", {"an empty key"});
    expect_refused(whatif(here, example_plan(), {"--set", "parallelism.tp=1", "--set", "parallelism.tp=2"}), 2,
                   {"parallelism.tp", "each path once"});
}

TEST(WhatIf, TheNumberOfThreadsDoesNotMatter) {
    const Workplace here;
    const std::vector<std::string> set{"--set", "cluster.nic.bandwidth_gb_per_s_per_direction=0.1x,0.2x,0.5x,2x",
                                       "--json"};
    std::vector<std::string> one = set, two = set;
    one.insert(one.end(), {"--threads", "1"});
    two.insert(two.end(), {"--threads", "2"});
    EXPECT_EQ(whatif(here, example_plan(), one).out, whatif(here, example_plan(), two).out);
}

}  // namespace
}  // namespace orrery::test
