// What the planner answers beside its ranking: changes of a plan and of its inputs, the nearest plan, the smallest
// cluster, shortlists and the decision guide.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/advise.h"
#include "sim/planner/guide.h"
#include "sim/planner/nearest_plan.h"
#include "sim/planner/plan_changes.h"
#include "sim/planner/shortlist.h"
#include "sim/planner/timing.h"
#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::PlanResult;
using program::WhatIf;

/// Of one implementation, on DGX H100.
RequestsFor requests_for(const char* model, std::int64_t batch, std::int64_t sequence,
                         const std::string& implementation = "orrery") {
    return [=](std::int64_t devices) {
        return std::vector<PlanRequest>{request_for(model, devices, batch, sequence, implementation)};
    };
}

double step_of(const Plan& plan) {
    return timed(plan, topologies::Cluster(plan.cluster), RooflineCost(plan.cluster, plan.rates)).step_time_s;
}

TEST(PlanChanges, AreValidAndDifferInOneChoice) {
    const PlanRequest request = plain(request_for("llama3-8b", 16, 32, 4096));
    const Plan plan = search(request, 1).results.front().plan;
    const std::vector<PlanChange> changes = single_changes(plan);
    EXPECT_GE(changes.size(), 6U);
    std::set<std::string> names;
    for (const PlanChange& change : changes) {
        EXPECT_TRUE(names.insert(change.description).second) << change.description;
        EXPECT_NO_THROW(program::check_plan(change.plan, "the test"));
        EXPECT_FALSE(change.plan.parallelism == plan.parallelism &&
                     change.plan.training.memory == plan.training.memory &&
                     change.plan.training.micro_batch_size == plan.training.micro_batch_size)
            << change.description;
        EXPECT_EQ(change.plan.parallelism.world_size(), plan.parallelism.world_size());
        EXPECT_EQ(change.plan.training.global_batch_size, plan.training.global_batch_size);
        EXPECT_EQ(change.plan.model, plan.model);
        EXPECT_EQ(change.plan.cluster, plan.cluster);
    }
}

TEST(PlanChanges, TradeDegreesByFactorsOfTwo) {
    PlanRequest request = plain(request_for("gpt2", 8, 16, 512));
    request.tp = 2;
    request.pp = 2;
    const Plan plan = search(request, 1).results.front().plan;
    std::set<std::array<std::int64_t, 3>> meshes;
    for (const PlanChange& change : single_changes(plan)) {
        const program::Parallelism& p = change.plan.parallelism;
        if (p.cp == 1) meshes.insert({p.dp, p.tp, p.pp});
    }
    // From dp 2, tp 2, pp 2: one of them doubled, another one halved.
    const std::set<std::array<std::int64_t, 3>> wanted{{2, 2, 2}, {4, 1, 2}, {4, 2, 1}, {1, 4, 2},
                                                       {2, 4, 1}, {1, 2, 4}, {2, 1, 4}};
    EXPECT_EQ(meshes, wanted);
}

TEST(Advise, ChangesAreSimulatedAndNoneThatFitsBeatsTheProvenBest) {
    const PlanRequest request = request_for("llama3-8b", 8, 16, 8192);
    const PlanSearch found = search(request, 1);
    const program::PlanAdvice advice = advise(found.results, {request}, 3);
    EXPECT_NEAR(to_gib(Bytes(advice.memory.needed_bytes)), advice.best.peak_memory_gib, 1e-6);
    EXPECT_TRUE(advice.memory.fits());
    EXPECT_GT(advice.memory.other_bytes(), 0);
    ASSERT_FALSE(advice.plan_changes.empty());
    EXPECT_TRUE(std::is_sorted(advice.plan_changes.begin(), advice.plan_changes.end(),
                               [](const WhatIf& a, const WhatIf& b) { return a.step_time_s < b.step_time_s; }));
    const std::vector<PlanChange> changes = single_changes(advice.best.plan);
    for (const WhatIf& what_if : advice.plan_changes) {
        if (what_if.memory.fits()) {
            EXPECT_GT(what_if.step_time_s, (1 - kStepTolerance) * advice.best.step_time_s) << what_if.change;
        }
        const auto change = std::find_if(changes.begin(), changes.end(),
                                         [&](const PlanChange& one) { return one.description == what_if.change; });
        ASSERT_NE(change, changes.end()) << what_if.change;
        EXPECT_EQ(what_if.memory.needed_bytes, lowered_memory_bytes(change->plan));
    }
    const auto first = std::find_if(changes.begin(), changes.end(), [&](const PlanChange& one) {
        return one.description == advice.plan_changes.front().change;
    });
    EXPECT_DOUBLE_EQ(advice.plan_changes.front().step_time_s, step_of(first->plan));
}

