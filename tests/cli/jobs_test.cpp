// `orrery simulate` with several plans on one cluster, whose links may change over time.
#include <gtest/gtest.h>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

/// gpt2 on two nodes, dominated by the gradient reduction.
json communicating_plan() {
    json plan = small_plan(16);
    plan["model"] = "gpt2";
    plan["training"]["global_batch_size"] = 16;
    plan["training"]["precision"] = "bf16";
    return plan;
}

/// Nodes of 8 GPUs, with one uplink for four NICs.
json narrow_cluster() {
    json cluster = json::parse(orrery({"clusters", "dgx-h100", "--json"}).out);
    cluster["name"] = "narrow";
    cluster["nodes_per_scalable_unit"] = 4;
    cluster["fabric_shape"] = {{"oversubscription", {4}}};
    return cluster;
}

json jobs_of(const CommandResult& result) {
    expect_done(result);
    EXPECT_EQ(house::repository_schemas(ORRERY_SOURCE_DIR).check(result.out), "");
    return json::parse(result.out);
}

double slowdown(const json& document, std::size_t job) {
    return document.at("jobs").at(job).at("slowdown").get<double>();
}

TEST(Jobs, SlowEachOtherDownOnASharedUplink) {
    const Workplace here;
    here.write("narrow.json", narrow_cluster());
    here.write("a.plan.json", communicating_plan());
    const auto run = [&](const char* allocation) {
        return jobs_of(here.run({"simulate", "a.plan.json", "a.plan.json", "a.plan.json", "a.plan.json", "--cluster",
                                 "narrow.json", "--allocation", allocation, "--json"}));
    };
    const json packed = run("packed"), by_turns = run("by-turns");
    EXPECT_EQ(slowdown(packed, 0), 1);
    EXPECT_EQ(slowdown(packed, 1), 1);
    EXPECT_GT(slowdown(by_turns, 0), 1.05);
    EXPECT_GT(slowdown(by_turns, 1), 1.05);
    EXPECT_FALSE(packed.contains("changes"));
}

TEST(Jobs, FollowChangesOfLinks) {
    const Workplace here;
    here.write("a.plan.json", communicating_plan());
    json cluster = narrow_cluster();
    const double step = jobs_of(here.run(
        {"simulate", "a.plan.json", "--cluster", "dgx-h100", "--json"}))["jobs"][0]["alone"]["step_time_s"]
                            .get<double>();
    cluster["fabric_shape"] = json::object();
    cluster["overrides"] = {{{"link", "node 0 nic 3 - leaf 3"}, {"bandwidth", 0.1}, {"at_seconds", 2.5 * step}}};
    here.write("ages.json", cluster);
    const std::vector<std::string> command{"simulate", "a.plan.json", "--cluster", "ages.json", "--steps", "6"};
    std::vector<std::string> with_json = command;
    with_json.emplace_back("--json");
    const json document = jobs_of(here.run(with_json));
    EXPECT_EQ(document.at("changes").size(), 1U);
    const json& steps = document.at("jobs").at(0).at("together").at("step_seconds");
    ASSERT_EQ(steps.size(), 5U);
    EXPECT_NEAR(steps[0].get<double>() / step, 1, 0.01);
    EXPECT_GT(steps[4].get<double>() / step, 1.2);
    const CommandResult text = here.run(command);
    expect_done(text);
    EXPECT_NE(text.out.find("node 0 nic 3 - leaf 3: 10% of its bandwidth"), std::string::npos) << text.out;
    EXPECT_NE(text.out.find("steps of small from the second on:"), std::string::npos) << text.out;
}

TEST(Jobs, EndWithAnErrorWhenNoPathRemains) {
    const Workplace here;
    here.write("a.plan.json", communicating_plan());
    json cluster = narrow_cluster();
    cluster["overrides"] = {{{"link", "nic"}, {"node", 1}, {"bandwidth", "failed"}, {"at_seconds", 1e-6}}};
    here.write("ages.json", cluster);
    expect_refused(here.run({"simulate", "a.plan.json", "--cluster", "ages.json"}), 2,
                   {"from 1e-06 s on", "cluster narrow", "device"});
    cluster["overrides"][0]["link"] = "leaf 0 - spine 99";
    cluster["overrides"][0].erase("node");
    here.write("ages.json", cluster);
    expect_refused(here.run({"simulate", "a.plan.json", "--cluster", "ages.json"}), 2, {"spine 99"});
}

}  // namespace
}  // namespace orrery::test
