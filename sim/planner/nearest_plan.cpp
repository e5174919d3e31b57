#include "sim/planner/nearest_plan.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <utility>

#include "core/error.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/planner/candidates.h"
#include "sim/planner/lowered_bounds.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::Remedy;

/// Candidates that are lowered before the whole search decides whether a plan fits.
constexpr std::size_t kMostLowered = 12;

bool has_mesh_of(const Plan& a, const Plan& b) {
    const program::Parallelism &p = a.parallelism, &q = b.parallelism;
    return p.dp == q.dp && p.tp == q.tp && p.pp == q.pp && p.cp == q.cp && p.ep == q.ep;
}

/// The candidates of a request that need the least memory by the analytic bound, least first, at most kMostLowered.
std::vector<Choice> leanest(const PlanRequest& request) {
    const topologies::Cluster cluster(request.cluster);
    const RooflineCost cost(request.cluster, request.rates);
    AnalyticBounder bounder(request, cluster, cost);
    const CandidateList list = list_candidates(request);
    std::vector<std::pair<std::int64_t, Choice>> found;
    std::vector<AnalyticBounds> bounds;
    for (const Family& family : list.families) {
        Choice choice = family.choice;
        choice.micro_batch = family.micro_batches.front();
        const std::vector<Sharding>& shardings = list.shardings_of(family);
        choice.recompute = list.recompute.back();
        choice.recompute_parts = 0;
        // Where full recomputation is allowed it keeps least.
        const bool offloads = list.may_offload_activations(choice) && choice.recompute == program::Recompute::none;
        if (offloads) choice.offload_layers = -1;
        bounder.bounds_of_each(choice, shardings, bounds);
        for (std::size_t i = 0; i < shardings.size(); ++i) {
            if (!offloads && list.must_offload_activations(shardings[i])) continue;
            choice.sharding = shardings[i];
            found.emplace_back(bounds[i].least_memory_bytes, choice);
        }
    }
    std::stable_sort(found.begin(), found.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
    std::vector<Choice> result;
    for (std::size_t i = 0; i < std::min(found.size(), kMostLowered); ++i) result.push_back(found[i].second);
    return result;
}

/// Whether a plan fits on a cluster of this size. Nothing: no plan divides, or the cluster cannot have this size.
class Sizes {
  public:
    explicit Sizes(const RequestsFor& requests) : requests_(requests) {}

    [[nodiscard]] std::optional<bool> fits(std::int64_t devices) const {
        try {
            const std::vector<PlanRequest> requests = requests_(devices);
            for (const PlanRequest& request : requests) {
                if (fits_quickly(request)) return true;
            }
            (void)search_each(requests, 1, 1);
            return true;
        } catch (const InfeasibleError&) {
            return false;
        } catch (const InputError&) {
            return {};
        }
    }

  private:
    /// Whether one of the leanest candidates fits. If none does, the whole search has to decide; it is quick where
    /// nothing fits.
    static bool fits_quickly(const PlanRequest& request) {
        try {
            const std::vector<Choice> choices = leanest(request);
            return std::any_of(choices.begin(), choices.end(), [&](const Choice& choice) {
                const Plan plan = plan_of(request, choice);
                return lowered_memory_bytes(plan) <= allowed_bytes(request, plan);
            });
        } catch (const InputError&) {
            return false;  // of this implementation; another one may have a plan
        }
    }

    const RequestsFor& requests_;
};

/// Sizes between two sizes, exclusive: single devices within a node, then whole nodes.
std::vector<std::int64_t> sizes_between(std::int64_t low, std::int64_t high, std::int64_t per_node) {
    std::vector<std::int64_t> sizes;
    for (std::int64_t size = low + 1; size < std::min(high, per_node); ++size) sizes.push_back(size);
    for (std::int64_t nodes = std::max<std::int64_t>(1, low / per_node); nodes * per_node < high; ++nodes) {
        if (nodes * per_node > low) sizes.push_back(nodes * per_node);
    }
    return sizes;
}

}  // namespace

std::int64_t allowed_bytes(const PlanRequest& request, const Plan& plan) {
    const std::int64_t allowed = memory_per_rank_bytes(plan, request.memory_margin_gib);
    return request.max_memory_bytes > 0 ? std::min(allowed, request.max_memory_bytes) : allowed;
}

program::MemoryNeed memory_need(const Plan& plan, std::int64_t allowed_bytes) {
    program::MemoryNeed need = lowered_memory_need(plan);
    need.allowed_bytes = allowed_bytes;
    return need;
}

