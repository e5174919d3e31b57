#include "sim/planner/objectives.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/planner/candidates.h"
#include "sim/planner/lowered_bounds.h"
#include "sim/planner/part_sets.h"

namespace orrery::sim {
namespace {

using program::PlanResult;

std::int64_t bytes_of(const PlanResult& result) {
    return static_cast<std::int64_t>(std::llround(result.peak_memory_gib * kGibibyte));
}

/// A candidate with the most recomputation of its kind, or the most offloaded activations, by a lower bound on its
/// memory.
struct Bounded {
    std::int64_t least_bytes = 0;
    std::int64_t sequence = 0;  // total order
    Choice choice;
    bool operator>(const Bounded& other) const {
        return std::tie(least_bytes, sequence) > std::tie(other.least_bytes, other.sequence);
    }
};
using Queue = std::priority_queue<Bounded, std::vector<Bounded>, std::greater<>>;

Queue bounded_candidates(const PlanRequest& request, const topologies::Cluster& cluster, const CandidateList& list) {
    const RooflineCost cost(request.cluster, request.rates);
    AnalyticBounder bounder(request, cluster, cost);
    const PartSet most_parts = part_sets(request, cluster, cost).back();
    std::vector<AnalyticBounds> bounds;
    Queue queue;
    std::int64_t sequence = 0;
    for (const Family& family : list.families) {
        Choice choice = family.choice;
        const std::vector<Sharding>& shardings = list.shardings_of(family);
        const auto push_each = [&] {
            bounder.bounds_of_each(choice, shardings, bounds);
            for (std::size_t i = 0; i < shardings.size(); ++i) {
                if (choice.offload_layers == 0 && list.must_offload_activations(shardings[i])) continue;
                choice.sharding = shardings[i];
                queue.push({bounds[i].least_memory_bytes, sequence++, choice});
            }
        };
        for (const std::int64_t micro_batch : family.micro_batches) {
            choice.micro_batch = micro_batch;
            for (const program::Recompute recompute : list.recompute) {
                choice.recompute = recompute;
                choice.recompute_parts = recompute == program::Recompute::selective ? most_parts : PartSet{0};
                push_each();
            }
            if (!list.may_offload_activations(choice)) continue;
            choice = family.choice;
            choice.micro_batch = micro_batch;
            choice.offload_layers = -1;
            push_each();
            choice.offload_layers = 0;
        }
    }
    return queue;
}

std::string seconds_text(double seconds) {
    std::string text = std::to_string(seconds);
    text.erase(text.find_last_not_of('0') + 1);
    return (text.back() == '.' ? text + "0" : text) + " s";
}

/// Runs the search without a memory limit, and refuses a limit on the step that its fastest plan exceeds.
ObjectiveSearch start(const LimitedSearch& search, const StepLimit& limit, program::Objective objective) {
    PlanSearch found = search(0, 1);
    ObjectiveSearch all{.results = std::move(found.results)};
    const double fastest_s = all.results.front().step_time_s;
    found.results = {all.results.front()};
    all.summary = summary_of(found);
    all.summary.objective = objective;
    all.summary.step_limit_s = limit.seconds_for(fastest_s);
    check_step_limit(fastest_s, all.summary.step_limit_s);
    return all;
}

bool is_feasible(const PlanResult& result) {
    return result.feasible;
}

/// Puts these before the plans of the first search that are not feasible.
void replace_feasible(std::vector<PlanResult>& results, std::vector<PlanResult> by) {
    std::erase_if(results, is_feasible);
    results.insert(results.begin(), std::make_move_iterator(by.begin()), std::make_move_iterator(by.end()));
}

}  // namespace

void check_step_limit(double fastest_s, double limit_s) {
    if (fastest_s <= limit_s) return;
    throw TooSlowError("no plan has a step of at most " + seconds_text(limit_s) + "; the fastest one takes " +
                       seconds_text(fastest_s));
}

void add_counts(program::SearchCounts& into, const PlanSearch& from) {
    const program::SearchCounts more = summary_of(from).counts;
    into.bounded += more.bounded;
    into.sketched += more.sketched;
    into.simulated += more.simulated;
    into.too_large += more.too_large;
    ++into.searches;
}

LeastMemory least_memory_of(const PlanRequest& request, const topologies::Cluster& cluster) {
    const CandidateList list = list_candidates(request);
    Queue queue = bounded_candidates(request, cluster, list);
    LeastMemory least;
    for (; !queue.empty() && queue.top().least_bytes < least.bytes; queue.pop()) {
        least.merge({lowered_memory_bytes(plan_of(request, queue.top().choice)), 1});
    }
    return least;
}

ObjectiveSearch least_memory(const LimitedSearch& search, const LeastMemory& least, std::size_t keep,
                             const StepLimit& limit) {
    ObjectiveSearch all = start(search, limit, program::Objective::memory);
    program::SearchSummary& summary = all.summary;
    summary.counts.sketched += least.lowerings;
    // Some plan within `enough` bytes is fast enough; none below `open` bytes is.
    std::int64_t enough = bytes_of(all.results.front()), open = std::min(least.bytes, enough);
    const auto try_limit = [&](std::int64_t bytes) {
        const PlanSearch found = search(bytes, 1);
        add_counts(summary.counts, found);
        const PlanResult& fastest = found.results.front();
        if (fastest.step_time_s > summary.step_limit_s) return false;
        enough = bytes_of(fastest);
        return true;
    };
    // Without a limit on the step, any plan is fast enough.
    if (!limit.is_set()) enough = open;
    if (open < enough && !try_limit(open)) {
        ++open;
        while (static_cast<double>(enough - open) > kMemoryTolerance * static_cast<double>(enough)) {
            const std::int64_t middle = open + (enough - open) / 2;
            if (!try_limit(middle)) open = middle + 1;
        }
    }
    PlanSearch found = search(enough, keep);
    add_counts(summary.counts, found);
    std::erase_if(found.results, [&](const PlanResult& result) {
        return !result.feasible || result.step_time_s > summary.step_limit_s;
    });
    std::stable_sort(found.results.begin(), found.results.end(), [](const PlanResult& a, const PlanResult& b) {
        return std::pair(a.peak_memory_gib, a.step_time_s) < std::pair(b.peak_memory_gib, b.step_time_s);
    });
    const auto needed = static_cast<double>(bytes_of(found.results.front()));
    summary.proven_gap = std::max(0.0, 1 - static_cast<double>(open) / needed);
    summary.proven_ranks = 1;
    replace_feasible(all.results, std::move(found.results));
    return all;
}

ObjectiveSearch pareto_front(const LimitedSearch& search, const LeastMemory& least, std::size_t most,
                             const StepLimit& limit) {
    ORRERY_CHECK(most > 1, "a front of fewer than two points");
    ObjectiveSearch all = start(search, limit, program::Objective::pareto);
    all.summary.counts.sketched += least.lowerings;
    std::vector<PlanResult> front = {all.results.front()};
    front.front().fastest_within = {front.front().peak_memory_gib, all.summary.memory_limit_gib};
    std::int64_t lowest = least.bytes;  // no plan below is allowed
    for (auto left = static_cast<std::int64_t>(most) - 1; left > 0; --left) {
        // Above it, the last plan fits and is the fastest that does.
        const std::int64_t highest = bytes_of(front.back()) - 1;
        if (highest < lowest) break;
        const std::int64_t limit_bytes = std::min(highest, lowest + (highest - lowest) / left * (left - 1));
        PlanSearch found = search(limit_bytes, 1);
        add_counts(all.summary.counts, found);
        PlanResult& next = found.results.front();
        if (next.step_time_s > all.summary.step_limit_s) {
            lowest = limit_bytes + 1;
            continue;
        }
        all.summary.proven_gap = std::max(all.summary.proven_gap, proven_gap(found));
        next.fastest_within = {next.peak_memory_gib, to_gib(Bytes(limit_bytes))};
        while (!front.empty() && next.step_time_s <= front.back().step_time_s) {
            // As fast as the last one to the error of a step time, and smaller.
            next.fastest_within->high_gib = front.back().fastest_within->high_gib;
            front.pop_back();
        }
        front.push_back(std::move(next));
    }
    all.summary.proven_ranks = front.size();
    replace_feasible(all.results, std::move(front));
    return all;
}

}  // namespace orrery::sim
