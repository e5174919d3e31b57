#include "sim/planner/timing.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/planner/lowered_bounds.h"
#include "sim/planner/planner.h"
#include "sim/program/rate_spread.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::PlanResult;

/// In micro-batches per pipeline rank. Plans with more than kWholeDepths are extrapolated from two runs, with
/// kFewDepths and kMoreDepths.
constexpr std::int64_t kWholeDepths = 28, kFewDepths = 12, kMoreDepths = 20;
static_assert(kMoreDepths <= kWholeDepths);
/// Likewise for brief_step_s.
constexpr std::int64_t kBriefFewDepths = 2, kBriefMoreDepths = 4;

program::RunRecord run(const program::Program& program, const topologies::Cluster& cluster, const RooflineCost& cost,
                       const SimulateOptions& options) {
    return simulate(program, cluster, cost, NetworkCommunication(cluster), options);
}

/// `recomputed_flops` counts the whole step.
void fill_times(const Plan& plan, double step_time_s, double recomputed_flops, PlanResult& result) {
    const double tokens =
        static_cast<double>(plan.training.global_batch_size) * static_cast<double>(plan.training.sequence_length);
    result.step_time_s = step_time_s;
    result.tokens_per_s_per_device = tokens / step_time_s / static_cast<double>(plan.parallelism.world_size());
    result.utilization = program::utilization_of(plan, step_time_s, recomputed_flops);
    result.bubble_fraction =
        program::bubble_fraction(plan, result.idle_fraction, result.exposed_communication_s / step_time_s);
}

/// Sets the interval of a record or a result. Without rates (where the host computes) the uncertainty is unknown.
template <typename Timed>
void set_interval(const Plan& plan, const program::Sensitivity& sensitivity, double step_time_s, Timed& timed) {
    if (sensitivity.empty() || plan.rates == program::Rates()) return;
    const double sd = program::step_time_sd(plan, sensitivity, step_time_s);
    const program::StepInterval interval = program::interval90(timed.step_time_s, sd);
    timed.step_time_low_s = interval.low_s;
    timed.step_time_high_s = interval.high_s;
}

/// The figures of a record that a PlanResult shows, as sums over time; in steady state they are affine in the number of
/// micro-batches.
struct Times {
    double step_s = 0, busy_s = 0, exposed_s = 0, recomputed_flops = 0;
    Times(const program::Program& program, const program::RunRecord& record)
        : step_s(record.step_time_s),
          busy_s((1 - record.idle_fraction) * record.step_time_s),
          exposed_s(program::exposed_seconds(record)),
          recomputed_flops(program::recomputed_flops(program)) {}
};

/// Evaluates the straight line through (few, before) and (more, after) at `whole`.
class Line {
  public:
    Line(const ShorterSteps& of, std::int64_t whole)
        : factor_(static_cast<double>(whole - of.more) / static_cast<double>(of.more - of.few)) {}
    [[nodiscard]] double at_whole(double before, double after) const { return after + (after - before) * factor_; }
    [[nodiscard]] std::int64_t at_whole(std::int64_t before, std::int64_t after) const {
        return after + std::llround(static_cast<double>(after - before) * factor_);
    }

  private:
    double factor_ = 0;
};

ShorterSteps depths_of(const Plan& plan, std::int64_t few_depths, std::int64_t more_depths) {
    const std::int64_t pp = plan.parallelism.pp, group = std::max<std::int64_t>(1, plan.parallelism.interleave_group);
    const auto of_groups = [&](std::int64_t micro_batches) { return (micro_batches + group - 1) / group * group; };
    const std::int64_t few = of_groups(few_depths * pp);
    return {few, std::max(of_groups(more_depths * pp), few + group)};
}

ShorterSteps depths_of(const Plan& plan) {
    return depths_of(plan, kFewDepths, kMoreDepths);
}

ShorterSteps brief_depths_of(const Plan& plan) {
    return depths_of(plan, kBriefFewDepths, kBriefMoreDepths);
}

std::int64_t instructions_of(const program::Program& program) {
    std::int64_t total = 0;
    for (const program::RankClass& ranks : program.classes) {
        for (const program::Action& action : ranks.actions) {
            for (const program::Segment& segment : ranks.segment_lists[action.segments]) {
                total += std::ssize(program.bodies[segment.body].instructions);
            }
        }
    }
    return total;
}

program::Sensitivity extrapolated(const program::Sensitivity& few, const program::Sensitivity& more, const Line& line) {
    std::map<program::WorkCell, std::pair<double, double>> cells;
    for (const auto& [cell, seconds] : few) cells[cell].first = seconds;
    for (const auto& [cell, seconds] : more) cells[cell].second = seconds;
    program::Sensitivity sensitivity;
    for (const auto& [cell, seconds] : cells) sensitivity[cell] = line.at_whole(seconds.first, seconds.second);
    return sensitivity;
}