TEST(Advise, FasterLinksAndMoreMemoryHelpAsTheyMust) {
    const PlanRequest request = request_for("llama3-8b", 16, 32, 8192);
    const program::PlanAdvice advice = advise(search(request, 1).results, {request}, 0);
    std::set<std::string> kinds;
    for (const WhatIf& change : advice.input_changes) {
        kinds.insert(change.of);
        if (change.of == "links" || change.of == "memory") {
            EXPECT_LE(change.step_time_s, (1 + kStepTolerance) * advice.best.step_time_s) << change.change;
        }
        if (change.of == "memory") {
            EXPECT_GT(change.memory.allowed_bytes, advice.memory.allowed_bytes);
            EXPECT_TRUE(change.memory.fits());
        }
    }
    for (const char* kind : {"batch", "sequence", "devices", "links", "precision", "implementation"}) {
        EXPECT_EQ(kinds.count(kind), 1U) << kind;
    }
    EXPECT_TRUE(std::is_sorted(
        advice.input_changes.begin(), advice.input_changes.end(),
        [](const WhatIf& a, const WhatIf& b) { return a.tokens_per_s_per_device > b.tokens_per_s_per_device; }));
}

TEST(Advise, MeshesWithoutAPlanGetAFixThatFits) {
    PlanRequest request = request_for("llama3-8b", 8, 16, 16384);
    request.cp = 1;
    request.recompute = {program::Recompute::none};
    request.schedules = {program::Schedule::one_f_one_b};
    request.data_parallel = {program::DataParallel::zero3};
    std::vector<PlanResult> results{search(request, 1).results.front()};
    PlanRequest narrow = request;
    narrow.tp = narrow.pp = 1;
    const LeanPlan lean = leanest_plan({narrow});
    ASSERT_FALSE(lean.memory.fits());
    const double peak_gib = to_gib(Bytes(lean.memory.needed_bytes));
    results.push_back({.plan = lean.plan, .peak_memory_gib = peak_gib});
    results.push_back({.plan = lean.plan, .peak_memory_gib = 2 * peak_gib});
    EXPECT_EQ(advise(results, {request}, 0).meshes_left_out, 2U);
    const program::PlanAdvice advice = advise(results, {request}, 1);
    ASSERT_EQ(advice.meshes.size(), 1U);
    EXPECT_EQ(advice.meshes_left_out, 1U);
    add_fixes(results, {request}, 1);
    ASSERT_TRUE(results[1].fix.has_value());
    EXPECT_LT(results[1].fix->gib, 0);
    EXPECT_FALSE(results[2].fix.has_value());
    const program::MeshMisfit& mesh = advice.meshes.front();
    EXPECT_FALSE(mesh.memory.fits());
    EXPECT_EQ(mesh.memory.needed_bytes, lowered_memory_bytes(mesh.plan));
    ASSERT_TRUE(mesh.fix.has_value());
    EXPECT_LE(lowered_memory_bytes(mesh.fix->plan), mesh.memory.allowed_bytes);
    EXPECT_DOUBLE_EQ(mesh.fix->step_time_s, step_of(mesh.fix->plan));
    EXPECT_EQ(mesh.fix->plan.parallelism.tp, mesh.plan.parallelism.tp) << "a fix that keeps the mesh comes first";
}

TEST(Remedies, RecomputeNoMoreBlocksThanNeeded) {
    PlanRequest request = plain(request_for("llama3-8b", 8, 16, 8192));
    request.tp = 8;
    request.micro_batch_size = 4;
    Plan plan = plan_of(request, {.dp = 1, .tp = 8, .sequence_parallel = true, .micro_batch = 4});
    program::MemorySavings& memory = plan.training.memory;
    // A limit for which 20 of the 32 blocks have to be recomputed; 20 is no power of two.
    memory.recompute = program::Recompute::full;
    memory.recompute_layers = 20;
    const std::int64_t limit = lowered_memory_bytes(plan) + (std::int64_t{1} << 20);
    memory.recompute = program::Recompute::selective;
    memory.recompute_layers = -1;
    memory.recompute_parts = selective_parts(request);
    ASSERT_GT(lowered_memory_bytes(plan), limit);
    const double margin_gib = plan.cluster.device.usable_gib() - to_gib(Bytes(limit));
    bool found = false;
    for (const program::Remedy& remedy : remedies(plan, topologies::Cluster(plan.cluster), 10, margin_gib)) {
        if (remedy.plan.training.memory.recompute != program::Recompute::full) continue;
        found = true;
        EXPECT_EQ(remedy.plan.training.memory.recompute_layers, 20);
        EXPECT_EQ(remedy.changes, std::vector<std::string>{"full recomputation of 20 blocks a chunk"});
    }
    EXPECT_TRUE(found);
}

