#include "sim/planner/planner.h"

#include <gtest/gtest.h>

#include <set>

#include "core/error.h"
#include "core/units.h"
#include "tests/unit/planner/brute_force.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::Plan;
using program::PlanResult;
using program::Recompute;
using program::Schedule;

TEST(PlanSearch, AgreesWithBruteForce) {
    std::vector<PlanRequest> requests{request_for("gpt2", 4, 16, 512), request_for("gpt2-medium", 8, 8, 1024),
                                      request_for("llama3-8b", 8, 4, 4096)};
    requests[2].schedules = {Schedule::gpipe, Schedule::one_f_one_b, Schedule::zb_h2, Schedule::dualpipe_v};
    for (PlanRequest& request : requests) {
        request.model.layers = 8;
        request.tries_shard_groups = request.tries_rank_orders = request.tries_keeping_parameters = false;
        std::erase(request.data_parallel, DataParallel::zero2);
        request.cp = 1;
    }
    requests[1].data_parallel.push_back(DataParallel::zero2);
    std::set<DataParallel> kinds;
    std::set<Recompute> recomputes;
    std::set<Schedule> schedules;
    for (const PlanRequest& roomy : requests) {
        BruteForce brute(roomy);
        if (roomy.model.name != requests[0].model.name) brute.tighten(0.5);  // recomputation is needed
        const PlanRequest& request = brute.request();
        const std::vector<PlanResult> every = brute.results();
        ASSERT_GT(every.size(), 10U) << request.model.name;
        for (const std::size_t keep : {std::size_t{1}, std::size_t{8}, kAll}) {
            const PlanSearch found = search(request, keep);
            const std::vector<PlanResult> best = feasible_of(found);
            ASSERT_EQ(best.size(), std::min(keep, every.size())) << request.model.name;
            for (std::size_t i = 0; i < best.size(); ++i) {
                EXPECT_EQ(best[i].step_time_s, every[i].step_time_s) << best[i].plan.name << " " << every[i].plan.name;
                EXPECT_EQ(best[i].peak_memory_gib, to_gib(Bytes(peak_of(best[i].plan)))) << best[i].plan.name;
            }
            EXPECT_TRUE(keep == kAll || found.simulated < static_cast<std::int64_t>(every.size()));
        }
        for (const PlanResult& result : every) {
            kinds.insert(result.plan.parallelism.data_parallel);
            recomputes.insert(result.plan.training.memory.recompute);
            schedules.insert(result.plan.parallelism.schedule);
        }
    }
    EXPECT_EQ(kinds.size(), 4U);
    EXPECT_EQ(recomputes.size(), 3U);
    EXPECT_EQ(schedules.size(), 7U);
}

TEST(PlanSearch, IsNeverSlowerThanPlainPipelinesOfReplicas) {
    struct Case {
        const char* model;
        std::int64_t devices, batch, sequence;
    };
    int faster = 0;
    for (const Case& c : {Case{"gpt2", 8, 64, 1024}, Case{"gpt2-xl", 8, 32, 1024}, Case{"llama3-8b", 16, 32, 4096},
                          Case{"llama3-8b", 8, 24, 2048}, Case{"llama3-70b", 128, 256, 4096}}) {
        const PlanRequest request = request_for(c.model, c.devices, c.batch, c.sequence);
        const double wide = search(request, 1).results.front().step_time_s;
        const double narrow = search(plain(request), 1).results.front().step_time_s;
        EXPECT_LE(wide, narrow) << c.model;
        faster += wide < 0.99 * narrow ? 1 : 0;
    }
    EXPECT_GE(faster, 2);
}

