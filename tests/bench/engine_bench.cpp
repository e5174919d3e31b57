// The simulator at full size, as a whole and by phase, and its growth with micro-batches, stages and ranks. Counters:
// instructions simulated per second, and the number of ranks simulated.
#include <benchmark/benchmark.h>

#include "models/implementation.h"
#include "sim/cost/roofline_cost.h"
#include "sim/cost/table_cost.h"
#include "sim/engine/compiled_program.h"
#include "sim/engine/critical_path.h"
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
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, 16);
    plan.training.sequence_length = 8192;
    plan.training.global_batch_size = 128 * 16;
    plan.training.precision = program::precision_named("bf16");
    return plan;
}

/// A cluster and a Program, ready to be simulated.
struct Fixture {
    program::Plan plan;
    topologies::Cluster cluster{plan.cluster};
    program::Program program = program::lower(plan);
    sim::RooflineCost cost{plan.cluster};
    sim::NetworkCommunication communication{cluster};
    explicit Fixture(const program::Plan& planned) : plan(planned) {}
    static const Fixture& get() {
        static const Fixture fixture(llama_405b());
        return fixture;
    }
    /// 1,024 GPUs: tp 8, pp 8, dp 16, 16 micro-batches.
    static const Fixture& of_a_thousand() {
        static const Fixture fixture([] {
            program::Plan plan = llama_405b();
            plan.parallelism.dp = 16;
            plan.parallelism.pp = 8;
            plan.parallelism.stage_layers = program::even_stages(plan.model.layers, 8);
            plan.cluster = topologies::load_cluster("dgx-h100", 1024);
            plan.training.global_batch_size = 16 * 16;
            return plan;
        }());
        return fixture;
    }
    /// Sets the counters, for simulations of `steps` steps with the ranks of `record`.
    void count_instructions(benchmark::State& state, const program::RunRecord& record, int steps) const {
        const sim::CompiledProgram compiled = sim::compile(program, cost, false);
        std::int64_t count = 0;
        for (const program::RankRecord& rank : record.ranks) {
            count += compiled.classes[rank.rank_class].instructions;
        }
        state.counters["ranks"] = static_cast<double>(record.ranks.size());
        state.counters["step_s"] = record.step_time_s;
        state.counters["instructions"] =
            benchmark::Counter(static_cast<double>(count * steps), benchmark::Counter::kIsIterationInvariantRate);
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
        const topologies::Cluster cluster(fixture.plan.cluster);
        const topologies::Cluster* const states[] = {&cluster};
        sim::PlacedJobs jobs;
        jobs.emplace_back(fixture.program, sim::place_ranks(fixture.plan.parallelism, cluster), states);
        const sim::Quotient quotient =
            sim::make_quotients(jobs, sim::FabricUse(), fixture.plan.cluster, false).jobs.front();
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
    program::RunRecord record;
    for (auto _ : state) {
        record = sim::simulate(fixture.program, fixture.cluster, fixture.cost, fixture.communication, {.steps = steps});
    }
    fixture.count_instructions(state, record, steps);
}
BENCHMARK(simulation)->Arg(1)->Arg(2)->Arg(3)->Unit(benchmark::kMillisecond);

void every_rank_of_1024(benchmark::State& state) {
    const Fixture& fixture = Fixture::of_a_thousand();
    program::RunRecord record;
    for (auto _ : state) {
        record = sim::simulate(fixture.program, fixture.cluster, fixture.cost, fixture.communication,
                               {.full = true, .steps = 1});
    }
    fixture.count_instructions(state, record, 1);
}
BENCHMARK(every_rank_of_1024)->Unit(benchmark::kMillisecond);

void explanation(benchmark::State& state) {
    const Fixture& fixture = Fixture::of_a_thousand();
    const program::RunRecord record =
        sim::simulate(fixture.program, fixture.cluster, fixture.cost, fixture.communication, {.record_spans = true});
    for (auto _ : state) {
        state.counters["elements"] = static_cast<double>(sim::critical_path(fixture.program, record).elements.size());
    }
}
BENCHMARK(explanation)->Unit(benchmark::kMillisecond);

void validation(benchmark::State& state) {
    const Fixture& fixture = Fixture::get();
    for (auto _ : state) program::validate(fixture.program);
}
BENCHMARK(validation)->Unit(benchmark::kMillisecond);

/// From the parsed plan to the record; the cluster is already built.
void plan_to_record(const program::Plan& plan, const topologies::Cluster& cluster) {
    const program::Program program = program::lower(plan);
    const sim::RooflineCost cost(plan.cluster);
    benchmark::DoNotOptimize(sim::simulate(program, cluster, cost, sim::NetworkCommunication(cluster), {.steps = 2}));
}

void full_size(benchmark::State& state) {
    const Fixture& fixture = Fixture::get();
    for (auto _ : state) plan_to_record(fixture.plan, fixture.cluster);
}
BENCHMARK(full_size)
    ->Name(
        "Llama-3-405B at tp 8, pp 16, dp 128, 16,384 GPUs, 1F1B, 16 micro-batches: "
        "from parsed plan to RunRecord")
    ->Unit(benchmark::kMillisecond);

/// Two blocks per stage, one data-parallel replica.
program::Plan deep_plan(std::int64_t stages, std::int64_t micro_batches, std::int64_t tp = 8) {
    program::Plan plan = llama_405b();
    plan.model.layers = 2 * stages;
    plan.cluster = topologies::load_cluster("dgx-h100", tp * stages);
    plan.parallelism.tp = tp;
    plan.parallelism.sequence_parallel = tp > 1;
    plan.parallelism.dp = 1;
    plan.parallelism.pp = stages;
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, stages);
    plan.training.global_batch_size = micro_batches;
    return plan;
}

void many_micro_batches(benchmark::State& state) {
    const program::Plan plan = deep_plan(64, 1024, state.range(0));
    const topologies::Cluster cluster(plan.cluster);
    for (auto _ : state) plan_to_record(plan, cluster);
}
BENCHMARK(many_micro_batches)
    ->Name("64 stages of 2 blocks, 1,024 micro-batches, by tp: from parsed plan to RunRecord")
    ->Arg(1)
    ->Arg(8)
    ->Unit(benchmark::kMillisecond);

void growth_in_stages(benchmark::State& state) {
    const program::Plan plan = deep_plan(state.range(0), 128);
    const topologies::Cluster cluster(plan.cluster);
    for (auto _ : state) plan_to_record(plan, cluster);
    state.SetComplexityN(state.range(0));
}
BENCHMARK(growth_in_stages)
    ->RangeMultiplier(2)
    ->Range(2, 64)
    ->Unit(benchmark::kMillisecond)
    ->Complexity(benchmark::oAuto);

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
