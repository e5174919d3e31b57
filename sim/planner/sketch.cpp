#include "sim/planner/sketch.h"

#include <algorithm>
#include <vector>

#include "core/error.h"
#include "core/units.h"

namespace orrery::sim {

namespace {

using program::ActionKind;
using program::Plan;
using program::Program;
using program::RankClass;

/// Against the simulator's rounding of each instruction to a picosecond.
constexpr double kRounding = 1 - 1e-6;

double context_bytes(const Plan& plan) {
    return plan.cluster.device.context_gib.value * kGibibyte;
}

/// Compute seconds of the class's first action of that kind.
double action_seconds(const Program& program, const RankClass& rank_class, ActionKind kind,
                      const std::vector<double>& body_seconds) {
    const auto action = std::find_if(rank_class.actions.begin(), rank_class.actions.end(),
                                     [&](const program::Action& a) { return a.kind == kind; });
    ORRERY_CHECK(action != rank_class.actions.end(),
                 rank_class.name + " has no " + std::string(name_of(kind)) + " in the plan " + program.plan->name);
    double seconds = 0;
    for (const program::Segment& segment : rank_class.segment_lists[static_cast<std::size_t>(action->segments)]) {
        seconds += body_seconds[static_cast<std::size_t>(segment.body)];
    }
    return seconds;
}

double least_step_seconds(const Program& program, const RooflineCost& cost, std::int64_t micro_batches) {
    std::vector<double> body_seconds;
    for (const program::Body& body : program.bodies) {
        double& seconds = body_seconds.emplace_back(0);
        for (const models::Operator& op : body.operators) seconds += cost.operator_seconds(op);
    }
    double before = 0, most = 0;
    for (const RankClass& stage : program.classes) {
        const double both = action_seconds(program, stage, ActionKind::forward, body_seconds) +
                            action_seconds(program, stage, ActionKind::backward, body_seconds);
        most = std::max(most, before + static_cast<double>(micro_batches) * both);
        before += both;
    }
    return kRounding *
           (most + action_seconds(program, program.classes.front(), ActionKind::optimizer_step, body_seconds));
}

}  // namespace

Plan with_micro_batches(const Plan& plan, std::int64_t micro_batches) {
    Plan other = plan;
    other.training.global_batch_size = micro_batches * plan.parallelism.dp * plan.training.micro_batch_size;
    return other;
}

std::int64_t peak_memory_bytes(const Program& program, const RankClass& rank_class) {
    const bool arenas = program.plan->cluster.ranks_may_share_devices();
    return (arenas ? rank_class.memory.arena : rank_class.memory.live_peak) +
           static_cast<std::int64_t>(context_bytes(*program.plan));
}

double least_state_bytes(const Plan& plan) {
    const program::Precision& precision = plan.training.precision;
    const double per_parameter = static_cast<double>(size_of(precision.parameter) + size_of(precision.gradient)) +
                                 (precision.master_weights ? 12 : 8);
    const auto ranks = static_cast<double>(plan.parallelism.tp * plan.parallelism.pp);
    return per_parameter * static_cast<double>(models::parameter_count(plan.model)) / ranks + context_bytes(plan);
}

Sketch sketch(const Plan& plan, const RooflineCost& cost) {
    // From here on another micro-batch changes neither what 1F1B holds at once nor by how much GPipe grows.
    const std::int64_t few = plan.parallelism.pp + 2;
    const std::int64_t whole = plan.micro_batches();
    const Program program = program::lower(whole > few ? with_micro_batches(plan, few) : plan);
    Sketch result;
    result.least_step_s = least_step_seconds(program, cost, whole);
    for (const RankClass& stage : program.classes) {
        result.peak_memory_bytes = std::max(result.peak_memory_bytes, peak_memory_bytes(program, stage));
    }
    if (whole <= few || plan.parallelism.schedule == program::Schedule::one_f_one_b) return result;
    const Program next = program::lower(with_micro_batches(plan, few + 1));
    for (std::size_t c = 0; c < program.classes.size(); ++c) {
        const std::int64_t here = peak_memory_bytes(program, program.classes[c]);
        const std::int64_t growth = peak_memory_bytes(next, next.classes[c]) - here;
        result.peak_memory_bytes = std::max(result.peak_memory_bytes, here + (whole - few) * growth);
    }
    return result;
}

}  // namespace orrery::sim