TEST(NearestPlan, SaysWhatIsLackingAndOnWhichClusterAPlanFits) {
    const RequestsFor requests = requests_for("llama3-70b", 16, 2048);
    ASSERT_THROW((void)search_each(requests(4), 1, 1), InfeasibleError);
    const program::NearestPlan nearest = nearest_plan(requests, 4);
    EXPECT_EQ(nearest.plan.parallelism.world_size(), 4);
    EXPECT_GT(nearest.memory.over_bytes(), 0);
    EXPECT_EQ(nearest.memory.needed_bytes, lowered_memory_bytes(nearest.plan));
    EXPECT_GT(nearest.memory.states_bytes, nearest.memory.allowed_bytes);
    ASSERT_TRUE(nearest.cluster.has_value());
    EXPECT_TRUE(nearest.cluster->best.feasible);
    EXPECT_EQ(nearest.cluster->best.plan.parallelism.world_size(), nearest.cluster->devices);
    EXPECT_THROW((void)search_each(requests(nearest.cluster->largest_without_fit), 1, 1), InfeasibleError);
    // Every size between the two was tried or divides nothing.
    for (std::int64_t size = nearest.cluster->largest_without_fit + 8; size < nearest.cluster->devices; size += 8) {
        EXPECT_THROW((void)search_each(requests(size), 1, 1), InputError) << size;
    }
}

TEST(NearestPlan, NoClusterHelpsIfTheDegreesAreFixed) {
    const RequestsFor requests = [](std::int64_t devices) {
        PlanRequest request = plain(request_for("llama3-70b", devices, 16, 2048));
        request.tp = request.pp = 1;
        return std::vector<PlanRequest>{request};
    };
    const program::NearestPlan nearest = nearest_plan(requests, 2);
    EXPECT_FALSE(nearest.cluster.has_value());
    EXPECT_EQ(nearest.most_devices_tried, 16) << "beyond that, ddp divides the batch no further";
}

TEST(LeanestPlan, NeedsNoMoreMemoryThanAnyCandidate) {
    PlanRequest request = request_for("llama3-8b", 4, 4, 2048);
    request.tries_shard_groups = request.tries_rank_orders = false;
    const LeanPlan lean = leanest_plan({request});
    std::int64_t least = std::numeric_limits<std::int64_t>::max();
    for (const Choice& choice : choices_of(list_candidates(request))) {
        if (choice.micro_batch > 1 || choice.recompute == program::Recompute::none || choice.pp > 2) continue;
        least = std::min(least, lowered_memory_bytes(plan_of(request, choice)));
    }
    EXPECT_LE(lean.memory.needed_bytes, least);
}

TEST(Shortlist, HasTheBestPlanOfEachKind) {
    PlanRequest request = request_for("gpt2", 8, 32, 512);
    request.schedules = {program::Schedule::one_f_one_b, program::Schedule::interleaved};
    request.recompute = {program::Recompute::none};
    request.cp = 1;
    const std::vector<PlanResult> found = shortlist({request}, 4);
    ASSERT_EQ(found.size(), 4U);
    // Brute force: the fastest of each kind among all plans.
    std::vector<PlanResult> kinds;
    PlanSearch all = search(request, kAll);
    for (const PlanResult& result : feasible_of(all)) {
        const bool is_new = std::all_of(kinds.begin(), kinds.end(), [&](const PlanResult& other) {
            return kind_distance(other.plan, result.plan) > 0;
        });
        if (is_new) kinds.push_back(result);
    }
    ASSERT_GE(kinds.size(), 4U);
    for (std::size_t i = 0; i < found.size(); ++i) {
        EXPECT_NEAR(found[i].step_time_s, kinds[i].step_time_s, 2 * kStepTolerance * kinds[i].step_time_s) << i;
        for (std::size_t j = 0; j < i; ++j) EXPECT_GE(kind_distance(found[i].plan, found[j].plan), 1);
    }
}

