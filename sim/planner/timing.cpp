#include "sim/planner/timing.h"

#include <algorithm>

#include "core/units.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/planner/planner.h"
#include "sim/planner/sketch.h"
#include "sim/program/rate_spread.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::PlanResult;
using program::Stream;

/// Pipelines settle slowly when their stages are uneven: up to this many micro-batches a stage of depth, plans are
/// simulated whole; longer ones are extrapolated between two runs of the given depths.
constexpr std::int64_t kWholeDepths = 28, kFewDepths = 8, kMoreDepths = 20;
/// The step before the one that is measured; a third would repeat the second.
constexpr int kSteps = 2;

program::RunRecord run(const program::Program& program, const topologies::Cluster& cluster, const RooflineCost& cost,
                       const SimulateOptions& options) {
    return simulate(program, cluster, cost, NetworkCommunication(cluster), options);
}

/// recomputed_flops: of the whole step.
void fill_times(const Plan& plan, double step_time_s, double recomputed_flops, PlanResult& result) {
    const double tokens =
        static_cast<double>(plan.training.global_batch_size) * static_cast<double>(plan.training.sequence_length);
    result.step_time_s = step_time_s;
    result.tokens_per_s_per_device = tokens / step_time_s / static_cast<double>(plan.parallelism.world_size());
    result.utilization = program::utilization_of(plan, step_time_s, recomputed_flops);
    result.bubble_fraction =
        program::bubble_fraction(plan, result.idle_fraction, result.exposed_communication_s / step_time_s);
}

/// Of a record or a result; where the host computes there are no rates, and nothing is known of how sure it is.
template <typename Timed>
void set_interval(const Plan& plan, const program::Sensitivity& sensitivity, double step_time_s, Timed& timed) {
    if (sensitivity.entries.empty() || plan.rates == program::Rates()) return;
    const double sd = program::step_time_sd(plan, sensitivity, step_time_s);
    const program::StepInterval interval = program::interval90(timed.step_time_s, sd);
    timed.step_time_low_s = interval.low_s;
    timed.step_time_high_s = interval.high_s;
}

/// What of a record a PlanResult shows, as sums over time: affine in the number of micro-batches once the pipeline has
/// settled.
struct Times {
    double step_s = 0, busy_s = 0, exposed_s = 0, recomputed_flops = 0;
    Times(const program::Program& program, const program::RunRecord& record)
        : step_s(record.step_time_s),
          busy_s((1 - record.idle_fraction) * record.step_time_s),
          exposed_s(program::exposed_seconds(record)),
          recomputed_flops(program::recomputed_flops(program)) {}
};

/// The straight line through (few, before) and (more, after), at `whole`.
double extrapolated(double before, double after, std::int64_t few, std::int64_t more, std::int64_t whole) {
    return after + (after - before) / static_cast<double>(more - few) * static_cast<double>(whole - more);
}

}  // namespace

void check_fit(std::int64_t peak_bytes, std::int64_t allowed_bytes, PlanResult& result) {
    result.peak_memory_gib = to_gib(Bytes(peak_bytes));
    result.feasible = peak_bytes <= allowed_bytes;
    if (!result.feasible) result.reason = "does not fit in device memory";
}

PlanResult timed(const Plan& plan, const topologies::Cluster& cluster, const RooflineCost& cost) {
    const std::int64_t whole = plan.micro_batches();
    const std::int64_t few = kFewDepths * plan.parallelism.pp, more = kMoreDepths * plan.parallelism.pp;
    const auto times_of = [&](const Plan& p) {
        const program::Program program = program::lower(p);
        return Times(program, run(program, cluster, cost, {.steps = kSteps}));
    };
    PlanResult result{.plan = plan, .feasible = true};
    Times times = times_of(is_simulated_whole(plan) ? plan : with_micro_batches(plan, more));
    if (!is_simulated_whole(plan)) {
        const Times before = times_of(with_micro_batches(plan, few));
        times.step_s = extrapolated(before.step_s, times.step_s, few, more, whole);
        times.busy_s = extrapolated(before.busy_s, times.busy_s, few, more, whole);
        times.exposed_s = extrapolated(before.exposed_s, times.exposed_s, few, more, whole);
        times.recomputed_flops = extrapolated(before.recomputed_flops, times.recomputed_flops, few, more, whole);
    }
    result.idle_fraction = std::max(0.0, 1 - times.busy_s / times.step_s);
    result.exposed_communication_s = times.exposed_s;
    fill_times(plan, times.step_s, times.recomputed_flops, result);
    return result;
}

void add_interval(const topologies::Cluster& cluster, const RooflineCost& cost, PlanResult& result) {
    if (result.plan.rates == program::Rates()) return;
    const Plan plan = is_simulated_whole(result.plan)
                          ? result.plan
                          : with_micro_batches(result.plan, kFewDepths * result.plan.parallelism.pp);
    program::Sensitivity sensitivity;
    const program::RunRecord record =
        run(program::lower(plan), cluster, cost, {.steps = kSteps, .sensitivity = &sensitivity});
    set_interval(plan, sensitivity, record.step_time_s, result);
}

bool is_simulated_whole(const Plan& plan) {
    return plan.micro_batches() <= kWholeDepths * plan.parallelism.pp;
}

Evaluation evaluate(const program::Program& program, const topologies::Cluster& cluster,
                    const EvaluateOptions& options) {
    const Plan& plan = *program.plan;
    Evaluation evaluation;
    evaluation.record = run(program, cluster, RooflineCost(plan.cluster, plan.rates),
                            {.full = options.full,
                             .steps = kSteps,
                             .record_spans = options.record_spans,
                             .sensitivity = options.derivatives ? &evaluation.sensitivity : nullptr});
    set_interval(plan, evaluation.sensitivity, evaluation.record.step_time_s, evaluation.record);
    evaluation.result.plan = plan;
    evaluation.memory = memory_fit(program, options.memory_margin_gib);
    evaluation.record.memory_needed_bytes = evaluation.memory.needed_bytes;
    evaluation.record.memory_allowed_bytes = evaluation.memory.allowed_bytes;
    check_fit(evaluation.memory.needed_bytes, evaluation.memory.allowed_bytes, evaluation.result);
    evaluation.result.idle_fraction = evaluation.record.idle_fraction;
    evaluation.result.exposed_communication_s = program::exposed_seconds(evaluation.record);
    fill_times(plan, evaluation.record.step_time_s, program::recomputed_flops(program), evaluation.result);
    return evaluation;
}

}  // namespace orrery::sim
