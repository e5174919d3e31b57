// `orrery scale --by-technique`.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "tests/cli/checks.h"
#include "tests/cli/perfect_cluster.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

CommandResult by_technique(const Workplace& here, const std::vector<std::string>& flags) {
    std::vector<std::string> words{"scale", "--by-technique", "--seq", "1024"};
    words.insert(words.end(), flags.begin(), flags.end());
    return here.run(words);
}

/// The points of each technique.
std::map<std::string, json> points_by_technique(const CommandResult& result) {
    expect_done(result);
    static const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    std::map<std::string, json> points;
    const json curves = json::parse(result.out);
    for (const json& curve : curves.at("techniques")) points[curve.at("technique")] = curve.at("points");
    return points;
}

TEST(Techniques, EachPointIsThePlanThatThePlannerFinds) {
    const Workplace here;
    const std::vector<std::string> job{"--model", "gpt2", "--cluster", "dgx-h100", "--global-batch", "32", "--json"};
    std::vector<std::string> flags = job;
    flags.insert(flags.end(), {"--gpus", "1,4"});
    const auto points = points_by_technique(by_technique(here, flags));
    const std::map<std::string, std::vector<std::string>> restrictions{
        {"ddp", {"--dp", "4", "--data-parallel", "ddp"}},
        {"zero3", {"--dp", "4", "--data-parallel", "zero3", "--exclude", "shards=2"}},
        {"tp", {"--tp", "4"}},
        {"pp", {"--pp", "4"}}};
    for (const auto& [technique, restriction] : restrictions) {
        std::vector<std::string> words{"plan",  "--seq", "1024", "--gpus", "4", "--top", "1", "--implementation",
                                       "orrery"};
        words.insert(words.end(), job.begin(), job.end());
        words.insert(words.end(), restriction.begin(), restriction.end());
        const CommandResult plan = here.run(words);
        expect_done(plan);
        const json best = json::parse(plan.out).at("plans").at(0);
        const json& point = points.at(technique).at(1).at("point");
        EXPECT_EQ(point.at("step_time_s"), best.at("step_time_s")) << technique;
        EXPECT_EQ(point.at("plan").at("parallelism"), best.at("plan").at("parallelism")) << technique;
        // On one device all have the plan that they are compared with.
        EXPECT_EQ(points.at(technique).at(0), points.at("dp").at(0));
        EXPECT_EQ(points.at(technique).at(0).at("point").at("efficiency"), 1);
    }
    EXPECT_EQ(points.at("dp").at(1).at("point").at("plan").at("parallelism").at("data_parallel"), "dp");
    EXPECT_LT(points.at("dp").at(1).at("point").at("speed_up"), points.at("ddp").at(1).at("point").at("speed_up"));
}

TEST(Techniques, APerfectNetworkMakesDdpFullyEfficient) {
    const Workplace here;
    here.write("perfect.json", perfect_cluster());
    const auto points = points_by_technique(
        by_technique(here, {"--model", "gpt2", "--cluster", "perfect.json", "--gpus", "1..8", "--mode", "weak",
                            "--batch-per-gpu", "8", "--micro-batch", "8", "--json"}));
    ASSERT_EQ(points.at("ddp").size(), 4U);
    for (const json& one : points.at("ddp")) {
        EXPECT_EQ(one.at("point").at("global_batch_size"), 8 * one.at("point").at("devices").get<int>());
        EXPECT_NEAR(one.at("point").at("efficiency"), 1, 1e-6);
    }
}

