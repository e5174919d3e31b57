#include "sim/planner/at_most.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <limits>
#include <queue>
#include <tuple>
#include <utility>
#include <vector>

#include "core/error.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/planner/candidates.h"
#include "sim/planner/tried_degrees.h"
#include "topologies/fabric.h"

namespace orrery::sim {
namespace {

using program::PlanResult;

bool are_whole_nodes(const topologies::ClusterSpec& cluster, std::int64_t devices) {
    return cluster.ranks_may_share_devices() || devices <= cluster.devices_per_node ||
           devices % cluster.devices_per_node == 0;
}

/// Whether the devices are whole nodes, and the degrees of some plan multiply to them.
bool may_divide(const PlanRequest& request, std::int64_t devices) {
    return are_whole_nodes(request.cluster, devices) && TriedDegrees(request).has_mesh(devices);
}

/// What bounds the plans on all numbers of devices: how long layers take, however many devices there are.
class Bounds {
  public:
    /// Keeps a reference to the request on the largest number of devices.
    explicit Bounds(const PlanRequest& request)
        : request_(request),
          cluster_(request.cluster),
          cost_(request.cluster, request.rates),
          bounder_(request, cluster_, cost_) {
        // torch DataParallel has no bounds.
        const auto& kinds = request.data_parallel;
        if (std::count(kinds.begin(), kinds.end(), program::DataParallel::dp) > 0) return;
        double least = std::numeric_limits<double>::infinity();
        for (const Choice& cut : TriedDegrees(request).layer_cuts()) {
            least = std::min(least, bounder_.least_computation_s(cut) * static_cast<double>(cut.dp * cut.tp * cut.cp));
        }
        device_seconds_ = least;
    }

    /// The ranks of a pipeline together take at least as long as all layers do, so the slowest one takes its share.
    [[nodiscard]] double step_s(std::int64_t devices) const { return device_seconds_ / static_cast<double>(devices); }

    /// The least bound of a pipeline with some micro-batch size.
    [[nodiscard]] double step_s(const CandidateList& list) {
        if (device_seconds_ == 0) return 0;
        double least = std::numeric_limits<double>::infinity();
        for (const Family& family : list.families) {
            Choice choice = family.choice;
            for (const std::int64_t size : family.micro_batches) {
                choice.micro_batch = size;
                least = std::min(least, bounder_.least_computation_s(choice));
            }
        }
        return least;
    }

  private:
    const PlanRequest& request_;
    topologies::Cluster cluster_;
    RooflineCost cost_;
    AnalyticBounder bounder_;
    double device_seconds_ = 0;  // of a step's computation
};

class SearchOfDevices {
  public:
    SearchOfDevices(const PlanRequest& request, std::size_t keep, std::size_t prove, std::span<const double> rivals)
        : request_(request), keep_(keep), prove_(prove), rivals_(rivals.begin(), rivals.end()) {}

    PlanSearch run() {
        std::optional<std::int64_t> next = usable_at_most(request_, request_.devices);
        if (!next.has_value()) {
            // The message names what does not divide.
            (void)list_candidates(request_);
            throw InputError(request_.model.name + ": no plan has at most " + std::to_string(request_.devices) +
                             " devices");
        }
        const PlanRequest largest = *on_devices(request_, *next);
        Bounds bounds(largest);
        for (;;) {
            // Looks at numbers in descending order, while they may have the least bound.
            while (next.has_value() && (open_.empty() || bounds.step_s(*next) <= open_.top().first)) {
                const double ideal = bounds.step_s(*next);
                if (is_beaten(ideal)) break;
                const double least = std::max(ideal, bounds.step_s(list_candidates(*on_devices(request_, *next))));
                open_.push({least, *next});
                next = *next > 1 ? usable_at_most(request_, *next - 1) : std::nullopt;
            }
            double least = next.has_value() ? bounds.step_s(*next) : std::numeric_limits<double>::infinity();
            if (!open_.empty()) least = std::min(least, open_.top().first);
            if (open_.empty() || is_beaten(least)) {
                found_.least_open_s = std::min(found_.least_open_s, (1 - kStepTolerance) * least);
                break;
            }
            const std::int64_t devices = open_.top().second;
            open_.pop();
            search(devices);
        }
        if (found_.results.empty() && problem_) std::rethrow_exception(problem_);
        return std::move(found_);
    }

  private:
    void search(std::int64_t devices) {
        found_.device_counts.insert(devices);
        const PlanRequest request = *on_devices(request_, devices);
        try {
            PlanSearch search = search_plans(request, topologies::Cluster(request.cluster), keep_, prove_, all_times());
            for (PlanResult& result : search.results) result.spare_devices = request_.devices - devices;
            merge(found_, std::move(search), keep_);
        } catch (const InputError&) {
            if (!problem_) problem_ = std::current_exception();
        } catch (const InfeasibleError&) {
            if (!problem_) problem_ = std::current_exception();
        }
    }

    /// Of the plans found and of the rivals, ascending.
    [[nodiscard]] std::vector<double> all_times() const {
        const std::vector<double> found = step_times(found_);
        std::vector<double> times;
        std::merge(found.begin(), found.end(), rivals_.begin(), rivals_.end(), std::back_inserter(times));
        return times;
    }

    [[nodiscard]] bool is_beaten(double bound_s) const {
        const std::vector<double> times = all_times();
        return times.size() >= keep_ && (1 - kStepTolerance) * bound_s > times[prove_ - 1];
    }

    struct Later {
        bool operator()(const std::pair<double, std::int64_t>& a, const std::pair<double, std::int64_t>& b) const {
            return std::pair(a.first, -a.second) > std::pair(b.first, -b.second);
        }
    };

    const PlanRequest& request_;
    std::size_t keep_, prove_;
    const std::vector<double> rivals_;
    /// Numbers of devices that were looked at, by the least bound of their pipelines; of equals, the largest first.
    std::priority_queue<std::pair<double, std::int64_t>, std::vector<std::pair<double, std::int64_t>>, Later> open_;
    std::exception_ptr problem_;  // of the first number that was searched in vain
    PlanSearch found_;
};

}  // namespace

std::optional<PlanRequest> on_devices(const PlanRequest& request, std::int64_t devices) {
    if (!may_divide(request, devices)) return std::nullopt;
    PlanRequest sized = request;
    sized.devices = devices;
    try {
        sized.cluster = topologies::sized_for(std::move(sized.cluster), devices);
        (void)topologies::Fabric(sized.cluster);
        (void)list_candidates(sized);
    } catch (const InputError&) {
        return std::nullopt;
    }
    return sized;
}

std::optional<std::int64_t> usable_at_most(const PlanRequest& request, std::int64_t most, std::int64_t tries) {
    for (std::int64_t devices = most; devices > 0 && tries > 0; --devices) {
        if (!may_divide(request, devices)) continue;
        if (on_devices(request, devices).has_value()) return devices;
        --tries;
    }
    return std::nullopt;
}

std::optional<std::int64_t> usable_at_least(const PlanRequest& request, std::int64_t least, std::int64_t tries) {
    for (std::int64_t devices = least; devices <= 2 * least && tries > 0; ++devices) {
        if (!may_divide(request, devices)) continue;
        if (on_devices(request, devices).has_value()) return devices;
        --tries;
    }
    return std::nullopt;
}

PlanSearch search_at_most(const PlanRequest& request, std::size_t keep, std::size_t prove,
                          std::span<const double> rivals) {
    return SearchOfDevices(request, keep, prove, rivals).run();
}

}  // namespace orrery::sim
