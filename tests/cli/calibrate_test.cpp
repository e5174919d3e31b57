// `orrery calibrate`: a profile from measurements, and one refined with runs.
#include <gtest/gtest.h>

#include <set>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

/// Also checks that nothing is printed to standard error: a kernel with unsuitable operands may complain there and
/// still be timed.
TEST(Calibrate, WritesAProfileThatPredictsPlans) {
    const Workplace here;
    expect_done(here.run({"calibrate", "--quick", "--output", "measured.json"}));
    const json profile = json::parse(here.read("measured.json"));
    std::set<std::string> timed;
    for (const json& sample : profile.at("device").at("operator_samples")) {
        EXPECT_GT(sample.at("seconds").get<double>(), 0);
        timed.insert(sample.at("op"));
    }
    for (const char* op : {"attention_forward", "attention_backward", "rms_norm_forward", "adamw"}) {
        EXPECT_TRUE(timed.contains(op)) << op;
    }
    here.write("local.plan.json", local_plan(2));
    expect_done(here.run({"simulate", "local.plan.json"}, {.environment = {"ORRERY_PROFILE=measured.json"}}));
}

void expect_cluster(const std::string& text) {
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(text), "");
}

TEST(CalibrateFrom, RefinesTheProfileWithRuns) {
    const Workplace here;
    for (const char* name : {"a", "b", "c"}) {
        json plan = local_plan(name[0] == 'a' ? 1 : 2);
        plan["name"] = name;
        here.write(std::string(name) + ".plan.json", plan);
    }
    expect_done(here.run({"validate", "a.plan.json", "b.plan.json", "c.plan.json", "--steps", "2", "--warm-up", "1",
                          "--records", "results"}));
    const CommandResult result = here.run({"calibrate", "--from", "results", "--output", "refined.json"});
    expect_done(result);
    for (const char* word :
         {"linear_forward", "adamw", "fp32", "all_reduce", "2 ranks", "over 3 runs", "refined.json"}) {
        EXPECT_NE(result.out.find(word), std::string::npos) << word << " is not in: " << result.out;
    }
    expect_cluster(here.read("refined.json"));
    // The made-up profile has no operator timings, so these come from the runs.
    std::set<std::string> timed;
    const json refined = json::parse(here.read("refined.json"));
    for (const json& sample : refined.at("device").at("operator_samples")) {
        timed.insert(sample.at("op"));
    }
    EXPECT_TRUE(timed.contains("adamw"));
    expect_done(here.run({"simulate", "b.plan.json"}, {.environment = {"ORRERY_PROFILE=refined.json"}}));
    const CommandResult printed = here.run({"calibrate", "--from", "results", "--output", "again.json", "--json"});
    expect_done(printed);
    EXPECT_EQ(printed.out, here.read("refined.json"));
}

TEST(CalibrateFrom, RunsWithTheSameNameAreRefused) {
    const Workplace here;
    here.write("one.plan.json", local_plan());
    here.write("two.plan.json", local_plan(2));  // has the same name as the first
    expect_refused(here.run({"validate", "one.plan.json", "two.plan.json", "--records", "results"}), 2,
                   {"two.plan.json: /name: got small", "a name that no plan before has"});
    EXPECT_FALSE(here.has("results"));
}

TEST(CalibrateFrom, RefusesFoldersWithoutResults) {
    const Workplace here;
    std::filesystem::create_directory(here.path("none"));
    const auto refused = [&](const std::string& folder, const std::vector<std::string>& words) {
        expect_refused(here.run({"calibrate", "--from", folder, "--output", "refined.json"}), 2, words);
        EXPECT_FALSE(here.has("refined.json"));
    };
    refused("missing", {"missing", "a folder of results"});
    refused("none", {"none", "no NAME.record.json"});

    std::filesystem::create_directory(here.path("predicted"));
    here.write("predicted/one.plan.json", local_plan());
    expect_done(here.run({"simulate", "predicted/one.plan.json", "--record", "predicted/one.record.json"}));
    refused("predicted", {"one.record.json: /maker: got simulated", "executed"});

    std::filesystem::create_directory(here.path("elsewhere"));
    here.write("elsewhere/one.plan.json", small_plan());
    here.write("elsewhere/one.record.json", here.read("predicted/one.record.json"));
    refused("elsewhere", {"one.plan.json: /cluster: got dgx-h100", "local"});

    std::filesystem::create_directory(here.path("half"));
    here.write("half/one.record.json", here.read("predicted/one.record.json"));
    refused("half", {"one.plan.json"});
    expect_refused(here.run({"calibrate", "--from", "none", "--cluster", "dgx-h100"}), 2,
                   {"--output", "beside --cluster"});
}

TEST(CalibrateCheck, BuiltInRatesFollowTheirRules) {
    const Workplace here;
    const CommandResult result = here.run({"calibrate", "--check"});
    expect_done(result);
    EXPECT_NE(result.out.find("fitted rates of at most 110"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("Keys with priors wider than 0.5: "), std::string::npos) << result.out;
    expect_refused(here.run({"calibrate", "--check", "--output", "rates"}), 2, {"--check", "--output"});
}

TEST(CalibrateRows, WritesOutOfSamplePredictions) {
    const Workplace here;
    const std::string rows = std::string(ORRERY_SOURCE_DIR) + "/sim/published/data/dlperf.json";
    const CommandResult result = here.run({"calibrate", "--rows", rows, "--cross-validate", "--output", "parts"});
    expect_done(result);
    EXPECT_NE(result.out.find("as the mean of the sources"), std::string::npos) << result.out;
    EXPECT_NE(result.out.find("the rates of each part to parts/without-0"), std::string::npos) << result.out;
    const json predictions = json::parse(here.read("parts/predictions.json"));
    ASSERT_EQ(predictions.size(), 24);
    std::set<std::string> parts;
    for (const json& row : predictions) {
        EXPECT_GT(row.at("predicted_s").get<double>(), 0) << row;
        EXPECT_GT(row.at("log_sd").get<double>(), 0) << row;
        parts.insert(row.at("rates").get<std::string>());
    }
    EXPECT_GT(parts.size(), 1);
    for (const std::string& part : parts) {
        EXPECT_NE(here.read("parts/" + part + "/fitted.json").find("orrery.rates/1"), std::string::npos) << part;
    }
    expect_refused(here.run({"calibrate", "--rows", rows, "--cross-validate", "--leave-sources-out"}), 2,
                   {"--cross-validate", "--leave-sources-out"});
    expect_refused(here.run({"calibrate", "--rows", rows, "--json"}), 2, {"--rows", "--json"});
}

}  // namespace
}  // namespace orrery::test
