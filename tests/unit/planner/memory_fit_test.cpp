// The rule by which every command decides whether a plan fits, and the changes that make one fit.
#include <gtest/gtest.h>

#include <set>

#include "core/units.h"
#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::MemoryFit;
using program::Plan;
using program::Remedy;

/// The best plan of Llama-3.1-70B on 64 H100.
Plan best_plan(const char* implementation) {
    PlanRequest request = request_for("llama3.1-70b", 64, 64, 2048);
    request.implementation = models::load_implementation(implementation);
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    request.training.precision = program::precision_named("bf16", request.implementation);
    allow_every_technique(request);
    return search(request, 1).results.front().plan;
}

TEST(MemoryFit, AgreesWithTheSearchAndTheEvaluation) {
    for (const char* implementation : {"megatron-core", "torch-fsdp2"}) {
        PlanRequest request = request_for("llama3.1-70b", 64, 64, 2048);
        request.implementation = models::load_implementation(implementation);
        request.rates = program::resolve_rates(request.implementation, request.cluster);
        allow_every_technique(request);
        const PlanSearch found = search(request, 3);
        for (const program::PlanResult& result : feasible_of(found)) {
            const program::Program program = program::lower(result.plan);
            const MemoryFit fit = memory_fit(program);
            EXPECT_TRUE(fit.fits());
            EXPECT_NEAR(to_gib(Bytes(fit.needed_bytes)), result.peak_memory_gib, 1e-9) << result.plan.name;
            const Evaluation evaluation = evaluate(program, topologies::Cluster(result.plan.cluster));
            EXPECT_NEAR(evaluation.result.peak_memory_gib, result.peak_memory_gib, 1e-9);
            EXPECT_EQ(evaluation.record.memory_needed_bytes, fit.needed_bytes);
            EXPECT_EQ(evaluation.record.memory_allowed_bytes, fit.allowed_bytes);
        }
    }
}

TEST(MemoryFit, LeavesAMarginOfTheUsableMemory) {
    const Plan plan = best_plan("megatron-core");
    const double usable_gib = plan.cluster.device.usable_gib();
    EXPECT_LT(usable_gib, plan.cluster.device.memory_capacity_gib.value);
    const auto gib_of = [&](std::optional<double> margin) {
        return to_gib(Bytes(memory_per_rank_bytes(plan, margin)));
    };
    EXPECT_NEAR(gib_of({}), usable_gib - kDefaultMemoryMarginGib, 1e-6);
    EXPECT_NEAR(gib_of(0.0), usable_gib, 1e-6);
    EXPECT_NEAR(gib_of(10.0), usable_gib - 10, 1e-6);
    EXPECT_EQ(gib_of(1000.0), 0);
    const program::Program program = program::lower(plan);
    EXPECT_TRUE(memory_fit(program).fits());
    const double needed_gib = to_gib(Bytes(memory_fit(program).needed_bytes));
    EXPECT_TRUE(memory_fit(program, usable_gib - needed_gib - 1e-6).fits());
    EXPECT_FALSE(memory_fit(program, usable_gib - needed_gib + 1e-6).fits());
}

TEST(MemoryFit, SearchRespectsTheRequestedMargin) {
    PlanRequest request = request_for("llama3-8b", 8, 32, 8192);
    const std::vector<program::PlanResult> roomy = feasible_of(search(request, 5));
    request.memory_margin_gib = 40;
    const std::vector<program::PlanResult> tight = feasible_of(search(request, 5));
    ASSERT_FALSE(roomy.empty());
    ASSERT_FALSE(tight.empty());
    for (const program::PlanResult& result : tight) EXPECT_LE(result.peak_memory_gib, 79.1 - 40);
    EXPECT_LE(roomy.front().step_time_s, tight.front().step_time_s);
}

TEST(Remedies, FitAndAreTheFewestChanges) {
    Plan plan = best_plan("torch-fsdp2");
    plan.training.memory.recompute = program::Recompute::none;
    plan.training.memory.recompute_parts.clear();
    plan.training.micro_batch_size *= 2;
    plan.training.global_batch_size *= 2;
    ASSERT_FALSE(memory_fit(program::lower(plan)).fits());
    const topologies::Cluster cluster(plan.cluster);
    const std::vector<Remedy> found = remedies(plan, cluster, 10);
    ASSERT_FALSE(found.empty());
    double before = 0;
    for (const Remedy& remedy : found) {
        EXPECT_EQ(remedy.changes.size(), 1U);
        EXPECT_TRUE(memory_fit(program::lower(remedy.plan)).fits()) << remedy.changes.front();
        EXPECT_GE(remedy.step_time_s, before);
        before = remedy.step_time_s;
    }
    EXPECT_EQ(remedies(plan, cluster, 1).size(), 1U);
}

TEST(Remedies, CombineChangesWhereOneDoesNotSuffice) {
    Plan plan = best_plan("megatron-core");
    // Replicas of a whole 70B model on each pair of devices: neither sharding nor recomputation alone helps.
    plan.parallelism = {.dp = 32, .tp = 2};
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, 1);
    plan.training.micro_batch_size = 2;
    plan.training.memory = {};
    const std::vector<Remedy> found = remedies(plan, topologies::Cluster(plan.cluster), 10);
    ASSERT_FALSE(found.empty());
    std::set<std::size_t> counts;
    for (const Remedy& remedy : found) counts.insert(remedy.changes.size());
    EXPECT_EQ(counts.size(), 1U);
    EXPECT_GT(*counts.begin(), 1U);
}

TEST(Remedies, LeaveAPipelineOfAsManyStagesAsBlocksAsItIs) {
    Plan plan = best_plan("megatron-core");
    plan.parallelism = {.dp = 2, .pp = plan.model.layers};
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, plan.parallelism.pp);
    plan.cluster = topologies::load_cluster("dgx-h100", plan.parallelism.world_size());
    plan.training.global_batch_size = 128;
    plan.training.micro_batch_size = 64;
    plan.training.memory = {};
    program::check_plan(plan, "deep");
    ASSERT_FALSE(memory_fit(program::lower(plan)).fits());
    for (const Remedy& remedy : remedies(plan, topologies::Cluster(plan.cluster), 10)) {
        EXPECT_EQ(remedy.plan.parallelism.pp, plan.parallelism.pp);
    }
}

TEST(Remedies, RespectTheImplementationsLimits) {
    Plan plan = best_plan("torch-fsdp2");
    plan.implementation = models::load_implementation("torch-ddp");
    plan.rates = program::resolve_rates(plan.implementation, plan.cluster);
    plan.parallelism = {.dp = 64};
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, 1);
    plan.training.micro_batch_size = 1;
    plan.training.memory = {};
    EXPECT_TRUE(remedies(plan, topologies::Cluster(plan.cluster), 10).empty())
        << "a 70B model does not fit as replicas";
}

}  // namespace
}  // namespace orrery::sim
