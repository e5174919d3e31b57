// The results of searches: several merged into one ranking, the gap that is proven, and which results are tied.
#include <algorithm>
#include <iterator>
#include <utility>

#include "core/units.h"
#include "sim/planner/merge_by.h"
#include "sim/planner/planner.h"
#include "sim/program/step_ratio.h"

namespace orrery::sim {

std::vector<std::string> default_implementations(const topologies::ClusterSpec& cluster) {
    const bool is_measured = !cluster.device.operator_samples.empty();  // no preset has them
    if (cluster.ranks_may_share_devices() || is_measured) return {"orrery"};
    return {"megatron-core", "torch-fsdp2"};
}

void merge_by(PlanSearch& into, PlanSearch from, std::size_t keep,
              const std::function<double(const program::PlanResult&)>& value) {
    std::vector<program::PlanResult>& all = into.results;
    std::move(from.results.begin(), from.results.end(), std::back_inserter(all));
    const auto split = std::stable_partition(all.begin(), all.end(),
                                             [](const program::PlanResult& result) { return result.feasible; });
    std::stable_sort(all.begin(), split,
                     [&](const program::PlanResult& a, const program::PlanResult& b) { return value(a) < value(b); });
    const auto feasible = static_cast<std::size_t>(split - all.begin());
    if (feasible > keep) {
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(keep), all.begin() + static_cast<std::ptrdiff_t>(feasible));
    }
    into.considered += from.considered;
    into.left_out += from.left_out;
    into.too_large += from.too_large;
    into.bounded += from.bounded;
    into.layer_lowerings += from.layer_lowerings;
    into.candidate_lowerings += from.candidate_lowerings;
    into.simulated += from.simulated;
    into.least_open_s = std::min(into.least_open_s, from.least_open_s);
    into.device_counts.merge(from.device_counts);
    into.memory_limit_bytes = std::max(into.memory_limit_bytes, from.memory_limit_bytes);
    std::move(from.spaces.begin(), from.spaces.end(), std::back_inserter(into.spaces));
}

void merge(PlanSearch& into, PlanSearch from, std::size_t keep) {
    merge_by(into, std::move(from), keep, [](const program::PlanResult& result) { return result.step_time_s; });
}

std::vector<double> step_times(const PlanSearch& search) {
    std::vector<double> times;
    for (const program::PlanResult& result : search.results) {
        if (result.feasible) times.push_back(result.step_time_s);
    }
    return times;
}

std::size_t proven_results(const PlanSearch& search) {
    const auto is_proven = [&](const program::PlanResult& result) {
        return result.feasible && search.least_open_s > result.step_time_s;
    };
    return static_cast<std::size_t>(std::find_if_not(search.results.begin(), search.results.end(), is_proven) -
                                    search.results.begin());
}

double proven_gap(const PlanSearch& search) {
    if (search.results.empty() || !search.results.front().feasible) return 0;
    return std::max(0.0, 1 - search.least_open_s / search.results.front().step_time_s);
}

program::SearchSummary summary_of(const PlanSearch& search) {
    return {.memory_limit_gib = to_gib(Bytes(search.memory_limit_bytes)),
            .counts = {.considered = search.considered,
                       .bounded = search.bounded,
                       .sketched = search.candidate_lowerings,
                       .simulated = search.simulated,
                       .too_large = search.too_large,
                       .left_out = search.left_out},
            .proven_gap = proven_gap(search),
            .proven_ranks = proven_results(search),
            .tolerance = kStepTolerance,
            .spaces = search.spaces};
}

void compare_with_first(std::vector<program::PlanResult>& results) {
    for (program::PlanResult& result : results) result.to_first = program::ratio_to_first(result, results.front());
}

}  // namespace orrery::sim
