#include "sim/program/plan_list.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/file.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::program {
namespace {

constexpr const char* kBase = R"("schema": "orrery.plan_list/1",
  "base": {"model": "tiny-gpt", "cluster": "dgx-h100", "parallelism": {"dp": 2},
           "training": {"sequence_length": 32, "micro_batch_size": 1, "global_batch_size": 8, "precision": "bf16"}},)";

std::vector<Plan> read(const TestFolder& folder, const std::string& rest) {
    write_file_atomically(folder.file("list.json"), "{" + std::string(kBase) + rest + "}");
    return read_plans(folder.file("list.json"));
}

std::string refusal_of(const TestFolder& folder, const std::string& rest) {
    try {
        (void)read(folder, rest);
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(PlanLists, EachPlanIsTheBaseWithItsChanges) {
    const TestFolder folder;
    const std::vector<Plan> plans = read(folder, R"("plans": {"as it is": {},
        "more": {"parallelism": {"tp": 2}, "training": {"sequence_length": 64, "precision": null}}})");
    ASSERT_EQ(plans.size(), 2U);
    EXPECT_EQ(plans[0].name, "as it is");
    EXPECT_EQ(plans[0].parallelism.dp, 2);
    EXPECT_EQ(plans[0].training.sequence_length, 32);
    EXPECT_EQ(plans[1].name, "more");
    EXPECT_EQ(plans[1].parallelism.dp, 2);
    EXPECT_EQ(plans[1].parallelism.tp, 2);
    EXPECT_EQ(plans[1].training.sequence_length, 64);
    EXPECT_EQ(plans[1].training.global_batch_size, 8);
}

TEST(PlanLists, APlanFileIsAListOfOne) {
    const TestFolder folder;
    const Plan plan = read(folder, R"("plans": {"one": {}})").front();
    write_file_atomically(folder.file("plan.json"), to_json_text(plan));
    EXPECT_EQ(read_plans(folder.file("plan.json")), std::vector<Plan>{plan});
}

TEST(PlanLists, ErrorsNameTheKey) {
    const TestFolder folder;
    const auto expect_words = [&](const std::string& rest, const std::vector<std::string>& words) {
        const std::string message = refusal_of(folder, rest);
        EXPECT_NE(message.find("list.json"), std::string::npos) << message;
        for (const std::string& word : words) EXPECT_NE(message.find(word), std::string::npos) << message;
    };
    expect_words(R"("plans": {"bad": {"parallelism": {"dpp": 2}}})", {"/plans/bad", "/parallelism/dpp", "\"dp\""});
    expect_words(R"("plans": {"bad": 3})", {"/plans/bad", "got 3"});
    expect_words(R"("plans": {})", {"/plans", "at least one plan"});
    expect_words(R"("plan": {"a": {}})", {"plans"});
    expect_words(R"("plans": {"a": {"name": "b"}}, "more": 1)", {"/more"});
}

}  // namespace
}  // namespace orrery::program
