// `orrery plan` with other objectives, limits and exclusions.
#include <gtest/gtest.h>

#include <set>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

CommandResult plan(const Workplace& here, const std::vector<std::string>& flags) {
    std::vector<std::string> words{"plan",   "--model",        "gpt2", "--cluster", "dgx-h100", "--gpus",
                                   "8",      "--global-batch", "32",   "--seq",     "512",      "--implementation",
                                   "orrery", "--top",          "4"};
    words.insert(words.end(), flags.begin(), flags.end());
    return here.run(words);
}

/// As plan(), with a smaller space.
CommandResult plan_of_one_size(const Workplace& here, std::vector<std::string> flags) {
    flags.insert(flags.end(), {"--micro-batch", "4"});
    return plan(here, flags);
}

json plans_of(const CommandResult& result) {
    expect_done(result);
    static const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    json document = json::parse(result.out);
    EXPECT_FALSE(document.at("plans").empty());
    EXPECT_EQ(document.at("plans").at(0).at("rank"), 1);
    return document;
}

TEST(PlanGoal, TheDocumentStatesWhatWasSearchedAndProven) {
    const Workplace here;
    const json document = plans_of(plan_of_one_size(here, {"--json"}));
    EXPECT_EQ(document.at("schema"), "orrery.plans/2");
    EXPECT_EQ(document.at("objective"), "time");
    EXPECT_TRUE(document.at("step_limit_s").is_null());
    const json& counts = document.at("considered");
    EXPECT_GT(counts.at("considered"), counts.at("bounded"));
    EXPECT_GT(counts.at("bounded"), counts.at("sketched"));
    EXPECT_GT(counts.at("simulated"), 3);
    EXPECT_EQ(counts.at("searches"), 1);
    EXPECT_EQ(document.at("proven_gap").at("gap"), 0);
    EXPECT_GE(document.at("proven_gap").at("ranks"), 1);
    EXPECT_EQ(document.at("space").at(0).at("searched").at("tp"), "1, 2, 4");
    const json& first = document.at("plans").at(0);
    EXPECT_EQ(first.at("tie"), true);
    EXPECT_EQ(first.at("step_ratio_to_first"), 1);
    EXPECT_EQ(first.at("faster_than_first_probability"), 0);
    const json& shares = first.at("step_shares");
    double sum = 0;
    for (const auto& [name, share] : shares.items()) {
        sum += share.get<double>();
        EXPECT_LE(share, shares.at(first.at("binding_constraint").get<std::string>())) << name;
    }
    EXPECT_NEAR(sum, 1, 1e-9);
    for (const json& one : document.at("plans")) {
        if (one.at("rank").is_null() || one.at("rank") == 1) continue;
        const double probability = one.at("faster_than_first_probability");
        EXPECT_GT(probability, 0);
        EXPECT_LE(probability, 0.5);
        EXPECT_EQ(one.at("tie"), one.at("step_ratio_to_first_interval90").at(0) <= 1);
    }
}

TEST(PlanGoal, TheTableMarksTiesAndNamesTheSpace) {
    const Workplace here;
    const CommandResult done = plan(here, {});
    expect_done(done);
    for (const char* part : {"plans considered; ", " bounded one by one", " sketched by short lowerings, ",
                             "\n2= ", "=: indistinguishable from 1", "rank 1 is proven",
                             "searched (orrery): tp 1, 2, 4;", "outside (orrery): schedules naive, gpipe"}) {
        EXPECT_NE(done.out.find(part), std::string::npos) << part << "\n" << done.out;
    }
}

TEST(PlanGoal, LeastMemoryAndTheFront) {
    const Workplace here;
    const auto plan = [&](std::vector<std::string> flags) {
        flags.insert(flags.end(), {"--pp", "1", "--micro-batch", "2"});
        return test::plan(here, flags);
    };
    const json fastest = plans_of(plan({"--json"})).at("plans").at(0);
    const json least = plans_of(plan({"--objective", "memory", "--json"}));
    EXPECT_EQ(least.at("objective"), "memory");
    EXPECT_EQ(least.at("proven_gap").at("gap"), 0);
    const double least_gib = least.at("plans").at(0).at("peak_memory_gib");
    EXPECT_LT(least_gib, fastest.at("peak_memory_gib"));

    const json near = plans_of(plan({"--objective", "memory", "--max-step-time", "10%", "--json"}));
    const double limit_s = near.at("step_limit_s");
    EXPECT_NEAR(limit_s, 1.1 * fastest.at("step_time_s").get<double>(), 1e-9);
    EXPECT_LE(near.at("plans").at(0).at("step_time_s"), limit_s);
    EXPECT_GE(near.at("plans").at(0).at("peak_memory_gib"), least_gib);

    const json front = plans_of(plan({"--pareto", "--json"}));
    EXPECT_EQ(front.at("objective"), "pareto");
    double last_s = 0, last_gib = 1e9;
    std::size_t points = 0;
    for (const json& one : front.at("plans")) {
        if (one.at("rank").is_null()) continue;
        ++points;
        EXPECT_GT(one.at("step_time_s"), last_s);
        EXPECT_LT(one.at("peak_memory_gib"), last_gib);
        last_s = one.at("step_time_s");
        last_gib = one.at("peak_memory_gib");
        EXPECT_EQ(one.at("fastest_within_gib").at(0), last_gib);
    }
    EXPECT_GE(points, 2U);
    EXPECT_LE(points, 4U);
    EXPECT_EQ(last_gib, least_gib);
    EXPECT_EQ(front.at("proven_gap").at("ranks"), points);

    const CommandResult text = plan({"--objective", "memory", "--max-step-time", "10%"});
    expect_done(text);
    EXPECT_NE(text.out.find("rank 1 is proven: no plan considered with a step of at most "), std::string::npos);
    const CommandResult table = plan({"--pareto"});
    expect_done(table);
    EXPECT_NE(table.out.find("fastest within GiB"), std::string::npos) << table.out;
}

