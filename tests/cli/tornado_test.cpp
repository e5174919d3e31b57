// `orrery whatif --tornado`.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

std::string llama_plan() {
    return std::string(ORRERY_SOURCE_DIR) + "/examples/llama3-8b-64-h100.plan.json";
}

json checked(const CommandResult& result) {
    expect_done(result);
    static const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    return json::parse(result.out);
}

json tornado_of(const Workplace& here, const std::string& plan, const std::vector<std::string>& flags = {}) {
    std::vector<std::string> words{"whatif", plan, "--tornado", "--json"};
    words.insert(words.end(), flags.begin(), flags.end());
    return checked(here.run(words));
}

json bar_of(const json& tornado, const std::string& path) {
    for (const json& bar : tornado.at("bars")) {
        if (bar.at("path") == path) return bar;
    }
    ADD_FAILURE() << "no " << path;
    return {};
}

/// d ln(step time) / d ln(input) from plans that are simulated with the input moved by half a percent, below and above.
struct Differences {
    double below = 0, above = 0;
};
Differences differences(const Workplace& here, const std::string& plan, const std::string& path) {
    const json sweep = checked(here.run({"whatif", plan, "--set", path + "=0.995x,1.005x", "--json"}));
    const auto step_s = [](const json& point) { return point.at("point").at("step_time_s").get<double>(); };
    const double base = step_s(sweep.at("base"));
    return {std::log(step_s(sweep.at("points")[0]) / base) / std::log(0.995),
            std::log(step_s(sweep.at("points")[1]) / base) / std::log(1.005)};
}

/// Returns how many were compared.
int expect_differences(const Workplace& here, const std::string& plan) {
    int compared = 0;
    const json tornado = tornado_of(here, plan);
    for (const json& bar : tornado.at("bars")) {
        const std::string path = bar.at("path");
        const double elasticity = bar.value("elasticity", 0.0);
        if (std::abs(elasticity) < 1e-3 || path.ends_with("share"))
            continue;  // shares near 1 cannot be moved both ways
        const Differences full = differences(here, plan, path);
        EXPECT_NEAR(elasticity, (full.below + full.above) / 2, 0.01 * std::abs(elasticity)) << plan << " " << path;
        ++compared;
    }
    return compared;
}

TEST(Tornado, ElasticitiesAreThoseOfFullSimulations) {
    const Workplace here;
    EXPECT_GE(expect_differences(here, llama_plan()), 10);
    // Small work, whose collectives run beside computation and share memory bandwidth with it.
    const CommandResult plan =
        here.run({"plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "16", "--seq",
                  "512", "--top", "1", "--output", "gpt2.json"});
    expect_done(plan);
    EXPECT_GE(expect_differences(here, "gpt2.json"), 8);
    // A long step, which is extrapolated.
    expect_done(here.run({"plan", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "16", "--global-batch",
                          "1024", "--seq", "8192", "--pp", "4", "--tp", "2", "--top", "1", "--output", "long.json"}));
    EXPECT_GE(expect_differences(here, "long.json"), 6);
}

TEST(Tornado, UnusedLinksHaveNoEffect) {
    const Workplace here;
    here.write("one_node.plan.json", small_plan(2));
    const json tornado = tornado_of(here, "one_node.plan.json");
    const json bar = bar_of(tornado, "cluster.nic.bandwidth_gb_per_s_per_direction");
    EXPECT_EQ(bar.at("elasticity"), 0);
    EXPECT_EQ(bar.at("less").at("speed"), 1);
    EXPECT_EQ(bar.at("more").at("speed"), 1);
    // Bars are in order of their effects.
    double before = 1e9;
    for (const json& one : tornado.at("bars")) {
        double effect = 0;
        for (const char* side : {"less", "more"}) {
            if (one.at(side).at("point").contains("reason")) continue;
            effect = std::max(effect, std::abs(one.at(side).at("speed").get<double>() - 1));
        }
        EXPECT_LE(effect, before);
        before = effect;
    }
    EXPECT_EQ(here.run({"whatif", "one_node.plan.json", "--tornado"}).out,
              here.run({"whatif", "one_node.plan.json", "--tornado", "--threads", "1"}).out);
}

TEST(Tornado, PointsAreThoseOfASweep) {
    const Workplace here;
    const std::string path = "cluster.nic.bandwidth_gb_per_s_per_direction";
    const json bar = bar_of(tornado_of(here, llama_plan(), {"--below", "cluster.nic", "--change", "25"}), path);
    const json sweep = checked(here.run({"whatif", llama_plan(), "--set", path + "=0.75x,1.25x", "--json"}));
    EXPECT_EQ(bar.at("less"), sweep.at("points")[0]);
    EXPECT_EQ(bar.at("more"), sweep.at("points")[1]);
    // Best plans are at least as fast as the plan of the file.
    const json best =
        bar_of(tornado_of(here, llama_plan(), {"--below", "cluster.nic", "--change", "25", "--replan"}), path);
    for (const char* side : {"less", "more"}) {
        EXPECT_LE(best.at(side).at("point").at("step_time_s"), bar.at(side).at("point").at("step_time_s"));
    }
    const double ratio = best.at("more").at("point").at("step_time_s").get<double>() /
                         best.at("less").at("point").at("step_time_s").get<double>();
    EXPECT_NEAR(best.at("elasticity"), std::log(ratio) / std::log(1.25 / 0.75), 1e-12);
}

TEST(Tornado, ValuesThatBreakARuleAreListed) {
    const Workplace here;
    const CommandResult result =
        here.run({"whatif", llama_plan(), "--tornado", "--below", "cluster.nic", "--csv", "t.csv"});
    expect_done(result);
    EXPECT_NE(result.out.find("no plan"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("/nic/efficiency/value: got 1.056"), std::string::npos) << result.out;
    EXPECT_NE(here.read("t.csv").find("cluster.nic.efficiency,0.96,"), std::string::npos);
}

TEST(Tornado, RefusesPathsAndCombinationsOfFlags) {
    const Workplace here;
    const auto refused = [&](const std::vector<std::string>& flags, const std::vector<std::string>& words) {
        std::vector<std::string> all{"whatif", llama_plan()};
        all.insert(all.end(), flags.begin(), flags.end());
        expect_refused(here.run(all), 2, words);
    };
    refused({}, {"--set", "--tornado"});
    refused({"--tornado", "--below", "cluster.nicc"}, {"cluster.nicc", "nics_per_node"});
    refused({"--tornado", "--below", "parallelism.tp"}, {"--below", "parallelism.tp", "a path with a positive number"});
    refused({"--tornado", "--set", "parallelism.tp=2"}, {"--set", "--tornado"});
    refused({"--below", "cluster.nic", "--set", "parallelism.tp=2"}, {"--below", "--tornado"});
    refused({"--tornado", "--change", "100"}, {"--change", "100"});
}

}  // namespace
}  // namespace orrery::test
