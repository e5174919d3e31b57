#include "sim/planner/planner.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "sim/cost/roofline_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::PlanResult;
using program::Stream;

/// Candidates timed by extrapolation whose step is within this factor of the best may still win; they are simulated
/// whole, at least `keep` of them.
constexpr double kExtrapolationMargin = 1.02;
constexpr std::size_t kMostExact = 32;

std::vector<std::int64_t> divisors(std::int64_t n) {
    std::vector<std::int64_t> result;
    for (std::int64_t d = 1; d <= n; ++d) {
        if (n % d == 0) result.push_back(d);
    }
    return result;
}

std::string name_of_plan(const Plan& plan) {
    const program::Parallelism& p = plan.parallelism;
    std::string name =
        plan.model.name + "-dp" + std::to_string(p.dp) + "-tp" + std::to_string(p.tp) + "-pp" + std::to_string(p.pp);
    if (p.sequence_parallel) name += "-sp";
    if (p.pp > 1) name += "-" + name_of(p.schedule);
    return name + "-mb" + std::to_string(plan.training.micro_batch_size);
}

/// Shapes that lowering would refuse; said here without building anything.
bool divides(const models::ModelSpec& model, std::int64_t tp) {
    return model.heads % tp == 0 && model.kv_heads % tp == 0 && model.ffn_hidden % tp == 0;
}

std::vector<Plan> list_candidates(const PlanRequest& request) {
    std::vector<Plan> plans;
    const std::int64_t batch = request.training.global_batch_size;
    for (std::int64_t tp : divisors(request.devices)) {
        if ((request.tp != 0 && tp != request.tp) || !divides(request.model, tp)) continue;
        for (std::int64_t pp : divisors(request.devices / tp)) {
            if ((request.pp != 0 && pp != request.pp) || pp > request.model.layers) continue;
            const std::int64_t dp = request.devices / tp / pp;
            if ((request.dp != 0 && dp != request.dp) || batch % dp != 0) continue;
            for (std::int64_t micro_batch : divisors(batch / dp)) {
                if (request.micro_batch_size != 0 && micro_batch != request.micro_batch_size) continue;
                for (program::Schedule schedule : request.schedules) {
                    if (pp == 1 && schedule != request.schedules.front()) continue;  // one stage: all schedules agree
                    for (const bool sequence_parallel : {false, true}) {
                        if (sequence_parallel && (tp == 1 || request.training.sequence_length % tp != 0)) continue;
                        Plan plan{.model = request.model,
                                  .cluster = request.cluster,
                                  .implementation = request.implementation,
                                  .parallelism = {.dp = dp,
                                                  .tp = tp,
                                                  .pp = pp,
                                                  .sequence_parallel = sequence_parallel,
                                                  .schedule = schedule,
                                                  .stage_layers = program::even_stages(request.model.layers, pp)},
                                  .training = request.training,
                                  .origins = request.origins};
                        plan.training.micro_batch_size = micro_batch;
                        plan.name = name_of_plan(plan);
                        plans.push_back(std::move(plan));
                    }
                }
            }
        }
    }
    return plans;
}

/// Bytes of parameters, gradients and optimizer states of the first stage at least: what no schedule can avoid.
double least_state_bytes(const Plan& plan) {
    const program::Precision& precision = plan.training.precision;
    const double per_parameter = static_cast<double>(size_of(precision.parameter) + size_of(precision.gradient)) +
                                 (precision.master_weights ? 12 : 8);
    const auto ranks = static_cast<double>(plan.parallelism.tp * plan.parallelism.pp);
    return per_parameter * static_cast<double>(models::parameter_count(plan.model)) / ranks * 0.9;
}

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

std::int64_t peak_memory_bytes(const program::Program& program) {
    std::int64_t peak = 0;
    // The executor of CPU ranks allocates the static arenas; a device's allocator reuses what is free.
    const bool arenas = program.plan->cluster.ranks_may_share_devices();
    for (const program::RankClass& rank_class : program.classes) {
        peak = std::max(peak, arenas ? rank_class.memory.arena : rank_class.memory.live_peak);
    }
    const auto context = static_cast<std::int64_t>(program.plan->cluster.device.context_gib.value * kGibibyte);
    return peak + context;
}

program::RunRecord run(const program::Program& program, const topologies::Cluster& cluster, bool record_spans,
                       bool full) {
    const RooflineCost cost(program.plan->cluster.device, program.plan->training.precision.activation);
    const NetworkCommunication network(cluster);
    program::RunRecord record = simulate(program, cluster, cost, network, {.full = full, .record_spans = record_spans});
    for (std::string& note : cost.notes(program)) record.notes.push_back(std::move(note));
    return record;
}

void check_fit(const program::Program& program, PlanResult& result) {
    const std::int64_t peak = peak_memory_bytes(program);
    const std::int64_t limit = memory_per_rank_bytes(*program.plan);
    result.peak_memory_gib = to_gib(Bytes(peak));
    result.feasible = peak <= limit;
    if (!result.feasible) result.reason = "does not fit in device memory";
}

