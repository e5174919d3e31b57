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
#include "sim/planner/merge_by.h"
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
    /// Of a step's computation, on however many devices.
    [[nodiscard]] double device_seconds() const { return device_seconds_; }

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
    double device_seconds_ = 0;
};

/// Values are products of a step time and the weight of its number of devices.
class SearchOfDevices {
  public:
    SearchOfDevices(const PlanRequest& request, const StepWeight& weight, std::size_t keep, std::size_t prove,
                    std::span<const double> rivals)
        : request_(request), weight_(weight), keep_(keep), prove_(prove), rivals_(rivals.begin(), rivals.end()) {
        for (std::int64_t devices = 1; devices <= request.devices; ++devices) {
            const double of_device = weight(devices) / static_cast<double>(devices);
            least_weights_.push_back(devices == 1 ? of_device : std::min(least_weights_.back(), of_device));
        }
    }

    PlanSearch run() {
        next_ = usable_at_most(request_, request_.devices);
        if (!next_.has_value()) {
            // The message names what does not divide.
            (void)list_candidates(request_);
            throw InputError(request_.model.name + ": no plan has at most " + std::to_string(request_.devices) +
                             " devices");
        }
        const PlanRequest largest = *on_devices(request_, *next_);
        Bounds bounds(largest);
        for (;;) {
            look(bounds);
            double least = next_.has_value() ? least_ahead(bounds) : std::numeric_limits<double>::infinity();
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
    /// Of all plans on the next number and on those below it: each takes at least its share of the device time.
    [[nodiscard]] double least_ahead(const Bounds& bounds) const {
        return bounds.device_seconds() * least_weights_[static_cast<std::size_t>(*next_) - 1];
    }

    /// Looks at numbers in descending order, while they may have the least bound.
    void look(Bounds& bounds) {
        while (next_.has_value() && (open_.empty() || least_ahead(bounds) <= open_.top().first)) {
            if (is_beaten(least_ahead(bounds))) return;
            if (is_too_slow(bounds.step_s(*next_))) {  // as are all smaller numbers
                next_.reset();
                return;
            }
            const std::int64_t devices = *next_;
            const double step_s =
                std::max(bounds.step_s(devices), bounds.step_s(list_candidates(*on_devices(request_, devices))));
            if (!is_too_slow(step_s)) open_.push({weight_(devices) * step_s, devices});
            next_ = devices > 1 ? usable_at_most(request_, devices - 1) : std::nullopt;
        }
    }

    void search(std::int64_t devices) {
        found_.device_counts.insert(devices);
        const PlanRequest request = *on_devices(request_, devices);
        const double weight = weight_(devices);
        std::vector<double> rival_steps = all_values();
        for (double& value : rival_steps) value /= weight;
        try {
            PlanSearch search = search_plans(request, topologies::Cluster(request.cluster), keep_, prove_, rival_steps);
            for (PlanResult& result : search.results) result.spare_devices = request_.devices - devices;
            std::erase_if(search.results, [&](const PlanResult& result) {
                return result.feasible && result.step_time_s > request.most_step_s;
            });
            // If all that is open is too slow, nothing is.
            const bool is_open = search.least_open_s <= request.most_step_s;
            search.least_open_s = is_open ? weight * search.least_open_s : std::numeric_limits<double>::infinity();
            merge_weighed(found_, std::move(search), weight_, keep_);
        } catch (const InputError&) {
            if (!problem_) problem_ = std::current_exception();
        } catch (const InfeasibleError&) {
            if (!problem_) problem_ = std::current_exception();
        }
    }

    /// Of the plans found and of the rivals, ascending.
    [[nodiscard]] std::vector<double> all_values() const {
        const std::vector<double> found = weighed_steps(found_, weight_);
        std::vector<double> values;
        std::merge(found.begin(), found.end(), rivals_.begin(), rivals_.end(), std::back_inserter(values));
        return values;
    }

    [[nodiscard]] bool is_beaten(double bound) const {
        const std::vector<double> values = all_values();
        return values.size() >= keep_ && (1 - kStepTolerance) * bound > values[prove_ - 1];
    }

    [[nodiscard]] bool is_too_slow(double bound_s) const {
        return (1 - kStepTolerance) * bound_s > request_.most_step_s;
    }

    struct Later {
        bool operator()(const std::pair<double, std::int64_t>& a, const std::pair<double, std::int64_t>& b) const {
            return std::pair(a.first, -a.second) > std::pair(b.first, -b.second);
        }
    };

    const PlanRequest& request_;
    const StepWeight& weight_;
    std::size_t keep_, prove_;
    const std::vector<double> rivals_;
    std::vector<double> least_weights_;  // of a device, on this number (less 1) or any smaller one
    std::optional<std::int64_t> next_;   // the largest number that was not looked at
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
    return search_weighed(
        request, [](std::int64_t) { return 1.0; }, keep, prove, rivals);
}

double weighed_step(const PlanResult& result, const StepWeight& weight) {
    return weight(result.plan.parallelism.world_size()) * result.step_time_s;
}

PlanSearch search_weighed(const PlanRequest& request, const StepWeight& weight, std::size_t keep, std::size_t prove,
                          std::span<const double> rivals) {
    return SearchOfDevices(request, weight, keep, prove, rivals).run();
}

void merge_weighed(PlanSearch& into, PlanSearch from, const StepWeight& weight, std::size_t keep) {
    merge_by(into, std::move(from), keep, [&](const PlanResult& result) { return weighed_step(result, weight); });
}

std::vector<double> weighed_steps(const PlanSearch& search, const StepWeight& weight) {
    std::vector<double> values;
    for (const PlanResult& result : search.results) {
        if (result.feasible) values.push_back(weighed_step(result, weight));
    }
    return values;
}

}  // namespace orrery::sim
