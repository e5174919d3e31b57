#include "sim/planner/candidates.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::Plan;
using program::Recompute;
using program::Schedule;

TEST(Candidates, DivisorsAscend) {
    EXPECT_EQ(divisors(1), (std::vector<std::int64_t>{1}));
    EXPECT_EQ(divisors(36), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 9, 12, 18, 36}));
    EXPECT_EQ(divisors(std::int64_t{1} << 40).size(), 41U);
}

TEST(Candidates, LargeMicroBatchesAreThinnedOutAndCounted) {
    PlanRequest request = plain(request_for("gpt2", 1, 720720, 128));
    const CandidateList list = list_candidates(request);
    ASSERT_EQ(list.families.size(), 1U);
    const std::vector<std::int64_t>& sizes = list.families.front().micro_batches;
    EXPECT_EQ(list.considered + list.left_out, static_cast<std::int64_t>(divisors(720720).size()));
    EXPECT_GT(list.left_out, 100);
    for (const std::int64_t size : divisors(720720)) {
        const auto near = std::find_if(sizes.begin(), sizes.end(), [&](std::int64_t tried) {
            return tried <= size && (tried == size || 8 * size < 9 * tried);
        });
        EXPECT_NE(near, sizes.end()) << size;
        EXPECT_TRUE(size > kEveryMicroBatch || std::binary_search(sizes.begin(), sizes.end(), size)) << size;
    }
    request.training.global_batch_size = 1024;  // powers of two are never left out
    EXPECT_EQ(list_candidates(request).left_out, 0);
}

