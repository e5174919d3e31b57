#include "sim/planner/planner.h"

#include <algorithm>
#include <iomanip>
#include <iterator>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/planner/candidates.h"
#include "sim/planner/sketch.h"
#include "sim/planner/timing.h"

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

double exposed_seconds(const program::RunRecord& record) {
    double total = 0, ranks = 0;
    for (const program::RankRecord& rank : record.ranks) {
        const auto weight = static_cast<double>(rank.multiplicity);
        for (Stream stream : {Stream::tp, Stream::dp}) {
            total += weight * to_seconds(Picoseconds(rank.streams[static_cast<std::size_t>(stream)].exposed_ps));
        }
        ranks += weight;
    }
    return ranks > 0 ? total / ranks : 0;
}

program::RunRecord run(const program::Program& program, const topologies::Cluster& cluster, const RooflineCost& cost,
                       const SimulateOptions& options) {
    return simulate(program, cluster, cost, NetworkCommunication(cluster), options);
}

RooflineCost cost_of(const Plan& plan) {
    return {plan.cluster.device, plan.training.precision.activation};
}

void check_fit(const Plan& plan, std::int64_t peak, PlanResult& result) {
    result.peak_memory_gib = to_gib(Bytes(peak));
    result.feasible = peak <= memory_per_rank_bytes(plan);
    if (!result.feasible) result.reason = "does not fit in device memory";
}

void fill_times(const Plan& plan, double step_time_s, PlanResult& result) {
    const auto devices = static_cast<double>(plan.parallelism.world_size());
    const double tokens =
        static_cast<double>(plan.training.global_batch_size) * static_cast<double>(plan.training.sequence_length);
    const double peak = plan.cluster.device.peak_flops_per_s(plan.training.precision.activation);
    constexpr auto kConvention = models::FlopsConvention::palm;
    const double flops = models::model_flops_per_sequence(plan.model, plan.training.sequence_length, kConvention) *
                         static_cast<double>(plan.training.global_batch_size);
    result.step_time_s = step_time_s;
    result.tokens_per_s_per_device = tokens / step_time_s / devices;
    result.mfu = flops / step_time_s / devices / peak;
    result.mfu_convention = models::name_of(kConvention);
}

struct Candidate {
    Plan plan;
    Sketch sketch;
};

/// What of a record a PlanResult shows, as sums over time: affine in the number of micro-batches once the pipeline has
/// settled.
struct Times {
    double step_s = 0, busy_s = 0, exposed_s = 0;
    explicit Times(const program::RunRecord& record)
        : step_s(record.step_time_s),
          busy_s((1 - record.bubble_fraction) * record.step_time_s),
          exposed_s(exposed_seconds(record)) {}
};

/// The straight line through (few, before) and (more, after), at `whole`.
double extrapolated(double before, double after, std::int64_t few, std::int64_t more, std::int64_t whole) {
    return after + (after - before) / static_cast<double>(more - few) * static_cast<double>(whole - more);
}

}  // namespace

PlanResult timed(const Plan& plan, const topologies::Cluster& cluster, const RooflineCost& cost) {
    const std::int64_t whole = plan.micro_batches();
    const std::int64_t few = kFewDepths * plan.parallelism.pp, more = kMoreDepths * plan.parallelism.pp;
    const auto times_of = [&](const Plan& p) {
        return Times(run(program::lower(p), cluster, cost, {.steps = kSteps}));
    };
    PlanResult result{.plan = plan, .feasible = true};
    Times times = times_of(is_simulated_whole(plan) ? plan : with_micro_batches(plan, more));
    if (!is_simulated_whole(plan)) {
        const Times before = times_of(with_micro_batches(plan, few));
        times.step_s = extrapolated(before.step_s, times.step_s, few, more, whole);
        times.busy_s = extrapolated(before.busy_s, times.busy_s, few, more, whole);
        times.exposed_s = extrapolated(before.exposed_s, times.exposed_s, few, more, whole);
    }
    fill_times(plan, times.step_s, result);
    result.bubble_fraction = std::max(0.0, 1 - times.busy_s / times.step_s);
    result.exposed_communication_s = times.exposed_s;
    return result;
}

bool is_simulated_whole(const Plan& plan) {
    return plan.micro_batches() <= kWholeDepths * plan.parallelism.pp;
}

std::int64_t memory_per_rank_bytes(const Plan& plan) {
    const double capacity = plan.cluster.device.memory_capacity_gib.value * kGibibyte;
    if (!plan.cluster.ranks_may_share_devices()) return static_cast<std::int64_t>(capacity);
    // The profile of a CPU node states the node's memory.
    const std::int64_t nodes = std::max<std::int64_t>(1, plan.cluster.nodes);
    const std::int64_t ranks_per_node = (plan.parallelism.world_size() + nodes - 1) / nodes;
    return static_cast<std::int64_t>(capacity) / ranks_per_node;
}

