// The simulator at full size, whole and in its parts, and how it grows with micro-batches and ranks. Counters:
// instructions simulated a second, and ranks that had to be simulated.
#include <benchmark/benchmark.h>

#include "models/implementation.h"
#include "sim/cost/roofline_cost.h"
#include "sim/cost/table_cost.h"
#include "sim/engine/compiled_program.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/engine/symmetry.h"

namespace orrery {
namespace {

program::Plan llama_405b() {
    program::Plan plan;
    plan.name = "llama3-405b on 16,384 GPUs";
    plan.model = models::load_model("llama3-405b");
    plan.cluster = topologies::load_cluster("dgx-h100", 16'384);
    plan.implementation = models::load_implementation("orrery");
    plan.parallelism.dp = 128;
    plan.parallelism.tp = 8;
    plan.parallelism.pp = 16;
    plan.parallelism.sequence_parallel = true;
    plan.parallelism.stage_layers.assign(16, 8);
    plan.parallelism.stage_layers.front() = 7;
    plan.parallelism.stage_layers.back() = 7;
    plan.training.sequence_length = 8192;
    plan.training.global_batch_size = 128 * 16;
    plan.training.precision = program::precision_named("bf16");
    return plan;
}

/// Cluster and Program as the planner has them, ready to be simulated.
struct Fixture {
    program::Plan plan = llama_405b();
    topologies::Cluster cluster{plan.cluster};
    program::Program program = program::lower(plan);
    sim::RooflineCost cost{plan.cluster.device, plan.training.precision.activation};
    sim::NetworkCommunication communication{cluster};
    static const Fixture& get() {
        static const Fixture fixture;
        return fixture;
    }
    /// Of one step, over one rank of each class.
    [[nodiscard]] std::int64_t instructions() const {
        std::int64_t count = 0;
        for (const sim::CompiledClass& each : sim::compile(program, cost, false).classes) count += each.instructions;
        return count;
    }
};

void lowering(benchmark::State& state) {
    const Fixture& fixture = Fixture::get();
    for (auto _ : state) benchmark::DoNotOptimize(program::lower(fixture.plan));
}
BENCHMARK(lowering)->Unit(benchmark::kMillisecond);

void symmetry(benchmark::State& state) {
    const Fixture& fixture = Fixture::get();
    for (auto _ : state) {
        const sim::Quotient quotient = sim::make_quotient(fixture.program, fixture.plan.cluster, false);
        state.counters["classes"] = static_cast<double>(quotient.ranks.size());
    }
}
BENCHMARK(symmetry)->Unit(benchmark::kMillisecond);

void compilation(benchmark::State& state) {
    const Fixture& fixture = Fixture::get();
    for (auto _ : state) benchmark::DoNotOptimize(sim::compile(fixture.program, fixture.cost, false));
}
BENCHMARK(compilation)->Unit(benchmark::kMillisecond);

void simulation(benchmark::State& state) {
    const Fixture& fixture = Fixture::get();
    const int steps = static_cast<int>(state.range(0));
    std::int64_t ranks = 0;
    for (auto _ : state) {
        const program::RunRecord record =
            sim::simulate(fixture.program, fixture.cluster, fixture.cost, fixture.communication, {.steps = steps});
        ranks = static_cast<std::int64_t>(record.ranks.size());
        state.counters["step_s"] = record.step_time_s;
    }
    state.counters["ranks"] = static_cast<double>(ranks);
    state.counters["instructions"] =
        benchmark::Counter(static_cast<double>(fixture.instructions() * steps * ranks / 16),
                           benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(simulation)->Arg(1)->Arg(2)->Arg(3)->Unit(benchmark::kMillisecond);

void validation(benchmark::State& state) {
    const Fixture& fixture = Fixture::get();
    for (auto _ : state) program::validate(fixture.program);
}
BENCHMARK(validation)->Unit(benchmark::kMillisecond);

/// From the parsed plan; the cluster is built.
void plan_to_record(const program::Plan& plan, const topologies::Cluster& cluster) {
    const program::Program program = program::lower(plan);
    const sim::RooflineCost cost(plan.cluster.device, plan.training.precision.activation);
    benchmark::DoNotOptimize(sim::simulate(program, cluster, cost, sim::NetworkCommunication(cluster), {.steps = 2}));
}

void full_size(benchmark::State& state) {
    const Fixture& fixture = Fixture::get();
    for (auto _ : state) plan_to_record(fixture.plan, fixture.cluster);
}
BENCHMARK(full_size)
    ->Name(
        "Llama-3-405B at tp 8, pp 16 (126 layers as 7 + 14x8 + 7), dp 128, 16,384 GPUs, 1F1B, 16 micro-batches: "
        "from parsed plan to RunRecord")
    ->Unit(benchmark::kMillisecond);

void growth_in_micro_batches(benchmark::State& state) {
    program::Plan plan = Fixture::get().plan;
    plan.training.global_batch_size = plan.parallelism.dp * state.range(0);
    for (auto _ : state) plan_to_record(plan, Fixture::get().cluster);
    state.SetComplexityN(state.range(0));
}
BENCHMARK(growth_in_micro_batches)
    ->RangeMultiplier(2)
    ->Range(16, 512)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oAuto);

void growth_in_ranks(benchmark::State& state) {
    program::Plan plan = Fixture::get().plan;
    plan.parallelism.dp = state.range(0) / (plan.parallelism.tp * plan.parallelism.pp);
    plan.cluster = topologies::load_cluster("dgx-h100", state.range(0));
    plan.training.global_batch_size = plan.parallelism.dp * 16;
    const topologies::Cluster cluster(plan.cluster);
    for (auto _ : state) plan_to_record(plan, cluster);
    state.SetComplexityN(state.range(0));
}
BENCHMARK(growth_in_ranks)
    ->RangeMultiplier(4)
    ->Range(256, 65'536)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oAuto);

}  // namespace
}  // namespace orrery