TEST(Candidates, AreDistinctValidPlans) {
    for (const PlanRequest& request :
         {request_for("gpt2", 8, 16, 1024), request_for("llama3-8b", 16, 32, 32'768),
          request_for("mixtral-8x7b", 16, 8, 4096), request_for("mistral-7b", 8, 8, 32'768)}) {
        const CandidateList list = list_candidates(request);
        std::set<std::string> names;
        std::int64_t count = 0;
        for (const Choice& choice : choices_of(list)) {
            const Plan plan = plan_of(request, choice);
            program::check_plan(plan, plan.name);
            EXPECT_TRUE(names.insert(plan.name).second) << plan.name;
            EXPECT_EQ(plan.parallelism.world_size(), request.devices);
            ++count;
        }
        EXPECT_EQ(count, list.considered);
    }
}

TEST(Candidates, DegreesFitTheModelAndTheSequenceLength) {
    const auto degrees = [](const PlanRequest& request, std::int64_t Choice::*degree) {
        std::set<std::int64_t> values;
        for (const Family& family : list_candidates(request).families) values.insert(family.choice.*degree);
        return values;
    };
    using Set = std::set<std::int64_t>;
    EXPECT_EQ(degrees(request_for("llama3-8b", 16, 16, 1024), &Choice::cp), (Set{1}));
    EXPECT_EQ(degrees(request_for("llama3-8b", 16, 16, 2048), &Choice::cp), (Set{1, 2}));
    EXPECT_EQ(degrees(request_for("llama3-8b", 16, 16, 8192), &Choice::cp), (Set{1, 2, 4, 8}));
    EXPECT_EQ(degrees(request_for("llama3-8b", 16, 16, 8192), &Choice::ep), (Set{1}));
    EXPECT_EQ(degrees(request_for("mixtral-8x7b", 16, 16, 4096), &Choice::ep), (Set{1, 2, 4, 8}));
    PlanRequest fixed = request_for("mixtral-8x7b", 16, 16, 4096);
    fixed.cp = 2;
    fixed.ep = 4;
    EXPECT_EQ(degrees(fixed, &Choice::cp), (Set{2}));
    EXPECT_EQ(degrees(fixed, &Choice::ep), (Set{4}));
    // 32 blocks on 4 ranks: interleaved chunks of 4, up to 3, 2 and 1 block; ZB-V always has two chunks.
    PlanRequest deep = request_for("llama3-8b", 16, 16, 4096);
    deep.pp = 4;
    deep.schedules = {Schedule::interleaved};
    EXPECT_EQ(degrees(deep, &Choice::chunks), (Set{2, 3, 4, 8}));
    deep.implementation = models::load_implementation("megatron-lm-2021");  // its stages are equal
    EXPECT_EQ(degrees(deep, &Choice::chunks), (Set{2, 4, 8}));
    deep.implementation = models::load_implementation("orrery");
    deep.schedules = {Schedule::zb_v};
    EXPECT_EQ(degrees(deep, &Choice::chunks), (Set{2}));
}

TEST(Candidates, ShardsFillNodesAndRanksAreNumberedBothWays) {
    PlanRequest request = request_for("llama3-8b", 128, 128, 4096);
    request.tp = 2;
    request.pp = 2;
    const auto found = [&] {
        std::set<Sharding> shardings;
        for (const Choice& choice : choices_of(list_candidates(request))) {
            if (choice.cp == 1) shardings.insert(choice.sharding);
        }
        return shardings;
    };
    // 32 replicas; 4 of them fill a node, and 8 are the fewest from 8 to 31 that fill nodes.
    std::set<Sharding> expected;
    for (const bool pp_before_dp : {false, true}) {
        expected.insert({.pp_before_dp = pp_before_dp});
        for (const DataParallel kind : {DataParallel::zero1, DataParallel::zero2, DataParallel::zero3}) {
            for (const std::int64_t size : {0, 4, 8}) {
                expected.insert({.data_parallel = kind, .dp_shard = size, .pp_before_dp = pp_before_dp});
                if (kind != DataParallel::zero3) continue;
                expected.insert(
                    {.data_parallel = kind, .dp_shard = size, .reshards = false, .pp_before_dp = pp_before_dp});
            }
        }
    }
    EXPECT_EQ(found(), expected);
    request.data_parallel = {DataParallel::zero3};
    request.dp_shard = 8;
    request.reshard_after_forward = false;
    request.pp_before_dp = true;
    EXPECT_EQ(found(),
              (std::set<Sharding>{
                  {.data_parallel = DataParallel::zero3, .dp_shard = 8, .reshards = false, .pp_before_dp = true}}));
    request.dp_shard = 32;  // all replicas
    EXPECT_EQ(found().begin()->dp_shard, 0);
}

TEST(Candidates, StagesAreEvenOrBalancedByTheEnds) {
    using Layouts = std::set<std::vector<std::int64_t>>;
    const auto layouts = [](const PlanRequest& request) {
        Layouts found;
        for (const Family& family : list_candidates(request).families) {
            found.insert(plan_of(request, family.choice).parallelism.stage_layers);
        }
        return found;
    };
    // The head of llama3-8b has the FLOPs of between two and three blocks.
    PlanRequest request = request_for("llama3-8b", 4, 16, 1024);
    request.pp = 4;
    request.schedules = {Schedule::one_f_one_b};
    EXPECT_EQ(layouts(request), (Layouts{{8, 8, 8, 8}, {8, 8, 9, 7}, {8, 9, 9, 6}, {7, 9, 9, 7}}));
    request.implementation = models::load_implementation("megatron-lm-2021");
    EXPECT_EQ(layouts(request), (Layouts{{8, 8, 8, 8}}));
    request = request_for("llama3-405b", 16'384, 2048, 8192);
    request.tp = 8;
    request.pp = 16;
    request.schedules = {Schedule::interleaved};
    std::vector<std::int64_t> published(128, 1);  // 126 blocks; the first and the last stage have none
    published.front() = published.back() = 0;
    EXPECT_EQ(layouts(request).count(published), 1U);
    request.stage_layers = published;
    EXPECT_EQ(layouts(request), (Layouts{published}));
}

TEST(Candidates, SelectiveRecomputationIncludesUnfusedAttention) {
    PlanRequest request = request_for("gpt2", 1, 1, 1024);
    EXPECT_EQ(selective_parts(request), (std::vector<std::string>{"norm", "activation"}));
    request.implementation.kernels.fused_attention = false;
    EXPECT_EQ(selective_parts(request), (std::vector<std::string>{"norm", "activation", "attention_core"}));
    const Choice choice{.recompute = Recompute::full, .recompute_layers = 5};
    EXPECT_EQ(plan_of(request, choice).training.memory.recompute_layers, 5);
    EXPECT_EQ(plan_of(request, {.recompute = Recompute::full, .recompute_layers = 12}).training.memory.recompute_layers,
              -1);
    EXPECT_EQ(plan_of(request, {.recompute = Recompute::selective}).training.memory.recompute_parts,
              selective_parts(request));
}

}  // namespace
}  // namespace orrery::sim
