// `orrery diff`.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

json diff_of(const CommandResult& result) {
    expect_done(result);
    static const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    return json::parse(result.out);
}

std::int64_t sum_of(const json& rows, const char* key) {
    std::int64_t sum = 0;
    for (const json& row : rows) sum += row.at(key).get<std::int64_t>();
    return sum;
}

TEST(Diff, RowsSumToTheTotals) {
    const Workplace here;
    for (const auto& [name, dp, tp, pp] : {std::tuple{"a", 4, 1, 1}, {"b", 1, 4, 1}, {"c", 1, 2, 2}, {"d", 2, 1, 2}}) {
        json plan = small_plan(dp, tp, pp);
        plan["training"]["global_batch_size"] = 8;
        here.write(std::string(name) + ".json", plan);
    }
    for (const char* other : {"b.json", "c.json", "d.json"}) {
        const json diff = diff_of(here.run({"diff", "a.json", other, "--json"}));
        const json before = json::parse(here.run({"simulate", "a.json", "--json"}).out);
        const json after = json::parse(here.run({"simulate", other, "--json"}).out);
        const auto step_ps = [](const json& record) {
            return std::llround(record.at("step_time_s").get<double>() * 1e12);
        };
        EXPECT_EQ(sum_of(diff.at("time_ps"), "before"), step_ps(before));
        EXPECT_EQ(sum_of(diff.at("time_ps"), "after"), step_ps(after)) << other;
        EXPECT_EQ(sum_of(diff.at("memory_bytes"), "before"), before.at("memory").at("needed_bytes"));
        EXPECT_EQ(sum_of(diff.at("memory_bytes"), "after"), after.at("memory").at("needed_bytes")) << other;
    }
}

TEST(Diff, InputsThatDifferAreListed) {
    const Workplace here;
    here.write("a.json", small_plan(2));
    json plan = small_plan(1, 2);
    plan["cluster"] = "hgx-h100";
    here.write("b.json", plan);
    const json inputs = diff_of(here.run({"diff", "a.json", "b.json", "--json"})).at("inputs");
    const auto find = [&](const std::string& path) {
        return std::find_if(inputs.begin(), inputs.end(), [&](const json& one) { return one.at("path") == path; });
    };
    ASSERT_NE(find("parallelism.tp"), inputs.end());
    EXPECT_EQ(find("parallelism.tp")->at("before"), "1");
    EXPECT_EQ(find("parallelism.tp")->at("after"), "2");
    EXPECT_EQ(find("cluster.name")->at("after"), "\"hgx-h100\"");
    EXPECT_EQ(inputs.at(0).at("path").get<std::string>().rfind("parallelism.", 0), 0U);  // the plan first
    const json same = diff_of(here.run({"diff", "a.json", "a.json", "--json"}));
    EXPECT_TRUE(same.at("inputs").empty());
    for (const json& row : same.at("time_ps")) EXPECT_EQ(row.at("before"), row.at("after"));
}

TEST(Diff, RecordsTakeThePlaceOfPredictions) {
    const Workplace here;
    for (const auto& [name, dp, tp] : {std::tuple{"a", 2, 1}, {"b", 1, 2}}) {
        here.write(std::string(name) + ".json", small_plan(dp, tp));
        expect_done(
            here.run({"simulate", std::string(name) + ".json", "--record", std::string(name) + ".record.json"}));
    }
    const CommandResult predicted = here.run({"diff", "a.json", "b.json", "--json"});
    EXPECT_EQ(here.run({"diff", "a.json", "b.json", "--records", "a.record.json", "b.record.json", "--json"}).out,
              predicted.out);
    // The records of the other plans, and one without instructions.
    expect_refused(here.run({"diff", "a.json", "b.json", "--records", "b.record.json", "a.record.json"}), 2,
                   {"b.record.json"});
    here.write("short.record.json", json::parse(here.run({"simulate", "a.json", "--json"}).out));
    expect_refused(here.run({"diff", "a.json", "b.json", "--records", "short.record.json", "b.record.json"}), 2,
                   {"short.record.json", "spans"});
}

TEST(Diff, TextShowsTheLargestChangeFirst) {
    const Workplace here;
    here.write("a.json", small_plan(2));
    here.write("b.json", small_plan(1, 2));
    const CommandResult result = here.run({"diff", "a.json", "b.json"});
    expect_done(result);
    for (const char* text :
         {"predicted", "time of a mean rank", "memory of the fullest rank", "exposed tp", "sum", "parallelism.tp"}) {
        EXPECT_NE(result.out.find(text), std::string::npos) << text << "\n" << result.out;
    }
}

}  // namespace
}  // namespace orrery::test
