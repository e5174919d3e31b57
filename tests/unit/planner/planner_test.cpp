#include "sim/planner/planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <set>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/candidates.h"
#include "sim/planner/sketch.h"
#include "sim/planner/timing.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::PlanResult;
using program::Schedule;

constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();

PlanRequest request_for(const char* model, std::int64_t devices, std::int64_t batch, std::int64_t sequence) {
    PlanRequest request;
    request.model = models::load_model(model);
    request.cluster = topologies::load_cluster("dgx-h100", devices);
    request.implementation = models::load_implementation("orrery");
    request.devices = devices;
    request.training.global_batch_size = batch;
    request.training.sequence_length = sequence;
    request.training.precision = program::precision_named("bf16");
    return request;
}

PlanSearch search(const PlanRequest& request, std::size_t keep) {
    return search_plans(request, topologies::Cluster(request.cluster), keep);
}

struct Shape {
    const char* model = "gpt2";
    const char* cluster = "dgx-h100";
    std::int64_t dp = 1, tp = 1, pp = 1, micro_batches = 8, sequence = 512;
    bool sequence_parallel = false;
    Schedule schedule = Schedule::one_f_one_b;
    std::vector<std::int64_t> stage_layers;  // empty: even
};

Plan make_plan(const Shape& shape) {
    PlanRequest request = request_for(shape.model, shape.dp * shape.tp * shape.pp, 1, shape.sequence);
    Plan plan{.name = "plan", .model = request.model, .implementation = request.implementation};
    plan.cluster = topologies::load_cluster(shape.cluster, request.devices);
    plan.parallelism = {.dp = shape.dp,
                        .tp = shape.tp,
                        .pp = shape.pp,
                        .sequence_parallel = shape.sequence_parallel,
                        .schedule = shape.schedule,
                        .stage_layers = shape.stage_layers};
    if (shape.stage_layers.empty()) plan.parallelism.stage_layers = program::even_stages(plan.model.layers, shape.pp);
    plan.training = request.training;
    plan.training.global_batch_size = shape.dp * shape.micro_batches;
    return plan;
}

RooflineCost cost_of(const Plan& plan) {
    return {plan.cluster.device, plan.training.precision.activation};
}

std::int64_t peak_of(const Plan& plan) {
    const program::Program program = program::lower(plan);
    std::int64_t peak = 0;
    for (const program::RankClass& stage : program.classes) peak = std::max(peak, peak_memory_bytes(program, stage));
    return peak;
}

std::vector<PlanResult> feasible_of(const PlanSearch& found) {
    std::vector<PlanResult> feasible;
    std::copy_if(found.results.begin(), found.results.end(), std::back_inserter(feasible),
                 [](const PlanResult& result) { return result.feasible; });
    return feasible;
}

TEST(PlanSearch, PruningKeepsThePlansThatAnExhaustiveSearchFinds) {
    struct Case {
        PlanRequest request;
        std::size_t keep;
    };
    std::vector<Case> cases{{request_for("gpt2", 4, 16, 512), 3},
                            {request_for("gpt2-xl", 8, 32, 1024), 5},
                            {request_for("llama3-8b", 16, 32, 4096), 4},
                            {request_for("llama3-8b", 8, 24, 2048), 1}};
    cases[1].request.schedules = {Schedule::gpipe, Schedule::one_f_one_b};
    bool pruned = false;
    for (const auto& [request, keep] : cases) {
        const PlanSearch all = search(request, kAll), some = search(request, keep);
        const std::vector<PlanResult> every = feasible_of(all), best = feasible_of(some);
        ASSERT_EQ(best.size(), std::min(keep, every.size()));
        for (std::size_t i = 0; i < best.size(); ++i) {
            EXPECT_EQ(best[i].plan, every[i].plan) << best[i].plan.name << " " << every[i].plan.name;
            EXPECT_EQ(best[i].step_time_s, every[i].step_time_s);
        }
        EXPECT_EQ(all.simulated, static_cast<std::int64_t>(every.size()));
        EXPECT_TRUE(std::is_sorted(every.begin(), every.end(), [](const PlanResult& a, const PlanResult& b) {
            return a.step_time_s < b.step_time_s;
        }));
        EXPECT_EQ(all.considered, static_cast<std::int64_t>(all.results.size()));
        pruned = pruned || some.simulated < all.simulated;
    }
    EXPECT_TRUE(pruned);
}