TEST(Techniques, LossesSumToWhatIsMissing) {
    const Workplace here;
    const auto points = points_by_technique(by_technique(
        here, {"--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "1,4", "--global-batch", "32", "--json"}));
    for (const auto& [technique, all] : points) {
        double sum = 0;
        for (const json& loss : all.at(1).at("losses")) sum += loss.at("share").get<double>();
        EXPECT_NEAR(sum, 1 - all.at(1).at("point").at("efficiency").get<double>(), 1e-9) << technique;
    }
}

TEST(Techniques, ACellWithoutAPlanSaysWhy) {
    const Workplace here;
    // 12 heads, 12 layers, 24 sequences.
    const std::vector<std::string> flags{"--model", "gpt2",    "--cluster",      "dgx-h100",
                                         "--gpus",  "8,12,16", "--global-batch", "24"};
    const CommandResult result = by_technique(here, flags);
    expect_done(result);
    for (const char* line : {"heads (tp on 8, 16): ", "ddp on 16", "layers (pp on 16): ", "tp: no plan (",
                             "nodes (dp on 12, 16", "1.00: the fastest plan on 8 devices, "}) {
        EXPECT_NE(result.out.find(line), std::string::npos) << line << "\n" << result.out;
    }
    std::vector<std::string> others = flags;
    others.insert(others.end(), {"--implementation", "torch-ddp", "--json"});
    const auto points = points_by_technique(by_technique(here, others));
    EXPECT_EQ(points.at("tp").at(0).at("obstacle"), "implementation");
    EXPECT_EQ(points.at("zero3").at(0).at("obstacle"), "implementation");
    EXPECT_FALSE(points.at("ddp").at(0).contains("obstacle"));
}

TEST(Techniques, AModelThatDoesNotFitOnOneDeviceIsComparedWithTheFewestOnWhichItDoes) {
    const Workplace here;
    const CommandResult result =
        by_technique(here, {"--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "1..8", "--global-batch", "8",
                            "--csv", "curves.csv", "--output", "curves.json"});
    expect_done(result);
    const json curves = json::parse(here.read("curves.json"));
    EXPECT_EQ(curves.at("base_devices"), 2);
    for (const json& curve : curves.at("techniques")) {
        const json& first = curve.at("points").at(0);
        EXPECT_EQ(first.at("obstacle"), "memory");
        EXPECT_NE(first.at("point").at("reason").get<std::string>().find("the leanest needs"), std::string::npos);
        // All replicas of DDP hold all states.
        if (curve.at("technique") == "ddp") {
            EXPECT_EQ(curve.at("points").at(3).at("obstacle"), "memory");
        }
    }
    EXPECT_NE(result.out.find("ddp: no plan (memory)"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("1.00: the fastest plan on 2 devices, "), std::string::npos) << result.out;
    const std::string csv = here.read("curves.csv");
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 7 * 4);
    EXPECT_NE(csv.find("\nddp,1,,8,"), std::string::npos) << csv;
    const CommandResult nothing =
        by_technique(here, {"--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "1,2", "--global-batch", "8"});
    EXPECT_EQ(nothing.exit_code, 3);
    EXPECT_NE(nothing.out.find("tp: no plan (memory)"), std::string::npos) << nothing.out;
}

TEST(Techniques, RefusesOptionsInWhichTheTechniquesDiffer) {
    const Workplace here;
    const std::vector<std::vector<std::string>> given{{"--tp", "2"},
                                                      {"--pp", "2"},
                                                      {"--dp", "2"},
                                                      {"--cp", "2"},
                                                      {"--ep", "2"},
                                                      {"--data-parallel", "ddp"},
                                                      {"--dp-shard", "2"},
                                                      {"--chunks", "2"},
                                                      {"--etp", "2"},
                                                      {"--stage-layout", "Et*12L"},
                                                      {"--reshard-after-forward", "true"}};
    for (const std::vector<std::string>& option : given) {
        std::vector<std::string> flags{"--model", "gpt2", "--cluster",      "dgx-h100",
                                       "--gpus",  "8",    "--global-batch", "8"};
        flags.insert(flags.end(), option.begin(), option.end());
        expect_refused(by_technique(here, flags), 2, {option[0], option[1], "--by-technique"});
    }
    expect_refused(by_technique(here, {"--model", "gpt2", "--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "8",
                                       "--fixed-plan"}),
                   2, {"--fixed-plan"});
}

}  // namespace
}  // namespace orrery::test
