#include "sim/planner/analytic_bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "core/units.h"
#include "sim/planner/part_sets.h"
#include "sim/planner/timing.h"
#include "sim/program/device_memory.h"
#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::Recompute;
using program::Schedule;
using program::VocabularyParallel;

struct Drawn {
    PlanRequest request;
    std::vector<Choice> choices;
};

/// Orrery's own schedules beyond those that the search tries.
PlanRequest with_every_schedule(PlanRequest request) {
    request.schedules = {Schedule::one_f_one_b, Schedule::gpipe, Schedule::interleaved, Schedule::zb_h1,
                         Schedule::zb_h2,       Schedule::zb_v,  Schedule::dualpipe,    Schedule::dualpipe_v};
    return request;
}

/// A random sample of a request's candidates, with a fixed seed. A third of `count`, or all with BOUNDS_ALL in the
/// environment (`ctest -C extended`).
Drawn draw(PlanRequest request, int count) {
    if (std::getenv("BOUNDS_ALL") == nullptr) count = (count + 2) / 3;
    if (request.implementation.name != "orrery") {
        request.rates = program::resolve_rates(request.implementation, request.cluster);
    }
    const CandidateList list = list_candidates(request);
    const topologies::Cluster cluster(request.cluster);
    const std::vector<PartSet> sets = part_sets(request, cluster, RooflineCost(request.cluster, request.rates));
    std::mt19937 random(5);
    Drawn drawn{.request = request};
    while (static_cast<int>(drawn.choices.size()) < count) {
        Choice choice = draw_choice(list, random);
        if (choice.recompute == Recompute::selective) choice.recompute_parts = sets[random() % sets.size()];
        if (choice.recompute == Recompute::full) {
            const std::int64_t most = largest_stage(plan_of(request, choice));
            choice.recompute_layers = static_cast<std::int64_t>(1 + random() % static_cast<std::uint64_t>(most));
        }
        if (choice.recompute == Recompute::none && list.may_offload_activations(choice)) {
            const std::int64_t most = largest_stage(plan_of(request, choice));
            choice.offload_layers = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most + 1));
        }
        if (choice.pp <= 8) drawn.choices.push_back(choice);
    }
    return drawn;
}

/// AnalyticBounder::traffic_s of a choice whose pipeline the bounder has not been asked about with other shardings.
double traffic_of(const Drawn& drawn, const topologies::Cluster& cluster, const RooflineCost& cost,
                  const Choice& choice) {
    AnalyticBounder bounder(drawn.request, cluster, cost);
    const std::vector<Sharding> shardings{choice.sharding};
    std::vector<AnalyticBounds> bounds;
    bounder.bounds_of_each(choice, shardings, bounds);
    return bounder.traffic_s(choice, shardings, 0);
}