program::RankRecord extrapolated(const program::RankRecord& few, const program::RankRecord& more, const Line& line) {
    program::RankRecord rank = more;
    for (const program::Stream s : program::kStreams) {
        rank.streams[s] = {line.at_whole(few.streams[s].busy_ps, more.streams[s].busy_ps),
                           line.at_whole(few.streams[s].exposed_ps, more.streams[s].exposed_ps)};
        rank.bytes_sent[s] = line.at_whole(few.bytes_sent[s], more.bytes_sent[s]);
    }
    ORRERY_CHECK(few.collectives.size() == more.collectives.size() && few.memory.size() == more.memory.size(),
                 "more micro-batches change the communication or memory records");
    for (std::size_t i = 0; i < rank.collectives.size(); ++i) {
        rank.collectives[i].bytes_sent = line.at_whole(few.collectives[i].bytes_sent, more.collectives[i].bytes_sent);
    }
    for (std::size_t i = 0; i < rank.memory.size(); ++i) {  // GPipe keeps every micro-batch's activations
        rank.memory[i].bytes = line.at_whole(few.memory[i].bytes, more.memory[i].bytes);
    }
    rank.memory_peak_bytes = line.at_whole(few.memory_peak_bytes, more.memory_peak_bytes);
    rank.memory_live_peak_bytes = line.at_whole(few.memory_live_peak_bytes, more.memory_live_peak_bytes);
    rank.device_memory.tensors = line.at_whole(few.device_memory.tensors, more.device_memory.tensors);
    rank.device_memory.cached = line.at_whole(few.device_memory.cached, more.device_memory.cached);
    return rank;
}

program::RunRecord extrapolated(const program::RunRecord& few, const program::RunRecord& more, const Line& line) {
    program::RunRecord record = more;
    const double step_s = line.at_whole(few.step_time_s, more.step_time_s);
    const double busy_s =
        line.at_whole((1 - few.idle_fraction) * few.step_time_s, (1 - more.idle_fraction) * more.step_time_s);
    record.step_seconds = {step_s};
    program::summarise_steps(record);
    record.idle_fraction = std::max(0.0, 1 - busy_s / step_s);
    record.memory_needed_bytes = line.at_whole(few.memory_needed_bytes, more.memory_needed_bytes);
    ORRERY_CHECK(few.ranks.size() == more.ranks.size(), "more micro-batches change the rank records");
    for (std::size_t i = 0; i < record.ranks.size(); ++i) {
        record.ranks[i] = extrapolated(few.ranks[i], more.ranks[i], line);
    }
    return record;
}

}  // namespace

void check_fit(std::int64_t peak_bytes, std::int64_t allowed_bytes, PlanResult& result) {
    result.peak_memory_gib = to_gib(Bytes(peak_bytes));
    result.feasible = peak_bytes <= allowed_bytes;
    if (!result.feasible) result.reason = "does not fit in device memory";
}

PlanResult timed(const Plan& plan, const topologies::Cluster& cluster, const RooflineCost& cost) {
    const ShorterSteps depths = depths_of(plan);
    const auto times_of = [&](const Plan& p) {
        const program::Program program = program::lower(p);
        return Times(program, run(program, cluster, cost, {.steps = kMeasuredStep}));
    };
    PlanResult result{.plan = plan, .feasible = true};
    Times times = times_of(is_simulated_whole(plan) ? plan : with_micro_batches(plan, depths.more));
    if (!is_simulated_whole(plan)) {
        const Times before = times_of(with_micro_batches(plan, depths.few));
        const Line line(depths, plan.micro_batches());
        times.step_s = line.at_whole(before.step_s, times.step_s);
        times.busy_s = line.at_whole(before.busy_s, times.busy_s);
        times.exposed_s = line.at_whole(before.exposed_s, times.exposed_s);
        times.recomputed_flops = line.at_whole(before.recomputed_flops, times.recomputed_flops);
    }
    result.idle_fraction = std::max(0.0, 1 - times.busy_s / times.step_s);
    result.exposed_communication_s = times.exposed_s;
    fill_times(plan, times.step_s, times.recomputed_flops, result);
    return result;
}

bool has_brief(const Plan& plan) {
    // Their passes settle late: of published plans with a vocabulary of 256,000 the line is 0.7% above the step.
    if (plan.parallelism.spreads_vocabulary()) return false;
    const ShorterSteps brief = brief_depths_of(plan), depths = depths_of(plan);
    return 2 * (brief.few + brief.more) <= std::min(plan.micro_batches(), depths.few + depths.more);
}

