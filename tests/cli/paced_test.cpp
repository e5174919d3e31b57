// `simulate --durations` and `run --paced`: their output, and the records that they refuse.
#include <gtest/gtest.h>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

TEST(Durations, OfASimulationReproduceItsStep) {
    const Workplace here;
    here.write("pp2.plan.json", small_plan(1, 1, 2));
    expect_done(here.run({"simulate", "pp2.plan.json", "--record", "step.json"}));
    const json step = json::parse(here.read("step.json"));
    const auto replayed = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words{"simulate", "pp2.plan.json", "--durations", "step.json", "--json"};
        words.insert(words.end(), more.begin(), more.end());
        const CommandResult result = here.run(words);
        expect_done(result);
        return json::parse(result.out);
    };
    EXPECT_EQ(replayed({}).at("step_time_s"), step.at("step_time_s"));
    EXPECT_GT(replayed({"--stretch", "100"}).at("step_time_s"), 50 * step.at("step_time_s").get<double>());
}

TEST(Paced, RunsTakeTheRecordedTimeAndHaveNoLosses) {
    const Workplace here;
    here.write("dp2.plan.json", small_plan(2));
    expect_done(here.run({"simulate", "dp2.plan.json", "--record", "step.json"}));
    std::vector<std::string> orphans;
    const CommandResult result = here.run(
        {"run", "dp2.plan.json", "--paced", "step.json", "--stretch", "50", "--steps", "2", "--warm-up", "1", "--json"},
        {}, &orphans);
    expect_done(result);
    EXPECT_TRUE(orphans.empty());
    const json record = json::parse(result.out);
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    EXPECT_EQ(record.at("maker"), "executed");
    EXPECT_EQ(record.at("losses"), json::array());
    EXPECT_EQ(record.at("environment").at("backend"), "paced");
    EXPECT_EQ(record.at("ranks").size(), 2U);
}

TEST(Paced, RecordsThatDoNotFitAreRefused) {
    const Workplace here;
    const CommandOptions no_mpirun{.environment = {"PATH=" + here.path("")}};
    here.write("dp2.plan.json", small_plan(2));
    const CommandResult without_spans = here.run({"simulate", "dp2.plan.json", "--json"});
    here.write("no-spans.json", without_spans.out);
    json other = json::parse(without_spans.out);
    other["plan"] = "another";
    here.write("other.json", other);
    for (const std::vector<std::string>& command :
         {std::vector<std::string>{"run", "dp2.plan.json", "--paced"}, {"simulate", "dp2.plan.json", "--durations"}}) {
        const auto with = [&](const std::string& record) {
            std::vector<std::string> words = command;
            words.push_back(record);
            return here.run(words, no_mpirun);
        };
        expect_refused(with("no-spans.json"), 2, {"no-spans.json: rank 0", "has 0 of", "lacks embedding/forward"});
        expect_refused(with("other.json"), 2, {"other.json: /plan: got \"another\""});
        expect_refused(with("absent.json"), 2, {"absent.json"});
    }
    expect_refused(here.run({"run", "dp2.plan.json", "--stretch", "2"}, no_mpirun), 2, {"--stretch", "--paced"});
    expect_refused(here.run({"run", "dp2.plan.json", "--paced", "no-spans.json", "--gradients", "g"}, no_mpirun), 2,
                   {"--gradients"});
}

}  // namespace
}  // namespace orrery::test