TEST(Shortlist, DistanceCountsKindsOnly) {
    const Plan plan = search(plain(request_for("gpt2", 8, 16, 512)), 1).results.front().plan;
    Plan other = plan;
    other.training.micro_batch_size = 1;
    other.training.memory.recompute = program::Recompute::full;
    EXPECT_EQ(kind_distance(plan, other), 0);
    other.parallelism.tp = 4 * plan.parallelism.tp;
    EXPECT_EQ(kind_distance(plan, other), 2);
    other.implementation.name = "another";
    EXPECT_EQ(kind_distance(plan, other), 3);
    EXPECT_EQ(kind_distance(other, plan), 3);
    Plan zero1 = plan, zero2 = plan, zero3 = plan;
    zero1.parallelism.data_parallel = program::DataParallel::zero1;
    zero2.parallelism.data_parallel = program::DataParallel::zero2;
    zero3.parallelism.data_parallel = program::DataParallel::zero3;
    EXPECT_EQ(kind_distance(zero1, zero2), 0);
    EXPECT_EQ(kind_distance(zero1, zero3), 1);
}

TEST(Shortlist, SaysThatNothingFits) {
    EXPECT_THROW((void)shortlist({plain(request_for("llama3-405b", 8, 8, 128))}, 2), InfeasibleError);
}

TEST(Search, LooksForNoSlowerPlansThanAskedFor) {
    PlanRequest request = plain(request_for("gpt2", 8, 16, 512));
    const double best = search(request, 1).results.front().step_time_s;
    request.most_step_s = 1.1 * best;
    EXPECT_DOUBLE_EQ(search(request, 1).results.front().step_time_s, best);
    request.most_step_s = 0.1 * best;
    EXPECT_TRUE(feasible_of(search(request, 1)).empty());
}

TEST(Guide, OneDeviceNeedsNoFurtherForks) {
    const RequestsFor requests = requests_for("gpt2", 16, 512);
    const PlanResult best = search_each(requests(1), 1, 1).results.front();
    const program::PlanGuide guide = decision_guide(requests, 1, &best);
    ASSERT_EQ(guide.forks.size(), 1U);
    ASSERT_TRUE(guide.by_rule.has_value());
    EXPECT_DOUBLE_EQ(guide.by_rule->step_time_s, best.step_time_s);
}

TEST(Guide, LeadsToTheFirstForkThatFits) {
    const RequestsFor requests = requests_for("llama3-8b", 16, 4096);
    const PlanResult best = search_each(requests(16), 1, 1).results.front();
    const program::PlanGuide guide = decision_guide(requests, 16, &best);
    ASSERT_GE(guide.forks.size(), 5U);
    const program::GuideFork& replicas = guide.forks.front();
    ASSERT_EQ(replicas.options.size(), 2U);
    EXPECT_FALSE(replicas.options[1].fits()) << "18 bytes for each of 8 G parameters do not fit";
    EXPECT_GT(replicas.options[1].memory.states_bytes, replicas.options[1].memory.allowed_bytes);
    const program::GuideFork& sharding = guide.forks[1];
    ASSERT_EQ(sharding.options.size(), 3U);
    EXPECT_GT(sharding.options[0].memory.states_bytes, sharding.options[1].memory.states_bytes);
    EXPECT_GT(sharding.options[1].memory.states_bytes, sharding.options[2].memory.states_bytes);
    ASSERT_TRUE(guide.by_rule.has_value());
    const auto fits = std::find_if(sharding.options.begin(), sharding.options.end(),
                                   [](const program::GuideOption& option) { return option.fits(); });
    ASSERT_NE(fits, sharding.options.end());
    EXPECT_DOUBLE_EQ(guide.by_rule->step_time_s, fits->result->step_time_s);
    EXPECT_GE(guide.by_rule->step_time_s, (1 - kStepTolerance) * guide.best->step_time_s);
}

TEST(Guide, WorksWhereNothingFits) {
    const program::PlanGuide guide = decision_guide(requests_for("llama3-405b", 8, 2048), 8, nullptr);
    EXPECT_FALSE(guide.by_rule.has_value());
    EXPECT_FALSE(guide.best.has_value());
    for (const program::GuideFork& fork : guide.forks) {
        EXPECT_FALSE(fork.answer.empty()) << fork.question;
        for (const program::GuideOption& option : fork.options) EXPECT_FALSE(option.fits()) << option.name;
    }
}

}  // namespace
}  // namespace orrery::sim