void fill_times(const program::Program& program, double step_time_s, PlanResult& result) {
    const Plan& plan = *program.plan;
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

/// The plan with fewer micro-batches.
Plan shortened(const Plan& plan, std::int64_t micro_batches) {
    Plan shorter = plan;
    shorter.training.global_batch_size = micro_batches * plan.parallelism.dp * plan.training.micro_batch_size;
    return shorter;
}

struct Candidate {
    Plan plan;
    PlanResult result;
};

/// Step time from two short runs when the plan has many micro-batches. Memory is that of the whole plan: 1F1B holds no
/// more than the pipeline's depth; GPipe's grows with the number, so GPipe is lowered whole.
PlanResult estimate(const Plan& plan, const topologies::Cluster& cluster) {
    PlanResult result;
    const std::int64_t depth = plan.parallelism.pp;
    const std::int64_t few = 2 * depth, more = 3 * depth;
    const bool shorten = plan.micro_batches() > more && plan.parallelism.schedule == program::Schedule::one_f_one_b;
    const program::Program program = program::lower(shorten ? shortened(plan, more) : plan);
    check_fit(program, result);
    if (!result.feasible) return result;
    double step = run(program, cluster, false, false).step_time_s;
    if (shorten) {
        const double less = run(program::lower(shortened(plan, few)), cluster, false, false).step_time_s;
        step += (step - less) / static_cast<double>(more - few) * static_cast<double>(plan.micro_batches() - more);
    }
    result.step_time_s = step;
    return result;
}

}  // namespace

std::int64_t memory_per_rank_bytes(const Plan& plan) {
    const double capacity = plan.cluster.device.memory_capacity_gib.value * kGibibyte;
    if (!plan.cluster.ranks_may_share_devices()) return static_cast<std::int64_t>(capacity);
    // The profile of a CPU node states the node's memory.
    const std::int64_t nodes = std::max<std::int64_t>(1, plan.cluster.nodes);
    const std::int64_t ranks_per_node = (plan.parallelism.world_size() + nodes - 1) / nodes;
    return static_cast<std::int64_t>(capacity) / ranks_per_node;
}

Evaluation evaluate(const program::Program& program, const topologies::Cluster& cluster, bool record_spans, bool full) {
    Evaluation evaluation;
    evaluation.record = run(program, cluster, record_spans, full);
    evaluation.record.plan_name = program.plan->name;
    evaluation.result.plan = *program.plan;
    check_fit(program, evaluation.result);
    fill_times(program, evaluation.record.step_time_s, evaluation.result);
    evaluation.result.bubble_fraction = evaluation.record.bubble_fraction;
    evaluation.result.exposed_communication_s = exposed_seconds(evaluation.record);
    return evaluation;
}

PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep) {
    PlanSearch search;
    std::vector<Plan> plans = list_candidates(request);
    search.considered = static_cast<std::int64_t>(plans.size());
    if (plans.empty()) {
        throw InputError(request.model.name + ": no plan divides: " + std::to_string(request.devices) +
                         " devices into dp * tp * pp with heads " + std::to_string(request.model.heads) +
                         ", kv_heads " + std::to_string(request.model.kv_heads) + " and ffn_hidden " +
                         std::to_string(request.model.ffn_hidden) + " multiples of tp, pp at most " +
                         std::to_string(request.model.layers) + " layers, and the global batch " +
                         std::to_string(request.training.global_batch_size) + " a multiple of dp");
    }
    std::vector<Candidate> fitting;
    std::vector<PlanResult> infeasible;
    double closest_gib = -1;
    const auto refuse = [&](Plan& plan, PlanResult result) {
        if (closest_gib < 0 || result.peak_memory_gib < closest_gib) closest_gib = result.peak_memory_gib;
        result.plan = std::move(plan);
        infeasible.push_back(std::move(result));
    };
    for (Plan& plan : plans) {
        const double states = least_state_bytes(plan);
        if (states > static_cast<double>(memory_per_rank_bytes(plan))) {
            refuse(plan, {.peak_memory_gib = states / kGibibyte,
                          .reason = "parameters, gradients and optimizer states alone exceed device memory"});
            continue;
        }
        PlanResult result = estimate(plan, cluster);
        if (!result.feasible) {
            refuse(plan, std::move(result));
            continue;
        }
        fitting.push_back({std::move(plan), std::move(result)});
    }
    if (fitting.empty()) {
        throw InfeasibleError(request.model.name + ": none of " + std::to_string(search.considered) +
                              " plans fits in " + std::to_string(request.cluster.device.memory_capacity_gib.value) +
                              " GiB of device memory; the closest needs " + std::to_string(closest_gib) +
                              " GiB on its fullest rank");
    }
    std::stable_sort(fitting.begin(), fitting.end(), [](const Candidate& a, const Candidate& b) {
        return a.result.step_time_s < b.result.step_time_s;
    });
    std::size_t exact = std::min(keep, fitting.size());
    const double bar = fitting[exact - 1].result.step_time_s * kExtrapolationMargin;
    while (exact < fitting.size() && exact < kMostExact && fitting[exact].result.step_time_s <= bar) ++exact;
    for (std::size_t i = 0; i < exact; ++i) {
        search.results.push_back(evaluate(program::lower(fitting[i].plan), cluster).result);
    }
    search.simulated_exactly = static_cast<std::int64_t>(exact);
    std::stable_sort(search.results.begin(), search.results.end(),
                     [](const PlanResult& a, const PlanResult& b) { return a.step_time_s < b.step_time_s; });
    if (search.results.size() > keep) search.results.resize(keep);
    search.results.insert(search.results.end(), std::make_move_iterator(infeasible.begin()),
                          std::make_move_iterator(infeasible.end()));
    return search;
}

}  // namespace orrery::sim
