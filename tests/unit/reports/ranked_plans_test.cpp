#include "reports/ranked_plans.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "models/implementation.h"
#include "models/model_spec.h"
#include "tests/house/json_schema.h"
#include "tests/unit/reports/sample.h"
#include "topologies/cluster_spec.h"

namespace orrery::reports {
namespace {

program::PlanResult feasible(double step_time_s) {
    program::PlanResult result;
    result.plan = sample::plan();
    result.step_time_s = step_time_s;
    result.tokens_per_s_per_device = 12345.6;
    result.utilization.mfu = 0.417;
    result.utilization.hfu = 0.523;
    result.utilization.peak_flops_per_s = 2e12;
    result.peak_memory_gib = 71.25;
    result.exposed_communication_s = 0.012;
    result.idle_fraction = 0.101;
    result.bubble_fraction = 0.072;
    result.feasible = true;
    return result;
}

program::PlanResult infeasible(const std::string& reason, double peak_memory_gib) {
    program::PlanResult result;
    result.plan = sample::plan();
    result.peak_memory_gib = peak_memory_gib;
    result.reason = reason;
    return result;
}

std::vector<program::PlanResult> sample_results() {
    return {feasible(1.5), feasible(2.25), infeasible("memory: 91.0 GiB of 80 GiB", 91),
            infeasible("memory: 91.0 GiB of 80 GiB", 91), infeasible("heads", 0)};
}

TEST(RankedPlans, Text) {
    const std::string text = ranked_plans_text(sample_results());
    for (const char* part :
         {"1.50 s", "2.25 s", "12,345", "41.7%", "52.3%", "71.2", "12.0 ms", "10.1%", "7.2%", "(palm) over 2 TFLOP/s",
          "3 plans are not feasible", "   2  memory: 91.0 GiB of 80 GiB", "   1  heads"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
    EXPECT_LT(text.find("1.50 s"), text.find("2.25 s"));
}

TEST(RankedPlans, ColumnsAreShownEvenIfAllValuesAreEqual) {
    std::vector<program::PlanResult> results = sample_results();
    const std::string text = ranked_plans_text(results);
    for (const char* header : {"stack", " cp ", " data ", " VPP ", " recompute ", " bubble ", " idle"}) {
        EXPECT_NE(text.find(header), std::string::npos) << header << "\n" << text;
    }
    EXPECT_EQ(text.find(" ep "), std::string::npos) << "the model has no experts\n" << text;
    for (program::PlanResult& result : results) result.plan.model.moe.expert_count = 8;
    EXPECT_NE(ranked_plans_text(results).find(" ep "), std::string::npos);
}

TEST(RankedPlans, SparesHaveColumnsIfSomePlanLeavesDevicesIdle) {
    std::vector<program::PlanResult> results = sample_results();
    EXPECT_EQ(ranked_plans_text(results).find("spares"), std::string::npos);
    results[1].spare_devices = 3;
    const std::string text = ranked_plans_text(results);
    EXPECT_NE(text.find(" devices  spares "), std::string::npos) << text;
    const auto plans = nlohmann::json::parse(ranked_plans_json(results, {})).at("plans");
    EXPECT_EQ(plans.at(0).at("spare_devices"), 0);
    EXPECT_EQ(plans.at(1).at("spare_devices"), 3);
    EXPECT_EQ(plans.at(1).at("devices"), results[1].plan.parallelism.world_size());
}

TEST(RankedPlans, OmittedPlansAreCounted) {
    const std::string text = ranked_plans_text(sample_results(), 1);
    EXPECT_EQ(text.find("2.25 s"), std::string::npos);
    EXPECT_NE(text.find("and 1 more feasible plans"), std::string::npos) << text;
    const std::vector<program::PlanResult> none = {infeasible("heads", 0)};
    EXPECT_NE(ranked_plans_text(none).find("no feasible plan"), std::string::npos);
    EXPECT_NE(ranked_plans_text(none).find("1 plan is not feasible"), std::string::npos);
}

TEST(RankedPlans, Json) {
    const std::string text = ranked_plans_json(sample_results(), {});
    EXPECT_EQ(text.rfind("{\n  \"schema\": \"orrery.plans/2\"", 0), 0U);
    const auto document = nlohmann::json::parse(text);
    const auto& plans = document.at("plans");
    ASSERT_EQ(plans.size(), 5U);
    EXPECT_EQ(plans[0].at("rank"), 1);
    EXPECT_EQ(plans[1].at("rank"), 2);
    EXPECT_EQ(plans[1].at("step_time_s"), 2.25);
    EXPECT_TRUE(plans[2].at("rank").is_null());
    EXPECT_TRUE(plans[2].at("step_time_s").is_null());
    EXPECT_EQ(plans[2].at("peak_memory_gib"), 91.0);
    EXPECT_EQ(plans[2].at("reason"), "memory: 91.0 GiB of 80 GiB");
    EXPECT_TRUE(plans[4].at("peak_memory_gib").is_null());
    EXPECT_EQ(plans[0].at("plan").at("name"), "sample");
}

/// Results of which the second is tied with the first and the third is not.
std::vector<program::PlanResult> compared() {
    std::vector<program::PlanResult> results{feasible(1.5), feasible(1.6), feasible(2.25), infeasible("heads", 91)};
    results[0].to_first = program::RatioToFirst{};
    results[1].to_first = program::RatioToFirst{.ratio = 1.07, .low = 0.97, .high = 1.2, .faster_probability = 0.12};
    results[2].to_first = program::RatioToFirst{.ratio = 1.5, .low = 1.3, .high = 1.7, .faster_probability = 0.001};
    results[0].shares = {{program::Limit::compute, 0.75}, {program::Limit::tp_nic, 0.25}};
    results[0].limit = program::Limit::compute;
    results[3].limit = program::Limit::memory_states;
    results[3].fix = program::PlanFix{.change = "micro-batch 1 instead of 2", .gib = -12.5, .step_time_s = 1.75};
    return results;
}

TEST(RankedPlans, JsonConformsToItsSchema) {
    const auto schemas = house::repository_schemas(ORRERY_SOURCE_DIR);
    std::vector<program::PlanResult> results = sample_results();
    for (program::PlanResult& result : results) {
        result.plan.model = models::load_model("llama3-8b");
        result.plan.cluster = topologies::load_cluster("dgx-h100", 8);
        result.plan.implementation = models::load_implementation("orrery");
    }
    EXPECT_EQ(schemas.check(ranked_plans_json(results, {})), "");
    std::vector<program::PlanResult> standing = compared();
    for (program::PlanResult& result : standing) result.plan = results.front().plan;
    standing.front().fastest_within = program::LimitRange{71.25, 78};
    const program::SearchSummary search{.spaces = {{"orrery", {{"tp", "1, 2"}}, {"schedules gpipe"}}}};
    standing.back().shares.clear();
    for (const program::Limit limit : enum_values<program::Limit, program::kLimitCount>()) {
        standing.back().limit = limit;
        standing.back().shares.push_back({limit, 0});
        EXPECT_EQ(schemas.check(ranked_plans_json(standing, search)), "") << program::name_of(limit);
    }
    EXPECT_EQ(schemas.check(ranked_plans_json({}, {})), "");
}

TEST(RankedPlans, TiesAreMarked) {
    const std::string text = ranked_plans_text(compared());
    EXPECT_NE(text.find("\n2= "), std::string::npos) << text;
    EXPECT_EQ(text.find("1="), std::string::npos) << "the first plan is no tie with itself\n" << text;
    EXPECT_EQ(text.find("3="), std::string::npos) << text;
    EXPECT_NE(text.find("\n=: indistinguishable from 1"), std::string::npos) << text;
    // No legend for marks that are not shown.
    EXPECT_EQ(ranked_plans_text(compared(), 1).find("indistinguishable"), std::string::npos);
    EXPECT_EQ(ranked_plans_text(sample_results()).find("indistinguishable"), std::string::npos);
}

TEST(RankedPlans, JsonStatesStandingLimitsAndFixes) {
    const auto document = nlohmann::json::parse(ranked_plans_json(compared(), {}));
    const auto& plans = document.at("plans");
    EXPECT_EQ(plans[0].at("tie"), true);
    EXPECT_EQ(plans[1].at("tie"), true);
    EXPECT_EQ(plans[2].at("tie"), false);
    EXPECT_TRUE(plans[3].at("tie").is_null());
    EXPECT_EQ(plans[1].at("step_ratio_to_first"), 1.07);
    EXPECT_EQ(plans[1].at("step_ratio_to_first_interval90"), nlohmann::json({0.97, 1.2}));
    EXPECT_EQ(plans[1].at("faster_than_first_probability"), 0.12);
    EXPECT_EQ(plans[0].at("binding_constraint"), "compute");
    EXPECT_EQ(plans[0].at("step_shares").at("tp_communication_between_nodes"), 0.25);
    EXPECT_TRUE(plans[1].at("binding_constraint").is_null());
    EXPECT_EQ(plans[3].at("binding_constraint"), "memory_states");
    EXPECT_TRUE(plans[0].at("fix").is_null());
    EXPECT_EQ(plans[3].at("fix").at("gib"), -12.5);
    EXPECT_EQ(plans[3].at("fix").at("change"), "micro-batch 1 instead of 2");
}

TEST(RankedPlans, JsonStatesTheSearch) {
    program::SearchSummary search{.objective = program::Objective::memory,
                                  .memory_limit_gib = 78.5,
                                  .step_limit_s = 2.5,
                                  .counts = {.considered = 100,
                                             .bounded = 50,
                                             .sketched = 20,
                                             .simulated = 3,
                                             .too_large = 9,
                                             .left_out = 1,
                                             .searches = 4},
                                  .proven_gap = 0.003,
                                  .proven_ranks = 1,
                                  .tolerance = 0.002,
                                  .spaces = {{"orrery", {{"tp", "1, 2"}}, {"schedules gpipe"}}}};
    const auto document = nlohmann::json::parse(ranked_plans_json({}, search));
    EXPECT_EQ(document.at("objective"), "memory");
    EXPECT_EQ(document.at("memory_limit_gib"), 78.5);
    EXPECT_EQ(document.at("step_limit_s"), 2.5);
    EXPECT_EQ(document.at("considered").at("sketched"), 20);
    EXPECT_EQ(document.at("considered").at("searches"), 4);
    EXPECT_EQ(document.at("proven_gap").at("gap"), 0.003);
    EXPECT_EQ(document.at("space").at(0).at("searched").at("tp"), "1, 2");
    EXPECT_EQ(document.at("space").at(0).at("outside").at(0), "schedules gpipe");
    EXPECT_TRUE(nlohmann::json::parse(ranked_plans_json({}, {})).at("step_limit_s").is_null());
}

}  // namespace
}  // namespace orrery::reports
