#include "cli/plan_at_most.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include "cli/plan_search.h"
#include "core/error.h"
#include "reports/table.h"
#include "sim/planner/at_most.h"

namespace orrery::cli {

void refuse_count(const std::vector<sim::PlanRequest>& requests, std::int64_t devices,
                  const std::exception_ptr& problem) {
    constexpr std::int64_t kNearest = 64;  // numbers that are tried for the message
    std::optional<std::int64_t> below, above;
    for (const sim::PlanRequest& request : requests) {
        if (sim::on_devices(request, devices)) std::rethrow_exception(problem);
        below = std::max(below, sim::usable_at_most(request, devices, kNearest));
        const std::optional<std::int64_t> more = sim::usable_at_least(request, devices, kNearest);
        if (more && (!above || *more < *above)) above = more;
    }
    if (!below && !above) std::rethrow_exception(problem);
    std::vector<std::string> counts;
    for (const auto& count : {below, above}) {
        if (count) counts.push_back(reports::format_integer(*count));
    }
    const std::string hint = fmt::format(
        "; the nearest numbers of devices with a plan: {}; --gpus-at-most {} finds the best plan on at most as many, "
        "and "
        "leaves the others idle",
        fmt::join(counts, " and "), devices);
    try {
        std::rethrow_exception(problem);
    } catch (const InputError& error) {
        throw InputError(error.what() + hint);
    }
}

sim::CheapestPlans search_any_number(const PlanGoal& goal, const std::vector<sim::PlanRequest>& requests,
                                     std::size_t top, std::size_t prove, std::vector<std::string>& notes) {
    if (goal.is_by_cost()) {
        const topologies::ClusterSpec& cluster = requests.front().cluster;
        const auto search = [&](const sim::StepWeight& weight, double most_step_s, std::size_t keep) {
            sim::PlanSearch all;
            notes.clear();  // each search has the same
            const auto search_one = [&](const sim::PlanRequest& request) {
                sim::PlanRequest limited = request;
                limited.most_step_s = most_step_s;
                sim::merge_weighed(
                    all,
                    sim::search_weighed(limited, weight, keep, std::min(keep, prove), sim::weighed_steps(all, weight)),
                    weight, keep);
            };
            for_each_stack(requests, search_one, notes);
            return all;
        };
        return sim::least_cost_at_most(search, cluster, top, cost_goal_of(goal, cluster));
    }
    const auto search_any = [&](const sim::PlanRequest& request, std::span<const double> rivals) {
        return sim::search_at_most(request, top, prove, rivals);
    };
    sim::PlanSearch search = search_each(requests, top, search_any, notes);
    sim::compare_with_first(search.results);
    sim::CheapestPlans plans{.found = {.summary = sim::summary_of(search)},
                             .device_counts = std::move(search.device_counts)};
    plans.found.results = std::move(search.results);
    return plans;
}

std::string spares_text(const sim::CheapestPlans& plans, std::int64_t devices) {
    const program::PlanResult& best = plans.found.results.front();
    const std::int64_t spares = best.spare_devices, used = best.plan.parallelism.world_size();
    std::vector<std::string> counts;
    for (const std::int64_t count : plans.device_counts) counts.push_back(reports::format_integer(count));
    const bool is_rented = best.usd_per_billion_tokens || best.kwh_per_billion_tokens;
    return fmt::format("rank 1: {} devices{} = {} used + {} spare; searched: {}\n",
                       reports::format_integer(used + spares),
                       is_rented ? fmt::format(" of at most {}", reports::format_integer(devices)) : "",
                       reports::format_integer(used), reports::format_integer(spares), fmt::join(counts, ", "));
}

}  // namespace orrery::cli
