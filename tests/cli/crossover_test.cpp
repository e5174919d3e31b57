// `orrery whatif --crossover`.
#include <gtest/gtest.h>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

constexpr const char* kNic = "cluster.nic.bandwidth_gb_per_s_per_direction";

json crossover_of(const CommandResult& result) {
    expect_done(result);
    static const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    return json::parse(result.out);
}

/// Plans of llama3-8b for two nodes: "wide.json", whose replicas reduce gradients between nodes, and "deep.json", whose
/// stages send activations between nodes.
void write_plans(const Workplace& here) {
    const auto plan = [&](const std::string& name, const std::vector<std::string>& flags) {
        std::vector<std::string> words{"plan",   "--model", "llama3-8b", "--cluster", "dgx-h100",
                                       "--gpus", "16",      "--seq",     "8192",      "--global-batch",
                                       "16",     "--top",   "1",         "--output",  name};
        words.insert(words.end(), flags.begin(), flags.end());
        expect_done(here.run(words));
    };
    plan("wide.json", {"--dp", "2", "--tp", "8"});
    plan("deep.json", {"--pp", "2", "--tp", "8"});
}

double step_s(const Workplace& here, const std::string& plan, const std::string& value) {
    const CommandResult result = here.run({"whatif", plan, "--set", std::string(kNic) + "=" + value, "--json"});
    expect_done(result);
    return json::parse(result.out).at("points").at(0).at("point").at("step_time_s");
}

TEST(Crossover, IsWhereTheFastestPlanChanges) {
    const Workplace here;
    write_plans(here);
    const std::vector<std::string> words{"whatif",    "wide.json",   "--against",
                                         "deep.json", "--crossover", std::string(kNic) + "=0.5..100"};
    std::vector<std::string> as_json = words;
    as_json.emplace_back("--json");
    const json found = crossover_of(here.run(as_json));
    const json& ranges = found.at("ranges");
    ASSERT_EQ(ranges.size(), 2U) << found.dump(1);
    EXPECT_EQ(ranges[0].at("low"), 0.5);
    EXPECT_EQ(ranges[1].at("high"), 100);
    EXPECT_EQ(ranges[0].at("high"), ranges[1].at("low"));
    EXPECT_NE(ranges[0].at("plan"), ranges[1].at("plan"));
    // On both sides of the change, by the accuracy, the faster plan is the other one.
    const double at = ranges[1].at("low");
    const auto wide_is_faster = [&](double value) {
        const std::string text = std::to_string(value);
        return step_s(here, "wide.json", text) < step_s(here, "deep.json", text);
    };
    EXPECT_NE(wide_is_faster(at * 0.99), wide_is_faster(at * 1.001));
    EXPECT_EQ(ranges[0].at("at_low").at("step_time_s"),
              std::min(step_s(here, "wide.json", "0.5"), step_s(here, "deep.json", "0.5")));
    const CommandResult text = here.run(words);
    expect_done(text);
    EXPECT_NE(text.out.find("\nabove "), std::string::npos) << text.out;
    EXPECT_NE(text.out.find(" beats "), std::string::npos) << text.out;
}

TEST(Crossover, OfBestPlansIsWhatTheSearchChooses) {
    const Workplace here;
    write_plans(here);
    const json found = crossover_of(
        here.run({"whatif", "deep.json", "--replan", "--crossover", std::string(kNic) + "=5..100", "--json"}));
    for (const json& range : found.at("ranges")) {
        for (const auto& [end, point] : {std::pair("low", "at_low"), std::pair("high", "at_high")}) {
            if (&range != &found.at("ranges").back() && std::string(end) == "high") continue;  // the next plan's
            const CommandResult best = here.run(
                {"whatif", "deep.json", "--replan", "--json", "--set", std::string(kNic) + "=" + range.at(end).dump()});
            expect_done(best);
            EXPECT_EQ(json::parse(best.out).at("points").at(0).at("point"), range.at(point));
        }
    }
}

TEST(Crossover, RefusesWhatItCannotCompare) {
    const Workplace here;
    write_plans(here);
    const auto refused = [&](const std::vector<std::string>& flags, const std::vector<std::string>& words) {
        std::vector<std::string> all{"whatif", "wide.json"};
        all.insert(all.end(), flags.begin(), flags.end());
        expect_refused(here.run(all), 2, words);
    };
    const std::string range = std::string(kNic) + "=5..100";
    refused({"--crossover", range}, {"--against", "--replan"});
    for (const char* wrong : {"=5..100", "x=5", "x=5..", "x=0..5", "x=6..5", "x=a..5"}) {
        refused({"--crossover", wrong, "--replan"}, {"--crossover", wrong, "LOW..HIGH"});
    }
    refused({"--crossover", "parallelism.tp=1..8", "--replan"}, {"--crossover", "parallelism.tp", "need not be whole"});
    refused({"--crossover", "cluster.nicc=1..8", "--replan"}, {"cluster.nicc"});
    refused({"--crossover", range, "--against", "wide.json"}, {"wide.json", "--against", "other names"});
    refused({"--crossover", range, "--against", "none.json"}, {"none.json"});
    refused({"--crossover", range, "--against", "deep.json", "--output", "deep.json"}, {"--output", "--against"});
    refused({"--crossover", range, "--against", "deep.json", "--replan"}, {"--against", "--replan"});
    refused({"--crossover", range, "--replan", "--db", "x.db"}, {"--db", "--crossover"});
    refused({"--crossover", range, "--replan", "--tornado"}, {"--tornado", "--crossover"});
}

}  // namespace
}  // namespace orrery::test
