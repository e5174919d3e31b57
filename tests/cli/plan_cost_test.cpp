// `orrery plan --objective cost` and `energy`.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cli/checks.h"
#include "tests/house/json_schema.h"

namespace orrery::test {
namespace {

using nlohmann::json;

CommandResult priced_plan(const Workplace& here, const std::vector<std::string>& flags) {
    std::vector<std::string> words{"plan", "--model",        "gpt2", "--cluster",        "dgx-h100", "--seq",
                                   "512",  "--global-batch", "32",   "--implementation", "orrery",   "--micro-batch",
                                   "4"};
    words.insert(words.end(), flags.begin(), flags.end());
    return here.run(words);
}

json priced_plans(const CommandResult& result) {
    expect_done(result);
    static const house::SchemaSet schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    EXPECT_EQ(schemas.check(result.out), "");
    return json::parse(result.out);
}

TEST(PlanCost, OnGivenDevicesRanksAsTimeDoes) {
    const Workplace here;
    const json cost = priced_plans(priced_plan(here, {"--gpus", "16", "--objective", "cost", "--top", "3", "--json"}));
    const json time = priced_plans(priced_plan(here, {"--gpus", "16", "--top", "3", "--json"}));
    EXPECT_EQ(cost.at("objective"), "cost");
    EXPECT_EQ(cost.at("figures").at("usd_per_device_hour").at("value"), 2.95);
    ASSERT_GE(cost.at("plans").size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) {
        const json &a = cost.at("plans")[i], &b = time.at("plans")[i];
        EXPECT_EQ(a.at("plan"), b.at("plan"));
        const double hours = a.at("step_time_s").get<double>() / (32 * 512) * 1e9 / 3600;
        EXPECT_NEAR(a.at("usd_per_billion_tokens"), 16 * 2.95 * hours, 1e-3);
        EXPECT_NEAR(a.at("kwh_per_billion_tokens"), 16 * 0.7 * hours, 1e-3);
        EXPECT_FALSE(b.contains("usd_per_billion_tokens"));
    }
    EXPECT_FALSE(time.contains("figures"));
}

TEST(PlanCost, AWholeNodeIsPaidFor) {
    const Workplace here;
    const json part = priced_plans(priced_plan(here, {"--gpus", "4", "--objective", "cost", "--top", "1", "--json"}));
    const json& best = part.at("plans").at(0);
    EXPECT_EQ(best.at("devices"), 4);
    EXPECT_EQ(best.at("spare_devices"), 4);
    const double hours = best.at("step_time_s").get<double>() / (32 * 512) * 1e9 / 3600;
    EXPECT_NEAR(best.at("usd_per_billion_tokens"), 8 * 2.95 * hours, 1e-3);
}

TEST(PlanCost, TheCheapestThatIsFastEnoughNeedsMoreDevices) {
    const Workplace here;
    const std::vector<std::string> any{"--gpus-at-most", "32", "--objective", "cost", "--top", "1"};
    std::vector<std::string> flags = any;
    flags.emplace_back("--json");
    const json cheapest = priced_plans(priced_plan(here, flags)).at("plans").at(0);
    flags.insert(flags.end(), {"--max-step-time", "0%"});
    const json document = priced_plans(priced_plan(here, flags));
    const json& fastest = document.at("plans").at(0);
    EXPECT_EQ(document.at("proven_gap").at("gap"), 0);
    EXPECT_EQ(document.at("considered").at("searches"), 2);
    EXPECT_GT(fastest.at("devices"), cheapest.at("devices"));
    EXPECT_LT(fastest.at("step_time_s"), cheapest.at("step_time_s"));
    EXPECT_GT(fastest.at("usd_per_billion_tokens"), cheapest.at("usd_per_billion_tokens"));
    const json time = priced_plans(priced_plan(here, {"--gpus-at-most", "32", "--top", "1", "--json"}));
    EXPECT_EQ(fastest.at("step_time_s"), time.at("plans").at(0).at("step_time_s"));
    const CommandResult text = priced_plan(here, any);
    expect_done(text);
    for (const char* words : {"$/G tokens", "kWh/G tokens", "2.95 USD a device-hour", "of at most 32 = ",
                              "rank 1 is proven: no other plan considered is cheaper by more than 0.2%"}) {
        EXPECT_NE(text.out.find(words), std::string::npos) << words << "\n" << text.out;
    }
}

TEST(PlanCost, RefusesWhatItCannotPrice) {
    const Workplace here;
    expect_refused(priced_plan(here, {"--gpus", "8", "--objective", "cost", "--pareto"}), 2,
                   {"--objective", "--pareto"});
    expect_refused(priced_plan(here, {"--gpus", "8", "--usd-per-gpu-hour", "2"}), 2, {"--objective", "time", "cost"});
    expect_refused(priced_plan(here, {"--gpus-at-most", "8", "--objective", "memory"}), 2, {"--objective memory"});
    const CommandResult slow =
        priced_plan(here, {"--gpus-at-most", "16", "--objective", "energy", "--max-step-time", "0.0001"});
    EXPECT_EQ(slow.exit_code, 3);
    EXPECT_NE(slow.err.find("the fastest one takes"), std::string::npos) << slow.err;
    const auto on_local = [&](const std::vector<std::string>& more) {
        std::vector<std::string> words{"plan", "--model", "tiny-gpt", "--cluster",      "local", "--ranks",
                                       "2",    "--seq",   "16",       "--global-batch", "4"};
        words.insert(words.end(), more.begin(), more.end());
        return here.run(words);
    };
    expect_refused(on_local({"--objective", "cost"}), 2, {"--objective", "cost", "--usd-per-gpu-hour", "price"});
    expect_refused(on_local({"--objective", "energy"}), 2, {"--objective", "energy", "--watts", "power"});
    expect_done(on_local({"--objective", "cost", "--usd-per-gpu-hour", "0.1"}));
}

}  // namespace
}  // namespace orrery::test