/// No micro-batch size of any cut takes less time than the bound from the efficient one.
TEST(AnalyticBounds, OfTheEfficientMicroBatchHoldForEverySize) {
    double tightest = 1e9;
    for (const PlanRequest& request :
         {request_for("llama3-70b", 256, 512, 8192, "megatron-core"), request_for("gpt3-175b", 128, 512, 2048),
          request_for("llama3-8b", 64, 1024, 2048, "torch-fsdp2"), request_for("llama3-8b", 16, 16, 65'536),
          request_for("deepseek-v3", 128, 256, 4096, "megatron-core"), request_for("mixtral-8x7b", 64, 128, 4096)}) {
        const topologies::Cluster cluster(request.cluster);
        const RooflineCost cost(request.cluster, request.rates);
        AnalyticBounder bounder(request, cluster, cost);
        for (const Family& family : list_candidates(request).families) {
            Choice choice = family.choice;
            if (choice.chunks > 2 || choice.ends != program::EndWeights()) continue;
            const double least = bounder.least_computation_s(choice, family.micro_batches);
            for (const std::int64_t size : family.micro_batches) {
                choice.micro_batch = size;
                const double found = bounder.least_computation_s(choice);
                EXPECT_LE(least, found) << request.model.name << " " << plan_of(request, choice).name;
                tightest = std::min(tightest, found / least);
            }
        }
    }
    EXPECT_LT(tightest, 1.05);  // the share is not far below what is needed
}

PlanRequest with_bf16_moments(PlanRequest request) {
    request.training.precision.moments = DType::bf16;
    return request;
}

PlanRequest on_a100(PlanRequest request) {
    request.cluster = topologies::load_cluster("dgx-a100", request.devices);
    return request;
}

/// Sums over choices of the share of the exact figure that each bound reaches.
struct Shares {
    double memory = 0, analytic = 0, traffic = 0, lowered = 0;
    int count = 0;
};

/// Checks that every bound of the choices is below what it bounds.
void expect_below(const Drawn& drawn, Shares& shares) {
    const topologies::Cluster cluster(drawn.request.cluster);
    const RooflineCost cost(drawn.request.cluster, drawn.request.rates);
    AnalyticBounder bounder(drawn.request, cluster, cost);
    for (const Choice& choice : drawn.choices) {
        const program::Plan plan = plan_of(drawn.request, choice);
        SCOPED_TRACE(plan.implementation.name);
        const AnalyticBounds analytic = bounder.bounds(choice);
        const LoweredBounds lowered = lowered_bounds(plan, cluster, cost);
        const double step = timed(plan, cluster, cost).step_time_s;
        EXPECT_LE(analytic.least_state_bytes, analytic.least_lasting_bytes);
        EXPECT_LE(analytic.least_lasting_bytes, analytic.least_memory_bytes);
        if (choice.recompute == Recompute::selective) {  // full recomputation keeps less, as the search assumes
            Choice full = choice;
            full.recompute = Recompute::full;
            EXPECT_LE(bounder.bounds(full).least_lasting_bytes, lowered.peak_memory_bytes) << plan.name;
        }
        EXPECT_LE(analytic.least_memory_bytes, lowered.peak_memory_bytes) << plan.name;
        const double found = is_simulated_whole(plan) ? 1 : 1 - kStepTolerance;  // of what bounds the whole step
        EXPECT_LE(found * bounder.least_computation_s(choice), step) << plan.name;
        // What saves memory only adds time, as the search assumes.
        Choice leaving = without_recomputation(choice);
        leaving.sharding.offload = Offload::none;
        EXPECT_LE(found * bounder.bounds(leaving).least_step_s, step) << plan.name;
        EXPECT_LE(found * analytic.least_step_s, step) << plan.name;
        EXPECT_LE(found * lowered.least_step_s, step) << plan.name;
        EXPECT_LE(found * bounder.path_s(choice), step) << plan.name;
        const double traffic = traffic_of(drawn, cluster, cost, choice);
        EXPECT_LE(found * traffic, step) << plan.name;
        shares.traffic += std::max(analytic.least_step_s, traffic) / step;
        shares.memory +=
            static_cast<double>(analytic.least_memory_bytes) / static_cast<double>(lowered.peak_memory_bytes);
        shares.analytic += analytic.least_step_s / step;
        shares.lowered += lowered.least_step_s / step;
        ++shares.count;
    }
}

TEST(Bounds, AreBelowMemoryAndStepOfEveryKindOfCandidate) {
    std::set<Schedule> schedules;
    Shares shares;
    for (const Drawn& drawn :
         {draw(with_every_schedule(request_for("gpt2", 8, 48, 1024)), 60),
          draw(with_every_schedule(request_for("llama3-8b", 32, 128, 4096)), 60),
          draw(with_every_schedule(request_for("llama3-8b", 16, 16, 65'536)), 30),
          draw(with_every_schedule(request_for("mixtral-8x7b", 32, 64, 4096)), 40),
          draw(with_every_schedule(request_for("deepseek-v3", 128, 128, 4096)), 20),
          draw(request_for("llama3-8b", 32, 128, 4096, "megatron-core"), 60),
          draw(request_for("mixtral-8x7b", 32, 64, 4096, "megatron-core"), 40),
          draw(request_for("deepseek-v3", 128, 128, 4096, "megatron-core-flex"), 20),
          draw(request_for("llama3-8b", 32, 128, 4096, "torch-fsdp2"), 60),
          draw(request_for("llama3-8b", 32, 128, 4096, "deepspeed"), 40),
          draw(request_for("gpt2-xl", 32, 128, 1024, "torch-fsdp1"), 40),
          draw(request_for("llama2-70b", 64, 256, 4096, "megatron-lm-2022"), 30),
          draw(request_for("deepseek-v3", 256, 256, 4096, "torch-fsdp2"), 20),
          draw(request_for("mixtral-8x7b", 64, 64, 4096, "torch-fsdp2"), 30),
          draw(with_every_schedule(with_bf16_moments(request_for("mixtral-8x7b", 32, 64, 4096))), 30),
          draw(with_bf16_moments(request_for("llama3-8b", 32, 128, 4096, "torchtitan")), 30),
          draw(with_every_schedule(on_a100(request_for("llama2-13b", 32, 256, 4096))), 40),
          draw(on_a100(request_for("llama2-7b", 32, 128, 4096, "megatron-core")), 40),
          draw(on_a100(request_for("opt-66b", 64, 256, 2048, "deepspeed")), 30)}) {
        expect_below(drawn, shares);
        for (const Choice& choice : drawn.choices) schedules.insert(choice.schedule);
    }
    EXPECT_EQ(schedules.size(), 8U);
    // The search saves more work the tighter the bounds are.
    EXPECT_GT(shares.memory / shares.count, 0.9);
    EXPECT_GT(shares.analytic / shares.count, 0.82);
    EXPECT_GT(shares.traffic / shares.count, 0.87);
    EXPECT_GT(shares.lowered / shares.count, 0.85);
}

/// A request for the full space with these schedules, without passes that overlap.
PlanRequest full(PlanRequest request, std::vector<Schedule> schedules = {}) {
    allow_full_space(request);
    request.overlaps_experts = false;
    if (!schedules.empty()) request.schedules = std::move(schedules);
    return request;
}

/// Pipelines that may spread the vocabulary.
PlanRequest spread(PlanRequest request) {
    request = full(std::move(request), {Schedule::one_f_one_b});
    request.tp = request.cp = 1;
    std::erase(request.vocabulary_parallel, VocabularyParallel::none);
    request.data_parallel = {DataParallel::ddp, DataParallel::zero1};
    return request;
}

/// Pipelines whose passes overlap with the tokens of another pass.
PlanRequest overlapping(PlanRequest request) {
    request = full(std::move(request));
    request.overlaps_experts = true;
    return request;
}

TEST(Bounds, AreBelowMemoryAndStepOfOverlappingPasses) {
    std::set<Schedule> schedules;
    Shares shares;
    for (const Drawn& drawn : {draw(overlapping(request_for("mixtral-8x7b", 32, 64, 4096)), 60),
                               draw(overlapping(request_for("mixtral-8x7b", 32, 64, 4096, "megatron-core")), 60),
                               draw(overlapping(request_for("deepseek-v3", 128, 128, 4096)), 20)}) {
        expect_below(drawn, shares);
        for (const Choice& choice : drawn.choices) {
            EXPECT_TRUE(choice.overlaps_experts);
            schedules.insert(choice.schedule);
        }
    }
    EXPECT_EQ(schedules, (std::set{Schedule::one_f_one_b, Schedule::interleaved, Schedule::dualpipe_v}));
    EXPECT_GT(shares.memory / shares.count, 0.8);
    EXPECT_GT(shares.analytic / shares.count, 0.7);
}

TEST(Bounds, AreBelowMemoryAndStepOfTheFullSpace) {
    std::set<VocabularyParallel> vocabularies;
    std::set<Offload> offloads;
    std::set<std::pair<Schedule, bool>> seen;  // and whether experts are sharded
    Shares shares;
    for (const Drawn& drawn :
         {draw(spread(request_for("gpt2", 8, 48, 1024)), 40), draw(spread(request_for("llama3-8b", 32, 64, 4096)), 30),
          draw(spread(request_for("llama3-8b", 16, 64, 4096, "megatron-core")), 30),
          draw(spread(request_for("mixtral-8x7b", 16, 64, 4096, "megatron-lm-zero-bubble")), 30),
          draw(full(request_for("llama3-8b", 32, 128, 4096)), 60),
          draw(full(request_for("mixtral-8x7b", 32, 64, 4096)), 60),
          draw(full(request_for("mixtral-8x7b", 32, 64, 4096, "megatron-core")), 60),
          draw(full(request_for("gpt2-xl", 32, 64, 1024, "deepspeed")), 40),
          draw(full(request_for("llama3-8b", 16, 64, 4096, "torch-fsdp1")), 40),
          draw(full(request_for("llama3-8b", 16, 64, 4096, "torch-fsdp2"), {Schedule::dualpipe_v}), 30),
          draw(full(request_for("llama3-8b", 64, 128, 8192, "torch-fsdp2")), 40),
          draw(full(request_for("llama3-70b", 64, 128, 4096, "nemo")), 30),
          draw(full(request_for("deepseek-v3", 128, 128, 4096), {Schedule::dualpipe_v}), 20)}) {
        expect_below(drawn, shares);
        for (const Choice& choice : drawn.choices) {
            vocabularies.insert(choice.vocabulary);
            offloads.insert(choice.offload_layers > 0 ? Offload::activations : choice.sharding.offload);
            seen.emplace(choice.schedule, choice.etp > 1);
        }
    }
    EXPECT_EQ(vocabularies.size(), 4U);
    EXPECT_EQ(offloads.size(), kOffloadKinds);
    EXPECT_TRUE(seen.contains({Schedule::dualpipe_v, false}));
    EXPECT_TRUE(seen.contains({Schedule::one_f_one_b, true}));
    EXPECT_GT(shares.memory / shares.count, 0.9);
    EXPECT_GT(shares.analytic / shares.count, 0.8);
    EXPECT_GT(shares.traffic / shares.count, 0.83);
    EXPECT_GT(shares.lowered / shares.count, 0.7);
}

TEST(AnalyticBounds, StateBytesAreExact) {
    // One unsharded rank: 2 + 4 + 12 bytes a parameter, and the activation frame of one micro-batch.
    const PlanRequest request = request_for("gpt2", 1, 1, 1024);
    const topologies::Cluster cluster(request.cluster);
    const RooflineCost cost(request.cluster);
    AnalyticBounder bounder(request, cluster, cost);
    const AnalyticBounds analytic = bounder.bounds({});
    const program::Program program = program::lower(plan_of(request, {}));
    const program::RankClass& rank = program.classes.front();
    const std::int64_t context = program::fixed_device_memory(request.cluster.device, request.implementation).in_use();
    EXPECT_EQ(analytic.least_state_bytes, context + 18 * rank.parameter_elements);
    std::int64_t transients = 0;  // all blocks are alike
    for (const program::Body& body : program.bodies) {
        if (body.layer_kind == models::LayerKind::block) transients = std::max(transients, body.transient_bytes);
    }
    EXPECT_EQ(analytic.least_memory_bytes, analytic.least_state_bytes + rank.chunks.front().frame_bytes + transients);
    // ZeRO-1 over 8 ranks shards the 12 bytes of optimizer state. ZeRO-3 shards everything, with gradients of 2 bytes.
    const PlanRequest eight = request_for("gpt2", 8, 8, 1024);
    const topologies::Cluster node(eight.cluster);
    AnalyticBounder sharded(eight, node, cost);
    const double elements = static_cast<double>(rank.parameter_elements);
    const std::int64_t communicator = program::communicator_bytes({.ranks = 8, .nodes = 1}, eight.cluster.device);
    const auto states = [&](DataParallel kind) {
        return static_cast<double>(sharded.bounds({.dp = 8, .sharding = {.data_parallel = kind}}).least_state_bytes -
                                   context - communicator);
    };
    EXPECT_NEAR(states(DataParallel::ddp), 18 * elements, 1);
    EXPECT_NEAR(states(DataParallel::zero1), (6 + 12.0 / 8) * elements, 1);
    // With ZeRO-3 the windows of gathered units and of their gradients and the staging buffer come on top.
    const program::Program gathering =
        program::lower(plan_of(eight, {.dp = 8, .sharding = {.data_parallel = DataParallel::zero3}}));
    const program::MemoryFootprint& memory = gathering.classes.front().memory;
    const auto all = static_cast<double>(memory.parameters + memory.gathered + memory.gradients + memory.reductions +
                                         memory.optimizer_states);
    EXPECT_LE(states(DataParallel::zero3), all);
    EXPECT_GT(states(DataParallel::zero3), 0.95 * all);
}

/// The share of a candidate's memory and step that the bounds reach without lowering it.
std::pair<double, double> shares_of(const PlanRequest& request, const Choice& choice) {
    const topologies::Cluster cluster(request.cluster);
    const RooflineCost cost(request.cluster, request.rates);
    AnalyticBounder bounder(request, cluster, cost);
    const program::Plan plan = plan_of(request, choice);
    const AnalyticBounds bounds = bounder.bounds(choice);
    return {static_cast<double>(bounds.least_memory_bytes) /
                static_cast<double>(lowered_bounds(plan, cluster, cost).peak_memory_bytes),
            bounds.least_step_s / timed(plan, cluster, cost).step_time_s};
}

TEST(AnalyticBounds, ComeCloseForOffloadedActivationsUnitsAndReductionsAtTheEnd) {
    const PlanRequest request = with_rates(request_for("llama3-70b", 64, 128, 8192, "megatron-core"));
    for (const DataParallel kind : {DataParallel::zero1, DataParallel::zero2, DataParallel::zero3}) {
        for (const std::int64_t offloaded : {0, 10}) {
            const Choice choice{.dp = 8,
                                .tp = 4,
                                .pp = 2,
                                .sequence_parallel = true,
                                .schedule = Schedule::interleaved,
                                .chunks = 2,
                                .sharding = {.data_parallel = kind},
                                .offload_layers = offloaded};
            const auto [memory, step] = shares_of(request, choice);
            EXPECT_GT(memory, kind == DataParallel::zero1 ? 0.99 : 0.95)
                << program::name_of(kind) << ", " << offloaded << " blocks offloaded";
            if (kind == DataParallel::zero3) continue;
            EXPECT_GT(step, 0.94) << program::name_of(kind) << ", " << offloaded << " blocks offloaded";
        }
    }
}

/// Each stage gathers its updated parameters when the first micro-batch has arrived, adds to fp32 gradients, and waits
/// for the copies of its activations.
TEST(AnalyticBounds, ComeCloseForStagesThatGatherOnArrival) {
    const Drawn drawn{.request = with_rates(request_for("deepseek-v3", 256, 512, 4096, "megatron-core"))};
    const topologies::Cluster cluster(drawn.request.cluster);
    const RooflineCost cost(drawn.request.cluster, drawn.request.rates);
    for (const std::int64_t offloaded : {0, 2}) {
        const Choice choice{.dp = 8,
                            .tp = 2,
                            .pp = 16,
                            .ep = 8,
                            .sequence_parallel = true,
                            .sharding = {.data_parallel = DataParallel::zero1},
                            .offload_layers = offloaded};
        const program::Plan plan = plan_of(drawn.request, choice);
        const double step = timed(plan, cluster, cost).step_time_s;
        EXPECT_GT(traffic_of(drawn, cluster, cost, choice), 0.95 * step) << offloaded << " blocks offloaded";
        EXPECT_GT(lowered_bounds(plan, cluster, cost).least_step_s, 0.95 * step) << offloaded << " blocks offloaded";
    }
}

/// The embedding and the head of a model that ties them are units of their own, so that the blocks of the last chunk
/// have another place for their gradients than those of other chunks.
TEST(AnalyticBounds, ChunksWithTiedWeightsWaitForOtherReductions) {
    const Drawn drawn{.request = with_rates(request_for("gpt3-175b", 1024, 1536, 2048, "megatron-core"))};
    const topologies::Cluster cluster(drawn.request.cluster);
    const RooflineCost cost(drawn.request.cluster, drawn.request.rates);
    const Choice choice{.dp = 64,
                        .tp = 8,
                        .pp = 2,
                        .sequence_parallel = true,
                        .schedule = Schedule::interleaved,
                        .chunks = 2,
                        .sharding = {.data_parallel = DataParallel::zero2, .dp_shard = 32, .pp_before_dp = true}};
    const double step = timed(plan_of(drawn.request, choice), cluster, cost).step_time_s;
    EXPECT_LT(traffic_of(drawn, cluster, cost, choice), step);
}

/// The bound of a mesh is below those of its pipelines, and not below that from a mesh with half of a degree.
TEST(AnalyticBounds, OfAMeshHoldForTwiceAsManyRanks) {
    int compared = 0;
    for (PlanRequest request :
         {request_for("deepseek-v3", 512, 2048, 4096, "megatron-core"), request_for("llama3-70b", 512, 1024, 8192),
          request_for("llama3.1-405b", 4096, 2048, 8192, "megatron-core"), request_for("gpt3-175b", 256, 512, 2048),
          on_a100(request_for("mixtral-8x7b", 128, 512, 4096)), request_for("llama3-8b", 64, 512, 8192, "torch-fsdp2"),
          request_for("qwen3-30b-a3b", 64, 512, 4096, "megatron-core")}) {
        allow_full_space(request);
        request = with_rates(request);
        const topologies::Cluster cluster(request.cluster);
        const RooflineCost cost(request.cluster, request.rates);
        AnalyticBounder bounder(request, cluster, cost);
        const CandidateList list = list_candidates(request);
        ByChoice<double> bounds;
        for (std::size_t f = 0; f < list.families.size(); f = list.mesh_end(f)) {
            const std::span mesh(&list.families[f], list.mesh_end(f) - f);
            const double least = bounder.least_computation_s(mesh);
            bounds.add(degrees_of(mesh.front().choice), least);
            for (const auto& [choice, sizes, shardings] : mesh) {
                EXPECT_LE(least, bounder.least_computation_s(choice, sizes)) << plan_of(request, choice).name;
            }
            for (const Choice& half : halves_of(mesh.front().choice)) {
                const double* const of_half = bounds.find(half);
                if (of_half == nullptr) continue;
                EXPECT_GE(least, kLeastShareOfHalf * *of_half)
                    << request.model.name << " " << plan_of(request, mesh.front().choice).name;
                ++compared;
            }
        }
    }
    EXPECT_GT(compared, 1000);
}

/// The share of the simulated step that the walk beside communication reaches.
double traffic_share(const PlanRequest& request, const Choice& choice) {
    const Drawn drawn{.request = with_rates(request)};
    const topologies::Cluster cluster(drawn.request.cluster);
    const RooflineCost cost(drawn.request.cluster, drawn.request.rates);
    return traffic_of(drawn, cluster, cost, choice) / timed(plan_of(drawn.request, choice), cluster, cost).step_time_s;
}

/// Computation runs slower beside a transfer over NVLink, and shorter, than beside one over the NIC.
TEST(AnalyticBounds, ComputationBesideTransfersKnowsTheirLinks) {
    const double share = traffic_share(
        on_a100(request_for("llama2-13b", 32, 256, 4096)),
        {.tp = 4, .pp = 8, .schedule = Schedule::interleaved, .chunks = 3, .ends = {.embedding = 1, .head = 1}});
    EXPECT_LT(share, 1);
    EXPECT_GT(share, 0.95);
}

/// While gathers delay a pass, its activations are copied.
TEST(AnalyticBounds, GathersHideCopiesOfActivations) {
    const double share = traffic_share(on_a100(request_for("opt-66b", 64, 256, 2048, "deepspeed")),
                                       {.dp = 32,
                                        .tp = 2,
                                        .sequence_parallel = true,
                                        .sharding = {.data_parallel = DataParallel::zero3, .reshards = false},
                                        .offload_layers = 51,
                                        .micro_batch = 8});
    EXPECT_LT(share, 1);
    EXPECT_GT(share, 0.85);
}

/// A block fills several buckets. All but the last are reduced before its gradient is sent to the previous stage.
TEST(AnalyticBounds, TransfersShareTheNicWithTheLastBucketAlone) {
    const double share = traffic_share(on_a100(request_for("llama2-7b", 32, 128, 4096, "megatron-core")),
                                       {.dp = 16,
                                        .pp = 2,
                                        .schedule = Schedule::interleaved,
                                        .chunks = 16,
                                        .ends = {.embedding = 1, .head = 1},
                                        .recompute = Recompute::full,
                                        .recompute_layers = 1,
                                        .micro_batch = 4});
    EXPECT_LT(share, 1);
    EXPECT_GT(share, 0.95);
}

TEST(AnalyticBounds, Bf16MomentsTakeTwoBytesEach) {
    const auto states = [](const PlanRequest& request, const Choice& choice) {
        const topologies::Cluster cluster(request.cluster);
        const RooflineCost cost(request.cluster);
        AnalyticBounder bounder(request, cluster, cost);
        return static_cast<double>(bounder.bounds(choice).least_state_bytes);
    };
    const PlanRequest one = request_for("gpt2", 1, 1, 1024), eight = request_for("mixtral-8x7b", 8, 8, 1024);
    const auto elements = static_cast<double>(program::lower(plan_of(one, {})).classes.front().parameter_elements);
    EXPECT_EQ(states(one, {}) - states(with_bf16_moments(one), {}), 4 * elements);
    // Dense states over 8 ranks, those of the experts over the copies of each.
    for (const DataParallel kind : {DataParallel::ddp, DataParallel::zero1, DataParallel::zero3}) {
        const Choice choice{.dp = 8, .ep = 2, .sharding = {.data_parallel = kind}};
        const std::int64_t updated = program::lower(plan_of(eight, choice)).classes.front().optimizer_elements;
        EXPECT_NEAR(
            (states(eight, choice) - states(with_bf16_moments(eight), choice)) / (4 * static_cast<double>(updated)), 1,
            1e-6)
            << program::name_of(kind);
    }
}

TEST(AnalyticBounds, FewestRecomputedIsTheSmallestNumberOfBlocksThatFits) {
    const PlanRequest request = request_for("llama3-8b", 8, 8, 4096);
    const topologies::Cluster cluster(request.cluster);
    const RooflineCost cost(request.cluster);
    AnalyticBounder bounder(request, cluster, cost);
    Choice choice{.dp = 2, .tp = 2, .pp = 2, .recompute = Recompute::full, .micro_batch = 4};
    EXPECT_EQ(bounder.largest_chunk(choice), 16);
    std::int64_t last = 17;
    for (const double gib : {1.0, 70.0, 80.0, 90.0, 100.0, 1000.0}) {
        const auto limit = static_cast<std::int64_t>(gib * kGibibyte);
        const std::int64_t fewest = bounder.fewest_recomputed(choice, {choice.sharding}, 0, limit);
        EXPECT_LE(fewest, last);
        last = fewest;
        for (const std::int64_t blocks : {fewest - 1, fewest}) {
            if (blocks < 1) continue;
            choice.recompute_layers = blocks;
            const bool fits = bounder.bounds(choice).least_memory_bytes <= limit;
            EXPECT_EQ(fits, blocks == fewest && gib > 1) << gib << " GiB, " << blocks << " blocks";
        }
    }
    EXPECT_EQ(last, 1);
}

}  // namespace
}  // namespace orrery::sim