TEST(PlanGoal, LimitsAndExclusionsHold) {
    const Workplace here;
    const json free = plans_of(plan_of_one_size(here, {"--json"}));
    const double gib = free.at("plans").at(0).at("peak_memory_gib");
    const json limited = plans_of(plan_of_one_size(here, {"--max-memory", std::to_string(gib - 0.01), "--json"}));
    EXPECT_NEAR(limited.at("memory_limit_gib"), gib - 0.01, 1e-5);
    for (const json& one : limited.at("plans")) {
        if (one.at("rank").is_null()) continue;
        EXPECT_LT(one.at("peak_memory_gib"), gib - 0.009);
    }
    const json best = free.at("plans").at(0).at("plan").at("parallelism");
    const std::string data = best.at("data_parallel"), tp = "tp=" + std::to_string(best.at("tp").get<int>());
    const json excluding = plans_of(plan_of_one_size(here, {"--exclude", data, "--exclude", tp, "--json"}));
    for (const json& one : excluding.at("plans")) {
        EXPECT_NE(one.at("plan").at("parallelism").at("data_parallel"), data);
        EXPECT_NE(one.at("plan").at("parallelism").at("tp"), best.at("tp"));
    }
    const json& outside = excluding.at("space").at(0).at("outside");
    EXPECT_NE(std::find(outside.begin(), outside.end(), "excluded: data=" + data), outside.end()) << outside;
}

TEST(PlanGoal, WrongValuesAreRefused) {
    const Workplace here;
    using Words = std::vector<std::string>;
    for (const auto& [flags, words] : std::vector<std::pair<Words, Words>>{
             {{"--exclude", "tensor=2"}, {"--exclude: got tensor=2", "one of the fields stack, dp, tp"}},
             {{"--exclude", "tp=x"}, {"--exclude: got tp=x", "a whole number"}},
             {{"--exclude", "schedule=zbv"}, {"--exclude: got schedule=zbv", "zb-v"}},
             {{"--exclude", "zero9"}, {"--exclude: got zero9", "FIELD=VALUE"}},
             {{"--exclude", "stack=orrery"}, {"--exclude: got stack=orrery", "not all of the stacks"}},
             {{"--exclude", "dp=8", "--tp", "1", "--pp", "1"}, {"excluded: got dp=8"}},
             {{"--objective", "speed"}, {"--objective", "time", "memory"}},
             {{"--max-memory", "0"}, {"--max-memory"}},
             {{"--max-memory", "500"}, {"--max-memory: got 500", "at most 7"}},
             {{"--max-step-time", "3"}, {"--max-step-time: got 3", "--objective memory, cost or energy, or --pareto"}},
             {{"--pareto", "--max-step-time", "-3"}, {"--max-step-time: got -3", "seconds"}},
             {{"--pareto", "--max-step-time", "5%%"}, {"--max-step-time: got 5%%", "percentage"}},
             {{"--pareto", "--max-step-time", "nan"}, {"--max-step-time: got nan"}},
             {{"--pareto", "--objective", "memory"}, {"--objective: got memory", "--pareto"}},
             {{"--pareto", "--prove-top", "2"}, {"--prove-top: got 2"}},
             {{"--pareto", "--top", "1"}, {"--top"}}}) {
        expect_refused(plan(here, flags), 2, words);
    }
    const CommandResult slow = plan_of_one_size(here, {"--objective", "memory", "--max-step-time", "0.0001"});
    expect_refused(slow, 3, {"no plan has a step of at most 0.0001 s", "the fastest one takes"});
    EXPECT_EQ(slow.err.find("nearest"), std::string::npos) << slow.err;  // memory is not what it lacks
    expect_refused(plan_of_one_size(here, {"--max-memory", "0.5"}), 3, {"fits in the 0.5 GiB"});
}

TEST(PlanGoal, ALayoutMayHaveOneStage) {
    const Workplace here;
    const json document = plans_of(plan_of_one_size(here, {"--json", "--stage-layout", "Et*12L"}));
    for (const json& plan : document.at("plans")) EXPECT_EQ(plan.at("plan").at("parallelism").at("pp"), 1);
}

}  // namespace
}  // namespace orrery::test