LeanPlan leanest_plan(const std::vector<PlanRequest>& requests) {
    std::optional<LeanPlan> found;
    std::exception_ptr wrong;
    for (const PlanRequest& request : requests) {
        try {
            for (const Choice& choice : leanest(request)) {
                Plan plan = plan_of(request, choice);
                const program::MemoryNeed need = memory_need(plan, allowed_bytes(request, plan));
                if (found && found->memory.needed_bytes <= need.needed_bytes) continue;
                found = LeanPlan{std::move(plan), need};
            }
        } catch (const InputError&) {
            if (!wrong) wrong = std::current_exception();
        }
    }
    if (found) return std::move(*found);
    ORRERY_CHECK(wrong != nullptr, "the leanest plan of no request");
    std::rethrow_exception(wrong);
}

std::optional<Remedy> smallest_fix(const Plan& plan, const topologies::Cluster& cluster,
                                   std::optional<double> margin_gib) {
    constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
    std::vector<Remedy> found = remedies(plan, cluster, kAll, margin_gib);
    if (found.empty()) return {};
    const auto best =
        std::find_if(found.begin(), found.end(), [&](const Remedy& remedy) { return has_mesh_of(remedy.plan, plan); });
    return std::move(best == found.end() ? found.front() : *best);
}

PlanSearch search_each(const std::vector<PlanRequest>& requests, std::size_t keep, std::size_t prove) {
    PlanSearch all;
    std::optional<InfeasibleError> nothing;
    std::exception_ptr wrong;
    bool found = false;
    for (const PlanRequest& request : requests) {
        try {
            merge(all, search_plans(request, topologies::Cluster(request.cluster), keep, prove), keep);
            found = true;
        } catch (const InfeasibleError& error) {
            if (!nothing) nothing = error;
        } catch (const InputError&) {
            if (!wrong) wrong = std::current_exception();
        }
    }
    if (found) return all;
    if (nothing) throw InfeasibleError(*nothing);
    ORRERY_CHECK(wrong != nullptr, "a search without requests");
    std::rethrow_exception(wrong);
}

std::optional<program::SmallestCluster> smallest_cluster(const RequestsFor& requests, std::int64_t devices,
                                                         std::int64_t& most_tried) {
    const std::vector<PlanRequest> here = requests(devices);
    const topologies::ClusterSpec& cluster = here.front().cluster;
    most_tried = 0;
    if (cluster.ranks_may_share_devices()) return {};
    const Sizes sizes(requests);
    std::int64_t low = devices, high = 0;
    const std::int64_t per_node = cluster.devices_per_node;
    for (std::int64_t size = 2 * devices; high == 0 && size <= kMostDevicesTried; size *= 2) {
        // Beyond a node only whole nodes.
        const std::int64_t rounded = size <= per_node ? size : (size + per_node - 1) / per_node * per_node;
        const std::optional<bool> fits = sizes.fits(rounded);
        if (!fits) continue;
        most_tried = rounded;
        (*fits ? high : low) = rounded;
    }
    if (high == 0) return {};
    std::vector<std::int64_t> between = sizes_between(low, high, per_node);
    while (!between.empty()) {
        const std::size_t middle = between.size() / 2;
        const std::int64_t size = between[middle];
        const std::optional<bool> fits = sizes.fits(size);
        if (!fits) {
            between.erase(between.begin() + static_cast<std::ptrdiff_t>(middle));
        } else if (*fits) {
            high = size;
            between.resize(middle);
        } else {
            low = size;
            between.erase(between.begin(), between.begin() + static_cast<std::ptrdiff_t>(middle) + 1);
        }
    }
    PlanSearch search = search_each(requests(high), 1, 1);
    return program::SmallestCluster{
        .devices = high, .best = std::move(search.results.front()), .largest_without_fit = low};
}

program::NearestPlan nearest_plan(const RequestsFor& requests, std::int64_t devices) {
    const std::vector<PlanRequest> here = requests(devices);
    LeanPlan lean = leanest_plan(here);
    program::NearestPlan nearest{.plan = std::move(lean.plan), .memory = std::move(lean.memory)};
    const topologies::Cluster cluster(nearest.plan.cluster);
    nearest.fix = smallest_fix(nearest.plan, cluster, here.front().memory_margin_gib);
    nearest.cluster = smallest_cluster(requests, devices, nearest.most_devices_tried);
    return nearest;
}

}  // namespace orrery::sim
