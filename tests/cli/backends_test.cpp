// `orrery backends`.
#include <gtest/gtest.h>

#include <set>

#include "tests/cli/checks.h"

namespace orrery::test {
namespace {

using nlohmann::json;

json backends(const Workplace& here, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "backends");
    arguments.emplace_back("--json");
    const CommandResult result = here.run(arguments);
    expect_done(result);
    return json::parse(result.out);
}

/// What CPU ranks refuse has no other fate on GPUs, and what they run is refused there for a limit of GPUs only.
TEST(Backends, GpusTakeWhatCpusRun) {
    const Workplace here;
    const json table = backends(here, {});
    std::set<std::string> choices, keys;
    for (const json& limit : table.at("limits")) keys.insert(limit.at("key"));
    for (const json& plan : table.at("plans")) {
        SCOPED_TRACE(plan.dump());
        choices.insert(plan.at("choice"));
        const json& verdicts = plan.at("backends");
        EXPECT_EQ(verdicts.at("cuda"), verdicts.at("cpu"));
        EXPECT_EQ(verdicts.at("cuda_emulated"), verdicts.at("cpu"));
        if (verdicts.at("cpu").at("outcome") == "runs") continue;
        EXPECT_EQ(verdicts.at("cpu").at("outcome"), "refused");
        const std::string reason = verdicts.at("cpu").at("reason");
        EXPECT_TRUE(keys.contains(reason.substr(0, reason.find(':')))) << "the limit is not in the list";
    }
    for (const char* choice : {"data parallelism", "schedule", "precision", "model"}) {
        EXPECT_TRUE(choices.contains(choice)) << choice;
    }
    const CommandResult text = here.run({"backends"});
    expect_done(text);
    EXPECT_NE(text.out.find("fp16"), std::string::npos);
    EXPECT_NE(text.out.find("/model/head_dim"), std::string::npos);
}

TEST(Backends, OfOnePlan) {
    const Workplace here;
    json plan = small_plan();
    plan["model"] = json::parse(here.run({"models", "tiny-gpt", "--json"}).out);
    plan["model"]["head_dim"] = 264;
    const json wide = backends(here, {here.write("wide.plan.json", plan)}).at("plans");
    ASSERT_EQ(wide.size(), 1U);
    EXPECT_EQ(wide[0].at("backends").at("cpu"), json({{"outcome", "runs"}}));
    const json& refused = wide[0].at("backends").at("cuda");
    EXPECT_EQ(refused.at("outcome"), "refused");
    EXPECT_TRUE(refused.at("reason").get<std::string>().starts_with("/model/head_dim: got 264")) << refused;
    EXPECT_EQ(wide[0].at("backends").at("cuda_emulated"), refused);
    const json local = backends(here, {here.write("local.plan.json", local_plan())}).at("plans").at(0).at("backends");
    EXPECT_EQ(local.at("cpu").at("outcome"), "runs");
    EXPECT_EQ(local.at("cuda"),
              json({{"outcome", "refused"}, {"reason", "/cluster: got local; allowed: a cluster of GPUs"}}));
    expect_refused(here.run({"backends", "absent.plan.json"}), 2, {"absent.plan.json"});
}

}  // namespace
}  // namespace orrery::test
