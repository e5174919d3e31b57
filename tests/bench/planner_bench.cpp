// Times the search of `orrery plan`, and the evaluation of a step with many micro-batches.
#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "models/implementation.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/planner/planner.h"
#include "sim/program/program.h"
#include "sim/program/rates.h"

namespace orrery {
namespace {

sim::PlanRequest request_for(const std::string& implementation, const char* model, std::int64_t devices,
                             std::int64_t batch, std::int64_t sequence) {
    sim::PlanRequest request;
    request.model = models::load_model(model);
    request.cluster = topologies::load_cluster("dgx-h100", devices);
    request.implementation = models::load_implementation(implementation);
    request.devices = devices;
    request.training.global_batch_size = batch;
    request.training.sequence_length = sequence;
    request.training.precision = program::precision_named("bf16", request.implementation);
    request.rates = program::resolve_rates(request.implementation, request.cluster);
    sim::allow_every_technique(request);
    return request;
}

constexpr std::size_t kKept = 10, kProven = 1;  // plans, as `orrery plan` does by default

void count(const sim::PlanSearch& found, benchmark::State& state) {
    state.counters["candidates"] = static_cast<double>(found.considered);
    state.counters["bounded"] = static_cast<double>(found.bounded);
    state.counters["layer_lowerings"] = static_cast<double>(found.layer_lowerings);
    state.counters["candidate_lowerings"] = static_cast<double>(found.candidate_lowerings);
    state.counters["simulated"] = static_cast<double>(found.simulated);
    state.counters["step_s"] = found.results.front().step_time_s;
}

/// As `orrery plan` does by default; `implementations` empty: those that it searches by default.
void search(benchmark::State& state, const char* model, std::int64_t devices, std::int64_t batch, std::int64_t sequence,
            std::vector<std::string> implementations = {}) {
    for (auto _ : state) {
        const topologies::Cluster cluster(topologies::load_cluster("dgx-h100", devices));
        if (implementations.empty()) implementations = sim::default_implementations(cluster.spec());
        sim::PlanSearch found;
        for (const std::string& implementation : implementations) {
            const sim::PlanRequest request = request_for(implementation, model, devices, batch, sequence);
            sim::merge(found, sim::search_plans(request, cluster, kKept, kProven, sim::step_times(found)), kKept);
        }
        count(found, state);
    }
}
BENCHMARK_CAPTURE(search, llama3_70b_512_gpus, "llama3-70b", 512, 1024, 8192)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, llama3_8b_64_gpus_batch_of_many_divisors, "llama3-8b", 64, 720'720, 512)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, llama3_405b_16384_gpus, "llama3-405b", 16'384, 2048, 8192)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, gpt3_175b_1024_gpus, "gpt3-175b", 1024, 1536, 2048)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, deepseek_v3_2048_gpus, "deepseek-v3", 2048, 4096, 4096)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, deepseek_v3_2048_gpus_torch_fsdp2, "deepseek-v3", 2048, 4096, 4096,
                  std::vector<std::string>{"torch-fsdp2"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, deepseek_v3_2048_gpus_orrery, "deepseek-v3", 2048, 4096, 4096,
                  std::vector<std::string>{"orrery"})
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, llama3_8b_4096_gpus, "llama3-8b", 4096, 4096, 8192)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, mixtral_8x7b_64_gpus, "mixtral-8x7b", 64, 256, 4096)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, llama3_8b_64_gpus_long_sequence, "llama3-8b", 64, 64, 131'072)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search, gpt2_8_gpus, "gpt2", 8, 512, 1024)->Unit(benchmark::kMillisecond);

