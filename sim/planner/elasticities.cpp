#include "sim/planner/elasticities.h"

#include <oneapi/tbb/parallel_for.h>

#include <cstdint>
#include <utility>

#include "sim/cost/roofline_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/planner/planner.h"
#include "sim/planner/timing.h"
#include "topologies/cluster.h"

namespace orrery::sim {
namespace {

using program::Plan;

WorkTimes times_of(const Plan& plan) {
    const topologies::Cluster cluster(plan.cluster);
    return work_times(program::lower(plan), cluster, RooflineCost(plan.cluster, plan.rates),
                      NetworkCommunication(cluster));
}

/// A step and its derivatives, in seconds.
struct Step {
    double seconds = 0;
    std::vector<std::optional<double>> derivatives;
};

Step step_of(const Plan& plan, std::span<const MovedInput> inputs, std::int64_t micro_batches) {
    const Plan base = with_micro_batches(plan, micro_batches);
    const topologies::Cluster cluster(base.cluster);
    const RooflineCost cost(base.cluster, base.rates);
    const NetworkCommunication communication(cluster);
    const program::Program program = program::lower(base);
    const WorkTimes shape = work_times(program, cluster, cost, communication);
    std::vector<InputChange> changes(inputs.size());
    tbb::parallel_for(std::size_t{0}, inputs.size(), [&](std::size_t i) {
        changes[i] = {times_of(with_micro_batches(inputs[i].less, micro_batches)),
                      times_of(with_micro_batches(inputs[i].more, micro_batches)), inputs[i].log_ratio};
    });
    Step step{.seconds = 0, .derivatives = std::vector<std::optional<double>>(inputs.size())};
    std::vector<InputChange> comparable;
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < changes.size(); ++i) {
        if (!changes[i].less.has_shape_of(shape) || !changes[i].more.has_shape_of(shape)) continue;
        comparable.push_back(std::move(changes[i]));
        places.push_back(i);
    }
    std::vector<std::optional<double>> derivatives;
    step.seconds = simulate(program, cluster, cost, communication,
                            {.steps = kMeasuredStep, .changes = comparable, .change_derivatives = &derivatives})
                       .step_time_s;
    for (std::size_t i = 0; i < derivatives.size(); ++i) step.derivatives[places[i]] = derivatives[i];
    return step;
}

}  // namespace

std::vector<std::optional<double>> elasticities(const Plan& plan, std::span<const MovedInput> inputs) {
    const std::int64_t whole = plan.micro_batches();
    Step step;
    if (is_simulated_whole(plan)) {
        step = step_of(plan, inputs, whole);
    } else {
        const ShorterSteps shorter = extrapolated_from(plan);
        const Step few = step_of(plan, inputs, shorter.few), more = step_of(plan, inputs, shorter.more);
        step.seconds = at_whole(shorter, whole, few.seconds, more.seconds);
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            const auto &before = few.derivatives[i], &after = more.derivatives[i];
            step.derivatives.push_back(before && after ? std::optional(at_whole(shorter, whole, *before, *after))
                                                       : std::nullopt);
        }
    }
    for (std::optional<double>& derivative : step.derivatives) {
        if (derivative) *derivative /= step.seconds;
    }
    return step.derivatives;
}

}  // namespace orrery::sim