TEST(PlanSearch, ResultsAreThoseOfTheWholeSimulation) {
    const PlanRequest request = request_for("llama3-8b", 16, 32, 4096);
    const topologies::Cluster cluster(request.cluster);
    for (const PlanResult& result : feasible_of(search(request, 3))) {
        const Evaluation whole = evaluate(program::lower(result.plan), cluster);
        EXPECT_TRUE(whole.result.feasible);
        EXPECT_DOUBLE_EQ(result.step_time_s, whole.result.step_time_s);
        EXPECT_DOUBLE_EQ(result.mfu, whole.result.mfu);
        EXPECT_DOUBLE_EQ(result.tokens_per_s_per_device, whole.result.tokens_per_s_per_device);
        EXPECT_DOUBLE_EQ(result.exposed_communication_s, whole.result.exposed_communication_s);
        EXPECT_NEAR(result.bubble_fraction, whole.result.bubble_fraction, 1e-12);
        EXPECT_EQ(result.peak_memory_gib, whole.result.peak_memory_gib);
        EXPECT_EQ(whole.record.plan_name, result.plan.name);
    }
}

TEST(PlanSearch, SaysTheSameTwice) {
    const PlanRequest request = request_for("gpt2-xl", 8, 32, 1024);
    const PlanSearch one = search(request, 4), two = search(request, 4);
    ASSERT_EQ(one.results.size(), two.results.size());
    for (std::size_t i = 0; i < one.results.size(); ++i) {
        EXPECT_EQ(one.results[i].plan, two.results[i].plan);
        EXPECT_EQ(one.results[i].step_time_s, two.results[i].step_time_s);
    }
}

TEST(PlanSearch, WhatIsRefusedWithoutBeingLoweredReallyDoesNotFit) {
    const PlanRequest request = request_for("llama3-70b", 64, 128, 4096);
    const PlanSearch found = search(request, 2);
    std::set<std::string> reasons;
    int checked = 0;
    for (const PlanResult& result : found.results) {
        if (result.feasible) continue;
        reasons.insert(result.reason);
        if (result.plan.training.micro_batch_size > 16 || result.plan.parallelism.pp > 8) continue;  // for speed
        EXPECT_GT(peak_of(result.plan), memory_per_rank_bytes(result.plan)) << result.plan.name;
        ++checked;
    }
    EXPECT_GT(checked, 20);
    EXPECT_EQ(reasons,
              (std::set<std::string>{"a smaller micro-batch does not fit either", "does not fit in device memory",
                                     "parameters, gradients and optimizer states alone exceed device memory"}));
}

TEST(PlanSearch, HonoursWhatTheRequestFixes) {
    PlanRequest request = request_for("gpt2", 8, 720720, 128);
    request.tp = 2;
    request.dp = 2;
    request.micro_batch_size = 385;  // among those that are left out otherwise
    const PlanSearch found = search(request, kAll);
    EXPECT_EQ(found.considered, 2);  // with and without sequence parallelism
    for (const PlanResult& result : found.results) {
        EXPECT_EQ(result.plan.parallelism.tp, 2);
        EXPECT_EQ(result.plan.parallelism.pp, 2);
        EXPECT_EQ(result.plan.training.micro_batch_size, 385);
    }
}

TEST(PlanSearch, ExplainsWhyNothingIsFound) {
    const auto message_of = [](const PlanRequest& request) -> std::string {
        try {
            (void)search(request, 1);
        } catch (const InputError& error) {
            return error.what();
        } catch (const InfeasibleError& error) {
            return error.what();
        }
        return "";
    };
    PlanRequest request = request_for("gpt2", 8, 7, 128);
    request.dp = 2;
    EXPECT_EQ(message_of(request),
              "gpt2: no plan divides with dp 2: 8 devices into dp * tp * pp with heads 12, kv_heads 12 and ffn_hidden "
              "3072 multiples of tp, pp at most 12 layers, and the global batch 7 a multiple of dp * micro-batch");
    EXPECT_EQ(message_of(request_for("llama3-405b", 8, 8, 128)).substr(0, 97),
              "llama3-405b: none of 50 plans fits in the 80.0 GiB that a rank may use; the closest needs at leas");
    EXPECT_EQ(message_of(request_for("gpt2", 1, 1, 2048)),
              "the request: /training/sequence_length: got 2048; allowed: at most 1024, the model's learned positions");
    EXPECT_EQ(message_of(request_for("gpt2", 1, std::int64_t{1} << 29, 128)),
              "the request: /training/global_batch_size: got 536870912; allowed: an integer from 1 to 1048576");
}

TEST(Candidates, DivisorsAscend) {
    EXPECT_EQ(divisors(1), (std::vector<std::int64_t>{1}));
    EXPECT_EQ(divisors(36), (std::vector<std::int64_t>{1, 2, 3, 4, 6, 9, 12, 18, 36}));
    EXPECT_EQ(divisors(std::int64_t{1} << 40).size(), 41U);
}

