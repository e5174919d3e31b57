// `orrery scale`.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/checks.h"
#include "tests/cli/perfect_cluster.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

CommandResult scale(const Workplace& here, const std::vector<std::string>& flags) {
    std::vector<std::string> words{"scale", "--model", "gpt2", "--seq", "512", "--implementation", "orrery"};
    words.insert(words.end(), flags.begin(), flags.end());
    return here.run(words);
}

json curve_of(const CommandResult& result) {
    expect_done(result);
    static const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    return json::parse(result.out);
}

TEST(Scale, EachPointIsWhatThePlannerFinds) {
    const Workplace here;
    const json curve =
        curve_of(scale(here, {"--cluster", "dgx-h100", "--gpus", "4..16", "--global-batch", "64", "--json"}));
    ASSERT_EQ(curve.at("points").size(), 3U);
    for (const json& point : curve.at("points")) {
        const CommandResult plan = here.run({"plan", "--model", "gpt2", "--cluster", "dgx-h100", "--gpus",
                                             std::to_string(point.at("devices").get<int>()), "--global-batch", "64",
                                             "--seq", "512", "--implementation", "orrery", "--top", "1", "--json"});
        expect_done(plan);
        const json best = json::parse(plan.out).at("plans").at(0);
        EXPECT_EQ(point.at("step_time_s"), best.at("step_time_s"));
        EXPECT_EQ(point.at("plan").at("parallelism"), best.at("plan").at("parallelism"));
        EXPECT_EQ(point.at("plan").at("memory"), best.at("plan").at("training").at("memory"));
    }
}

TEST(Scale, APerfectNetworkIsFullyEfficient) {
    const Workplace here;
    here.write("perfect.json", perfect_cluster());
    const std::vector<std::string> flags{"--gpus",
                                         "1..8",
                                         "--mode",
                                         "weak",
                                         "--batch-per-gpu",
                                         "64",
                                         "--micro-batch",
                                         "32",
                                         "--data-parallel",
                                         "ddp",
                                         "--tp",
                                         "1",
                                         "--pp",
                                         "1",
                                         "--json",
                                         "--cluster"};
    const auto efficiencies = [&](const std::string& cluster) {
        std::vector<std::string> all = flags;
        all.push_back(cluster);
        std::vector<double> found;
        const json curve = curve_of(scale(here, all));
        for (const json& point : curve.at("points")) found.push_back(point.at("efficiency"));
        EXPECT_EQ(found.size(), 4U);
        return found;
    };
    for (const double efficiency : efficiencies("perfect.json")) EXPECT_NEAR(efficiency, 1, 1e-6);
    EXPECT_LT(efficiencies("dgx-h100").back(), 0.999);
}

TEST(Scale, AFixedPlanHasTheShapeOfTheFirstPoint) {
    const Workplace here;
    const json curve = curve_of(scale(here, {"--cluster", "dgx-h100", "--gpus", "8,12,16,24", "--mode", "weak",
                                             "--batch-per-gpu", "4", "--fixed-plan", "--json"}));
    const json& points = curve.at("points");
    ASSERT_EQ(points.size(), 4U);
    for (const char* key : {"tp", "pp", "cp", "chunks", "schedule", "data_parallel", "stage_layers"}) {
        for (const json& point : points) {
            EXPECT_EQ(point.at("plan").at("parallelism").at(key), points[0].at("plan").at("parallelism").at(key))
                << key;
        }
    }
    // 12 devices are not whole nodes, and 8 replicas with 4 sequences each do not divide 48.
    EXPECT_EQ(points[1].at("devices_used"), 6);
    EXPECT_EQ(points[3].at("devices_used"), 24);
}

TEST(Scale, TheTableAndTheFilesHaveTheSamePoints) {
    const Workplace here;
    const CommandResult result = scale(here, {"--cluster", "dgx-h100", "--gpus", "1,8,16", "--global-batch", "32",
                                              "--csv", "curve.csv", "--output", "curve.json"});
    expect_done(result);
    const json curve = json::parse(here.read("curve.json"));
    const std::string csv = here.read("curve.csv");
    EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 4);
    EXPECT_NE(csv.find("\n16,16,32,orrery,"), std::string::npos) << csv;
    EXPECT_NE(result.out.find("strong scaling, 32 sequences a step"), std::string::npos);
    EXPECT_NE(result.out.find("2.95 USD a device-hour"), std::string::npos);
    EXPECT_TRUE(curve.at("points")[2].contains("usd_per_billion_tokens"));
}

TEST(Scale, ALargerModelStartsWhereItFits) {
    const Workplace here;
    const CommandResult result =
        here.run({"scale", "--model", "llama3-8b", "--cluster", "dgx-h100", "--gpus", "1..8", "--global-batch", "16",
                  "--seq", "8192", "--implementation", "megatron-core", "--json"});
    const json points = curve_of(result).at("points");
    EXPECT_NE(points[0].at("reason").get<std::string>().find("fits"), std::string::npos);
    EXPECT_FALSE(points[0].contains("plan"));
    EXPECT_EQ(points.back().at("devices_used"), 8);
    const CommandResult nothing =
        here.run({"scale", "--model", "llama3-70b", "--cluster", "dgx-h100", "--gpus", "1,2", "--global-batch", "16",
                  "--seq", "8192", "--implementation", "megatron-core"});
    EXPECT_EQ(nothing.exit_code, 3);
}

TEST(Scale, RefusesABatchThatTheModeDoesNotHave) {
    const Workplace here;
    expect_refused(scale(here, {"--cluster", "dgx-h100", "--gpus", "8", "--batch-per-gpu", "1"}), 2,
                   {"--batch-per-gpu", "--mode weak"});
    expect_refused(scale(here, {"--cluster", "dgx-h100", "--gpus", "8", "--mode", "weak", "--global-batch", "8"}), 2,
                   {"--global-batch", "--mode strong"});
    expect_refused(scale(here, {"--cluster", "dgx-h100", "--gpus", "8"}), 2, {"--global-batch"});
    expect_refused(scale(here, {"--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "8", "--tp", "7"}), 2,
                   {"--tp", "7", "heads"});
    expect_refused(scale(here, {"--cluster", "dgx-h100", "--gpus", "8", "--global-batch", "8", "--exclude", "orrery"}),
                   2, {"--exclude"});
    for (const char* counts : {"", "8..", "0", "16..8", "8,,9", "8-16", "8..16..32", "99999999"}) {
        expect_refused(scale(here, {"--cluster", "dgx-h100", "--gpus", counts, "--global-batch", "8"}), 2, {"--gpus"});
    }
}

}  // namespace
}  // namespace orrery::test