TEST(PlanSearch, RecommendsTheTechniquesThatLargeModelsNeed) {
    // A mixture of experts uses EP, a long sequence CP, and a large model shards or recomputes. With one schedule,
    // which does not change that.
    const auto request_of = [](const char* model, std::int64_t devices, std::int64_t batch, std::int64_t sequence) {
        PlanRequest request = request_for(model, devices, batch, sequence);
        request.schedules = {Schedule::one_f_one_b};
        return request;
    };
    const PlanResult experts = search(request_of("mixtral-8x7b", 64, 256, 4096), 1).results.front();
    EXPECT_GT(experts.plan.parallelism.ep, 1);
    PlanRequest request = request_of("llama3-8b", 16, 16, 131'072);
    const PlanResult context = search(request, 1).results.front();
    EXPECT_GT(context.plan.parallelism.cp, 1);
    EXPECT_EQ(context.plan.parallelism.context_parallel, program::ContextParallel::ring);
    request.cp = 1;
    EXPECT_GT(search(request, 1).results.front().step_time_s, context.step_time_s);
    const PlanResult large = search(request_of("llama3-70b", 64, 64, 8192), 1).results.front();
    EXPECT_NE(large.plan.parallelism.data_parallel, DataParallel::ddp);
}

TEST(PlanSearch, ResultsEqualTheWholeSimulation) {
    const PlanRequest request = request_for("llama3-8b", 16, 32, 4096);
    const topologies::Cluster cluster(request.cluster);
    for (const PlanResult& result : feasible_of(search(request, 3))) {
        const Evaluation whole = evaluate(program::lower(result.plan), cluster);
        EXPECT_TRUE(whole.result.feasible);
        EXPECT_DOUBLE_EQ(result.step_time_s, whole.result.step_time_s);
        EXPECT_DOUBLE_EQ(result.utilization.mfu, whole.result.utilization.mfu);
        EXPECT_NEAR(result.utilization.hfu, whole.result.utilization.hfu, 1e-12);
        EXPECT_DOUBLE_EQ(result.tokens_per_s_per_device, whole.result.tokens_per_s_per_device);
        EXPECT_DOUBLE_EQ(result.exposed_communication_s, whole.result.exposed_communication_s);
        EXPECT_NEAR(result.idle_fraction, whole.result.idle_fraction, 1e-12);
        EXPECT_EQ(result.peak_memory_gib, whole.result.peak_memory_gib);
        EXPECT_EQ(whole.record.plan_name, result.plan.name);
    }
}

TEST(PlanSearch, ProvesTheFirstResultsAlone) {
    PlanRequest request = request_for("gpt2-medium", 8, 16, 1024);
    request.model.layers = 6;
    const topologies::Cluster cluster(request.cluster);
    constexpr std::size_t kKept = 20;
    const PlanSearch every = search(request, kAll), all = search_plans(request, cluster, kKept, kKept);
    EXPECT_EQ(proven_results(every), feasible_of(every).size());
    EXPECT_GE(proven_results(all), kKept);
    for (const std::size_t prove : {std::size_t{1}, std::size_t{2}}) {
        const PlanSearch found = search_plans(request, cluster, kKept, prove);
        const std::vector<PlanResult> results = feasible_of(found);
        ASSERT_EQ(results.size(), kKept);
        const std::size_t proven = proven_results(found);
        EXPECT_GE(proven, prove);
        for (std::size_t i = 0; i < proven; ++i) {
            EXPECT_LE((1 - kStepTolerance) * results[i].step_time_s, every.results[i].step_time_s) << i;
        }
        EXPECT_LE(found.simulated, all.simulated);
        EXPECT_LT(found.candidate_lowerings, all.candidate_lowerings);
    }
}

/// All shardings of one pipeline, where replicas in two sets of shards take longer than the sum of their collectives.
TEST(PlanSearch, FindsTheSameBestPlanHoweverManyAreToBeProven) {
    PlanRequest request = request_for("llama3.1-405b", 16'384, 2048, 8192, "megatron-core");
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    request.tp = request.cp = 4;
    request.pp = 16;
    request.chunks = 8;
    request.micro_batch_size = 1;
    const topologies::Cluster cluster(request.cluster);
    const double alone = search_plans(request, cluster, 1, 1).results.front().step_time_s;
    const double of_two = search_plans(request, cluster, 2, 2).results.front().step_time_s;
    EXPECT_LE((1 - kStepTolerance) * alone, of_two);
}

TEST(PlanSearch, IsDeterministic) {
    const PlanRequest request = request_for("gpt2-xl", 8, 32, 1024);
    const PlanSearch one = search(request, 4), two = search(request, 4);
    ASSERT_EQ(one.results.size(), two.results.size());
    for (std::size_t i = 0; i < one.results.size(); ++i) {
        EXPECT_EQ(one.results[i].plan, two.results[i].plan);
        EXPECT_EQ(one.results[i].step_time_s, two.results[i].step_time_s);
    }
}

TEST(PlanSearch, RefusedPlansReallyDoNotFit) {
    PlanRequest request = request_for("llama3-70b", 64, 128, 4096);
    request.data_parallel = {DataParallel::ddp};
    const PlanSearch found = search(request, 2);
    std::set<std::string> reasons;
    std::set<std::vector<std::int64_t>> meshes;
    for (const PlanResult& result : found.results) {
        const program::Parallelism& p = result.plan.parallelism;
        EXPECT_TRUE(result.feasible || meshes.insert({p.tp, p.pp, p.dp, p.cp, p.ep}).second);
        if (result.feasible) continue;
        reasons.insert(result.reason);
        EXPECT_GT(peak_of(result.plan), memory_per_rank_bytes(result.plan)) << result.plan.name;
        // Nor does any other plan on the mesh.
        PlanRequest mesh = request;
        mesh.tp = p.tp, mesh.pp = p.pp, mesh.dp = p.dp;
        EXPECT_THROW((void)search(mesh, 1), InfeasibleError) << result.plan.name;
    }
    EXPECT_GE(meshes.size(), 3U);
    EXPECT_EQ(reasons.count("parameters, gradients and optimizer states alone exceed device memory"), 1U);
    EXPECT_GT(found.too_large, 100);
}

TEST(PlanSearch, KeepsTheDegreesThatTheRequestFixes) {
    PlanRequest request = request_for("gpt2", 8, 720720, 128);
    request.tp = 2;
    request.dp = 2;
    request.micro_batch_size = 385;  // left out unless the request fixes it
    const PlanSearch found = search(plain(request), kAll);
    EXPECT_EQ(found.considered, 6);  // three layouts of the stages, with and without sequence parallelism
    for (const PlanResult& result : found.results) {
        EXPECT_EQ(result.plan.parallelism.tp, 2);
        EXPECT_EQ(result.plan.parallelism.pp, 2);
        EXPECT_EQ(result.plan.training.micro_batch_size, 385);
    }
}

TEST(PlanSearch, UsesOnlyTheTechniquesThatTheRequestNames) {
    PlanRequest request = request_for("llama3-8b", 16, 32, 4096);
    request.model.layers = 8;
    request.schedules = {Schedule::zb_v, Schedule::interleaved};
    request.data_parallel = {DataParallel::zero2};
    request.recompute = {Recompute::selective};
    request.training.memory.recompute_parts = {"mlp_in"};
    request.pp = 4;
    std::set<Schedule> schedules;
    for (const PlanResult& result : feasible_of(search(request, kAll))) {
        schedules.insert(result.plan.parallelism.schedule);
        EXPECT_EQ(result.plan.parallelism.pp, 4);
        EXPECT_EQ(result.plan.training.memory.recompute, Recompute::selective);
        EXPECT_EQ(result.plan.training.memory.recompute_parts, std::vector<std::string>{"mlp_in"});
        if (result.plan.parallelism.dp > 1) {
            EXPECT_EQ(result.plan.parallelism.data_parallel, DataParallel::zero2);
        }
    }
    EXPECT_EQ(schedules, (std::set<Schedule>{Schedule::zb_v, Schedule::interleaved}));
    request.recompute = {Recompute::full};  // of as few blocks as fit, at least one
    for (const PlanResult& result : feasible_of(search(request, 3))) {
        EXPECT_EQ(result.plan.training.memory.recompute, Recompute::full);
        EXPECT_NE(result.plan.training.memory.recompute_layers, 0);
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
              "3072 multiples of tp, pp at most 14, and the global batch 7 a multiple of dp * micro-batch");
    EXPECT_EQ(message_of(plain(request_for("llama3-405b", 8, 8, 128))),
              "llama3-405b: none of 96 plans fits in the 78.6 GiB that a rank may use");
    EXPECT_EQ(message_of(request_for("gpt2", 1, 1, 2048)),
              "the request: /training/sequence_length: got 2048; allowed: at most 1024, the model's learned positions");
    EXPECT_EQ(message_of(request_for("gpt2", 1, std::int64_t{1} << 29, 128)),
              "the request: /training/global_batch_size: got 536870912; allowed: an integer from 1 to 1048576");
}

TEST(Memory, RanksOfACpuNodeShareItsMemory) {
    PlanRequest request = request_for("gpt2", 4, 4, 512);
    Plan plan = plan_of(request, {.dp = 4});
    const auto device = static_cast<std::int64_t>(plan.cluster.device.usable_gib() * kGibibyte);
    EXPECT_EQ(memory_per_rank_bytes(plan, 0.0), device);
    EXPECT_EQ(memory_per_rank_bytes(plan), device - static_cast<std::int64_t>(kDefaultMemoryMarginGib * kGibibyte));
    plan.cluster.device.host_runs_compute = true;
    EXPECT_EQ(memory_per_rank_bytes(plan), device / 4);
    plan.cluster.nodes = 2;
    EXPECT_EQ(memory_per_rank_bytes(plan), device / 2);
}

}  // namespace
}  // namespace orrery::sim