Evaluation evaluate(const program::Program& program, const topologies::Cluster& cluster, bool record_spans, bool full) {
    const Plan& plan = *program.plan;
    Evaluation evaluation;
    evaluation.record = run(program, cluster, cost_of(plan), {.full = full, .record_spans = record_spans});
    evaluation.result.plan = plan;
    std::int64_t peak = 0;
    for (const program::RankClass& rank_class : program.classes) {
        peak = std::max(peak, peak_memory_bytes(program, rank_class));
    }
    check_fit(plan, peak, evaluation.result);
    fill_times(plan, evaluation.record.step_time_s, evaluation.result);
    evaluation.result.bubble_fraction = evaluation.record.bubble_fraction;
    evaluation.result.exposed_communication_s = exposed_seconds(evaluation.record);
    return evaluation;
}

namespace {

/// Splits the candidates into those that fit and those that do not.
class MemoryCheck {
  public:
    explicit MemoryCheck(const RooflineCost& cost) : cost_(cost) {}

    /// Plans that differ in the micro-batch size only, smallest first: memory grows with it, so that the first one that
    /// does not fit settles all that follow.
    void add(std::vector<Plan> family) {
        const double states = least_state_bytes(family.front());
        std::string reason;
        double known_gib = 0;
        if (states > static_cast<double>(memory_per_rank_bytes(family.front()))) {
            reason = "parameters, gradients and optimizer states alone exceed device memory";
            known_gib = states / kGibibyte;
            note(known_gib);
        }
        for (Plan& plan : family) {
            PlanResult result{.peak_memory_gib = known_gib, .reason = reason};
            if (reason.empty()) {
                const Sketch found = sketch(plan, cost_);
                check_fit(plan, found.peak_memory_bytes, result);
                if (result.feasible) {
                    fitting.push_back({std::move(plan), found});
                    continue;
                }
                note(result.peak_memory_gib);
                reason = "a smaller micro-batch does not fit either";
            }
            result.plan = std::move(plan);
            infeasible.push_back(std::move(result));
        }
    }

    std::vector<Candidate> fitting;
    std::vector<PlanResult> infeasible;
    double closest_gib = -1;  // least memory that one that does not fit needs; -1: none

  private:
    void note(double gib) { closest_gib = closest_gib < 0 ? gib : std::min(closest_gib, gib); }
    const RooflineCost& cost_;
};

std::string one_digit(double value) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << value;
    return text.str();
}

}  // namespace

PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep) {
    ORRERY_CHECK(keep > 0, "a search that keeps no plan");
    CandidateList list = list_candidates(request);
    PlanSearch search;
    search.considered = list.considered;
    search.left_out = list.left_out;
    const RooflineCost cost = cost_of(list.families.front().front());
    const double limit_gib =
        to_gib(Bytes(memory_per_rank_bytes(list.families.front().front())));  // the same for every plan
    MemoryCheck memory(cost);
    for (std::vector<Plan>& family : list.families) memory.add(std::move(family));
    if (memory.fitting.empty()) {
        throw InfeasibleError(request.model.name + ": none of " + std::to_string(search.considered) +
                              " plans fits in the " + one_digit(limit_gib) +
                              " GiB that a rank may use; the closest needs at least " + one_digit(memory.closest_gib) +
                              " GiB on its fullest rank");
    }
    // Most promising first, so that the rest can be dropped once not even its lower bounds are good enough.
    std::stable_sort(memory.fitting.begin(), memory.fitting.end(), [](const Candidate& a, const Candidate& b) {
        return a.sketch.least_step_s < b.sketch.least_step_s;
    });
    const auto faster = [](const PlanResult& a, const PlanResult& b) { return a.step_time_s < b.step_time_s; };
    for (const Candidate& candidate : memory.fitting) {
        if (search.results.size() == keep && candidate.sketch.least_step_s > search.results.back().step_time_s) break;
        ++search.simulated;
        if (is_simulated_whole(candidate.plan)) ++search.simulated_exactly;
        PlanResult result = timed(candidate.plan, cluster, cost);
        check_fit(candidate.plan, candidate.sketch.peak_memory_bytes, result);
        search.results.insert(std::upper_bound(search.results.begin(), search.results.end(), result, faster),
                              std::move(result));
        if (search.results.size() > keep) search.results.pop_back();
    }
    search.results.insert(search.results.end(), std::make_move_iterator(memory.infeasible.begin()),
                          std::make_move_iterator(memory.infeasible.end()));
    return search;
}

}  // namespace orrery::sim