/// As `orrery scale --mode weak` does: the best plan at every power of two, with the batch in proportion.
void weak_scaling(benchmark::State& state, const char* model, std::int64_t least, std::int64_t most,
                  std::int64_t sequences_per_device, std::int64_t sequence) {
    for (auto _ : state) {
        sim::PlanSearch all;
        for (std::int64_t devices = least; devices <= most; devices *= 2) {
            const topologies::Cluster cluster(topologies::load_cluster("dgx-h100", devices));
            sim::PlanSearch found;
            for (const std::string& implementation : sim::default_implementations(cluster.spec())) {
                const sim::PlanRequest request =
                    request_for(implementation, model, devices, sequences_per_device * devices, sequence);
                sim::merge(found, sim::search_plans(request, cluster, 1, 1, sim::step_times(found)), 1);
            }
            sim::merge(all, std::move(found), 1);
        }
        count(all, state);
    }
}
BENCHMARK_CAPTURE(weak_scaling, llama3_70b_64_to_131072_gpus, "llama3-70b", 64, 131'072, 2, 8192)
    ->Unit(benchmark::kMillisecond);

/// As `orrery plan --space full --implementation megatron-core` does, with `overlaps` also `--overlap-experts any`.
void search_full_space(benchmark::State& state, const char* model, std::int64_t devices, std::int64_t batch,
                       std::int64_t sequence, bool overlaps = false) {
    for (auto _ : state) {
        sim::PlanRequest request = request_for("megatron-core", model, devices, batch, sequence);
        sim::allow_full_space(request);
        if (overlaps) sim::allow_expert_overlap(request);
        const topologies::Cluster cluster(request.cluster);
        count(sim::search_plans(request, cluster, kKept, kProven), state);
    }
}
BENCHMARK_CAPTURE(search_full_space, llama3_70b_512_gpus, "llama3-70b", 512, 1024, 8192)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search_full_space, llama3_405b_16384_gpus, "llama3.1-405b", 16'384, 2048, 8192)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search_full_space, gpt3_175b_1024_gpus, "gpt3-175b", 1024, 1536, 2048)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search_full_space, deepseek_v3_2048_gpus, "deepseek-v3", 2048, 15'360, 4096)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(search_full_space, deepseek_v3_2048_gpus_overlapping, "deepseek-v3", 2048, 15'360, 4096, true)
    ->Unit(benchmark::kMillisecond);

/// Bounds the candidates of a list one by one, without recomputation. Returns their number.
std::int64_t bound_all(const sim::CandidateList& list, sim::AnalyticBounder& bounder) {
    std::int64_t count = 0;
    std::vector<sim::AnalyticBounds> bounds;
    for (const sim::Family& family : list.families) {
        sim::Choice choice = family.choice;
        for (const std::int64_t micro_batch : family.micro_batches) {
            choice.micro_batch = micro_batch;
            bounder.bounds_of_each(choice, list.shardings_of(family), bounds);
            count += std::ssize(bounds);
        }
    }
    return count;
}

/// With the costs of layers at hand.
void bound_every_candidate(benchmark::State& state, const char* implementation, const char* model, std::int64_t devices,
                           std::int64_t batch, std::int64_t sequence) {
    const sim::PlanRequest request = request_for(implementation, model, devices, batch, sequence);
    const topologies::Cluster cluster(request.cluster);
    const sim::RooflineCost cost(request.cluster, request.rates);
    const sim::CandidateList list = sim::list_candidates(request);
    sim::AnalyticBounder bounder(request, cluster, cost);
    benchmark::DoNotOptimize(bound_all(list, bounder));
    for (auto _ : state) state.SetItemsProcessed(state.items_processed() + bound_all(list, bounder));
}
BENCHMARK_CAPTURE(bound_every_candidate, llama3_405b_16384_gpus, "megatron-core", "llama3-405b", 16'384, 2048, 8192)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(bound_every_candidate, llama3_8b_4096_gpus, "orrery", "llama3-8b", 4096, 4096, 8192)
    ->Unit(benchmark::kMillisecond);

/// Lists the full space and bounds every candidate of it, from nothing: all that a search does before it orders them,
/// had it to look at each. The items are candidates with a bound of their own; ways to recompute, which share it, are
/// not counted.
void consider_full_space(benchmark::State& state, const char* model, std::int64_t devices, std::int64_t batch,
                         std::int64_t sequence) {
    sim::PlanRequest request = request_for("megatron-core", model, devices, batch, sequence);
    sim::allow_full_space(request);
    const topologies::Cluster cluster(request.cluster);
    const sim::RooflineCost cost(request.cluster, request.rates);
    for (auto _ : state) {
        const sim::CandidateList list = sim::list_candidates(request);
        sim::AnalyticBounder bounder(request, cluster, cost);
        const std::int64_t count = bound_all(list, bounder);
        state.SetItemsProcessed(state.items_processed() + count);
        state.counters["candidates"] = static_cast<double>(count);
        state.counters["layer_lowerings"] = static_cast<double>(bounder.layer_lowerings());
    }
}
BENCHMARK_CAPTURE(consider_full_space, deepseek_v3_2048_gpus, "deepseek-v3", 2048, 15'360, 4096)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(consider_full_space, llama3_405b_16384_gpus, "llama3-405b", 16'384, 2048, 8192)
    ->Iterations(1)
    ->Unit(benchmark::kMillisecond);

/// Evaluates a step of many micro-batches: extrapolated, as `orrery simulate` does, or simulated whole.
sim::Evaluation evaluate_step(const program::Plan& plan, bool whole) {
    const topologies::Cluster cluster(plan.cluster);
    if (whole) return sim::evaluate(program::lower(plan), cluster, {.derivatives = true});
    return sim::evaluate_from(sim::shorter_steps(plan).value(), plan, cluster, {.derivatives = true});
}
void long_step(benchmark::State& state, bool whole) {
    program::Plan plan;
    plan.name = "long";
    plan.model = models::load_model("megatron-22b");
    plan.implementation = models::load_implementation("megatron-core");
    plan.cluster = topologies::load_cluster("dgx-h100", 64);
    plan.rates = program::resolve_rates(plan.implementation, plan.cluster);
    plan.parallelism = {.tp = 8, .pp = 8, .sequence_parallel = true};
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, plan.parallelism.pp);
    plan.training.precision = program::precision_named("bf16");
    plan.training.sequence_length = 2048;
    plan.training.global_batch_size = 8192;
    program::check_plan(plan, "long");
    for (auto _ : state) state.counters["step_s"] = evaluate_step(plan, whole).result.step_time_s;
}
BENCHMARK_CAPTURE(long_step, each_micro_batch, true)->Unit(benchmark::kMillisecond);
BENCHMARK_CAPTURE(long_step, from_shorter_steps, false)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace orrery