double brief_step_s(const Plan& plan, const topologies::Cluster& cluster, const RooflineCost& cost) {
    const ShorterSteps depths = brief_depths_of(plan);
    // The first and the last of so many steps.
    const auto steps_s = [&](std::int64_t micro_batches, int steps) {
        const program::Program program = program::lower(with_micro_batches(plan, micro_batches));
        double first = 0;
        const double last = run(program, cluster, cost, {.steps = steps, .first_step_s = &first}).step_time_s;
        return std::pair(first, last);
    };
    const auto [few_first, few] = steps_s(depths.few, kMeasuredStep);
    const double more_first = steps_s(depths.more, 1).first;
    const Line line(depths, plan.micro_batches());
    return (1 - kBriefError) * (few - few_first + line.at_whole(few_first, more_first));
}

void add_derivatives(const topologies::Cluster& cluster, const RooflineCost& cost, PlanResult& result) {
    const Plan plan =
        is_simulated_whole(result.plan) ? result.plan : with_micro_batches(result.plan, depths_of(result.plan).few);
    program::Sensitivity sensitivity;
    const program::RunRecord record =
        run(program::lower(plan), cluster, cost, {.steps = kMeasuredStep, .sensitivity = &sensitivity});
    set_interval(plan, sensitivity, record.step_time_s, result);
    result.shares = program::step_shares(sensitivity, result.bubble_fraction);
    if (!result.shares.empty()) result.limit = result.shares.front().limit;
    if (plan.rates != program::Rates()) {
        result.slopes = program::rate_slopes(plan, sensitivity, record.step_time_s);
    }
}

bool is_simulated_whole(const Plan& plan) {
    const std::int64_t micro_batches = plan.micro_batches();
    return is_simulated_whole(micro_batches, plan.parallelism.pp) || micro_batches <= depths_of(plan).more;
}

ShorterSteps extrapolated_from(const Plan& plan) {
    return depths_of(plan);
}

double at_whole(const ShorterSteps& steps, std::int64_t micro_batches, double few, double more) {
    return Line(steps, micro_batches).at_whole(few, more);
}

bool is_simulated_whole(std::int64_t micro_batches, std::int64_t pp) {
    return micro_batches <= kWholeDepths * pp;
}

Plan with_micro_batches(const Plan& plan, std::int64_t micro_batches) {
    Plan other = plan;
    other.training.global_batch_size = micro_batches * plan.parallelism.dp * plan.training.micro_batch_size;
    return other;
}

std::optional<ShorterSteps> shorter_steps(const Plan& plan) {
    if (is_simulated_whole(plan)) return {};
    const ShorterSteps depths = depths_of(plan);
    const std::int64_t few = instructions_of(program::lower(with_micro_batches(plan, depths.few)));
    const bool is_short = few / depths.few < kMostInstructions / plan.micro_batches();
    return is_short ? std::nullopt : std::optional(depths);
}

Evaluation evaluate_from(const ShorterSteps& steps, const Plan& plan, const topologies::Cluster& cluster,
                         const EvaluateOptions& options) {
    const program::Program few = program::lower(with_micro_batches(plan, steps.few)),
                           more = program::lower(with_micro_batches(plan, steps.more));
    const Evaluation before = evaluate(few, cluster, options), after = evaluate(more, cluster, options);
    const Line line(steps, plan.micro_batches());
    Evaluation evaluation = after;
    evaluation.record = extrapolated(before.record, after.record, line);
    evaluation.sensitivity = extrapolated(before.sensitivity, after.sensitivity, line);
    set_interval(plan, evaluation.sensitivity, evaluation.record.step_time_s, evaluation.record);
    evaluation.record.notes.push_back(
        "of " + std::to_string(plan.micro_batches()) + " micro-batches " + std::to_string(steps.more) +
        " were simulated; each further one adds as much time as a micro-batch in steady state");
    evaluation.memory.needed_bytes = evaluation.record.memory_needed_bytes;
    evaluation.result.plan = plan;
    check_fit(evaluation.memory.needed_bytes, evaluation.memory.allowed_bytes, evaluation.result);
    evaluation.result.idle_fraction = evaluation.record.idle_fraction;
    evaluation.result.exposed_communication_s = program::exposed_seconds(evaluation.record);
    fill_times(plan, evaluation.record.step_time_s,
               line.at_whole(program::recomputed_flops(few), program::recomputed_flops(more)), evaluation.result);
    return evaluation;
}

Evaluation evaluate(const program::Program& program, const topologies::Cluster& cluster,
                    const EvaluateOptions& options) {
    const Plan& plan = *program.plan;
    Evaluation evaluation;
    evaluation.record = run(program, cluster, RooflineCost(plan.cluster, plan.rates),
                            {.full = options.full,
                             .steps = kMeasuredStep,
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