TEST(Candidates, LargeMicroBatchesAreThinnedOutAndCounted) {
    PlanRequest request = request_for("gpt2", 1, 720720, 128);
    const CandidateList list = list_candidates(request);
    ASSERT_EQ(list.families.size(), 1U);
    std::vector<std::int64_t> sizes;
    for (const Plan& plan : list.families.front()) sizes.push_back(plan.training.micro_batch_size);
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

TEST(Sketch, HasTheMemoryOfTheWholePlan) {
    for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
        for (const std::int64_t pp : {1, 2, 3, 4}) {
            for (const std::int64_t micro_batches : {1, 2, 4, 5, 6, 7, 9, 33}) {
                Shape shape{.dp = 2, .tp = 2, .pp = pp, .micro_batches = micro_batches, .schedule = schedule};
                if (pp == 3) shape.tp = 4, shape.dp = 2;
                Plan plan = make_plan(shape);
                EXPECT_EQ(sketch(plan, cost_of(plan)).peak_memory_bytes, peak_of(plan))
                    << pp << " stages, " << micro_batches << " micro-batches";
                plan.cluster.device.host_runs_compute = true;  // arenas instead of what is alive
                EXPECT_EQ(sketch(plan, cost_of(plan)).peak_memory_bytes, peak_of(plan));
            }
        }
    }
}

TEST(Sketch, BoundsTheStepFromBelow) {
    for (const Shape& shape :
         {Shape{.micro_batches = 4}, Shape{.tp = 2, .pp = 4}, Shape{.dp = 4, .pp = 2, .micro_batches = 3},
          Shape{.pp = 4, .schedule = Schedule::gpipe}, Shape{.pp = 4, .stage_layers = {1, 2, 8, 1}},
          Shape{.model = "llama3-8b", .dp = 2, .tp = 4, .pp = 4, .micro_batches = 20, .sequence_parallel = true}}) {
        const Plan plan = make_plan(shape);
        const RooflineCost cost = cost_of(plan);
        const double step = timed(plan, topologies::Cluster(plan.cluster), cost).step_time_s;
        const double least = sketch(plan, cost).least_step_s;
        EXPECT_LE(least, step) << plan.parallelism.pp << " stages";
        EXPECT_GT(least, 0.3 * step);
    }
    // Alone, without a host that has to launch anything, a rank does nothing but what the bound counts.
    Plan alone = make_plan({.micro_batches = 5});
    alone.cluster.device.launch_us.value = 0;
    const double step = timed(alone, topologies::Cluster(alone.cluster), cost_of(alone)).step_time_s;
    EXPECT_NEAR(sketch(alone, cost_of(alone)).least_step_s, step, 2e-6 * step);
}

TEST(Timing, ExtrapolationAgreesWithTheWholeSimulation) {
    struct Case {
        Shape shape;
        double tolerance = 1e-4;
    };
    // The last two take many times their depth to settle: 80 layers over 11 and over 32 stages.
    for (const auto& [shape, tolerance] :
         {Case{{.micro_batches = 100}}, Case{{.tp = 2, .pp = 4, .micro_batches = 200}},
          Case{{.dp = 2, .pp = 4, .micro_batches = 150, .stage_layers = {2, 3, 4, 3}}},
          Case{{.dp = 2, .pp = 4, .micro_batches = 150, .stage_layers = {5, 1, 4, 2}}},
          Case{{.pp = 4, .micro_batches = 130, .schedule = Schedule::gpipe, .stage_layers = {4, 2, 3, 3}}},
          Case{{.model = "llama3-8b", .dp = 2, .tp = 4, .pp = 12, .micro_batches = 400, .sequence_parallel = true},
               1e-3},
          Case{{.model = "llama3-70b",
          .dp = 4,
          .tp = 4,
          .pp = 11,
          .micro_batches = 453,
          .sequence = 1024,
          .sequence_parallel = true},
               2e-3},
          Case{{.model = "llama3-70b",
          .cluster = "dgx-a100",
          .dp = 4,
          .tp = 4,
          .pp = 32,
          .micro_batches = 1293,
          .sequence_parallel = true},
               2e-3}}) {
        const Plan plan = make_plan(shape);
        ASSERT_FALSE(is_simulated_whole(plan));
        const topologies::Cluster cluster(plan.cluster);
        const PlanResult quick = timed(plan, cluster, cost_of(plan));
        const PlanResult whole = evaluate(program::lower(plan), cluster).result;
        EXPECT_NEAR(quick.step_time_s / whole.step_time_s, 1, tolerance) << shape.model << " " << shape.pp;
        EXPECT_NEAR(quick.bubble_fraction, whole.bubble_fraction, tolerance) << shape.model << " " << shape.pp;
        EXPECT_NEAR(quick.exposed_communication_s, whole.exposed_communication_s, tolerance * whole.step_time_s);
    }
}

TEST(Memory, RanksOfACpuNodeShareWhatItHas) {
    Plan plan = make_plan({.dp = 4});
    const auto device = static_cast<std::int64_t>(plan.cluster.device.memory_capacity_gib.value * kGibibyte);
    EXPECT_EQ(memory_per_rank_bytes(plan), device);
    plan.cluster.device.host_runs_compute = true;
    EXPECT_EQ(memory_per_rank_bytes(plan), device / 4);
    plan.cluster.nodes = 2;
    EXPECT_EQ(memory_per_rank_bytes(plan), device / 2);
}

}  // namespace
}  // namespace orrery::sim
