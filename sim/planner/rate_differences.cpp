#include "sim/planner/rate_differences.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "sim/planner/planner.h"
#include "sim/program/rate_spread.h"

namespace orrery::sim {
namespace {

using program::kRateStep;
using program::Plan;
using program::RateDifference;
using program::Rates;

double step_with(const Plan& plan, const topologies::Cluster& cluster, const std::string& name, double factor) {
    Plan moved = plan;
    for (const program::RateRow& row : program::rate_rows()) {
        Rates::Resolved resolved = plan.rates.of(row.key);
        if (resolved.name != name) continue;
        resolved.rate.value *= factor;
        moved.rates.set(row.key, std::move(resolved));
    }
    return evaluate(program::lower(moved), cluster).record.step_time_s;
}

}  // namespace

std::vector<RateDifference> rate_differences(const Plan& plan) {
    const topologies::Cluster cluster(plan.cluster);
    const Evaluation evaluation = evaluate(program::lower(plan), cluster, {.derivatives = true});
    const double step_s = evaluation.record.step_time_s;
    const std::map<std::string, double> slopes = program::rate_slopes(plan, evaluation.sensitivity, step_s);
    std::vector<RateDifference> differences;
    for (const auto& [name, slope] : slopes) {
        RateDifference one{.rate = name, .slope = slope};
        one.above = std::log(step_with(plan, cluster, name, 1 + kRateStep) / step_s) / std::log1p(kRateStep);
        one.below = std::log(step_with(plan, cluster, name, 1 - kRateStep) / step_s) / std::log1p(-kRateStep);
        const double largest = std::max({std::abs(one.slope), std::abs(one.above), std::abs(one.below)});
        if (largest >= program::kLeastSlope) differences.push_back(std::move(one));
    }
    return differences;
}

}  // namespace orrery::sim
