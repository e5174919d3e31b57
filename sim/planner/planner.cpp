#include "sim/planner/planner.h"

#include <algorithm>
#include <array>
#include <iomanip>
#include <map>
#include <queue>
#include <set>
#include <sstream>
#include <utility>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/planner/candidates.h"
#include "sim/planner/lowered_bounds.h"
#include "sim/planner/timing.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::PlanResult;
using program::Recompute;

constexpr const char* kStatesDoNotFit = "parameters, gradients and optimizer states alone exceed device memory";

/// A candidate that may still be among the best.
struct Node {
    double least_step_s = 0;
    std::int64_t sequence = 0;           // total order
    Choice choice;                       // recompute_layers settled
    bool is_lowered = false;             // has lowered bounds; otherwise analytic ones
    std::int64_t peak_memory_bytes = 0;  // set if is_lowered
};
struct Later {
    bool operator()(const Node& a, const Node& b) const {
        return std::pair(a.least_step_s, a.sequence) > std::pair(b.least_step_s, b.sequence);
    }
};

std::string one_digit(double value) {
    std::ostringstream text;
    text << std::fixed << std::setprecision(1) << value;
    return text.str();
}

class Search {
  public:
    Search(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep, std::size_t prove)
        : request_(request),
          cluster_(cluster),
          keep_(keep),
          prove_(prove),
          cost_(request.cluster, request.rates),
          bounder_(request, cluster, cost_) {}

    PlanSearch run() {
        const CandidateList list = list_candidates(request_);
        search_.considered = list.considered;
        search_.left_out = list.left_out;
        Choice first = list.families.front().choice;
        first.micro_batch = list.families.front().micro_batches.front();
        limit_ =
            memory_per_rank_bytes(plan_of(request_, first), request_.memory_margin_gib);  // the same for every plan
        for (const Family& family : list.families) bound_family(family);
        while (!nodes_.empty()) {
            const Node node = nodes_.top();
            // A bound prunes only what is slower by more than the error of a step time.
            if (search_.results.size() == keep_ &&
                (1 - kStepTolerance) * node.least_step_s > search_.results[prove_ - 1].step_time_s) {
                search_.least_open_s = node.least_step_s;
                break;
            }
            nodes_.pop();
            if (node.is_lowered) {
                simulate(node);
            } else {
                lower_node(node);
            }
        }
        if (search_.results.empty()) refuse();
        for (PlanResult& result : search_.results) add_interval(cluster_, cost_, result);
        list_infeasible();
        search_.layer_lowerings = bounder_.layer_lowerings();
        return std::move(search_);
    }

  private:
    /// The candidate that needs the least memory among those on one mesh that do not fit.
    struct Closest {
        std::int64_t bytes = -1;
        Choice choice;
        bool by_states = false;
    };
    using MeshKey = std::array<std::int64_t, 5>;
    static MeshKey mesh_of(const Choice& choice) { return {choice.tp, choice.pp, choice.dp, choice.cp, choice.ep}; }

    [[nodiscard]] bool tries_without_recomputation() const {
        return std::find(request_.recompute.begin(), request_.recompute.end(), Recompute::none) !=
               request_.recompute.end();
    }

    /// Pushes the candidates of a family that may fit. Memory grows with the micro-batch: if one size cannot fit, no
    /// larger one can.
    void bound_family(const Family& family) {
        Choice choice = family.choice;
        for (std::size_t i = 0; i < family.micro_batches.size(); ++i) {
            choice.micro_batch = family.micro_batches[i];
            if (choice.recompute == Recompute::full) {
                choice.recompute_layers = bounder_.fewest_recomputed(choice, limit_);
            }
            const AnalyticBounds found = bounder_.bounds(choice);
            if (found.least_memory_bytes > limit_) {
                note(choice, found.least_memory_bytes, found.least_state_bytes > limit_);
                search_.too_large += static_cast<std::int64_t>(family.micro_batches.size() - i) - 1;
                return;
            }
            ++open_[mesh_of(choice)];
            push({.least_step_s = found.least_step_s, .choice = choice});
        }
    }

    void push(Node node) {
        node.sequence = sequence_++;
        nodes_.push(node);
    }

    void note(const Choice& choice, std::int64_t bytes, bool by_states) {
        ++search_.too_large;
        Closest& closest = closest_[mesh_of(choice)];
        if (closest.bytes >= 0 && closest.bytes <= bytes) return;
        closest.bytes = bytes;
        closest.choice = choice;
        closest.by_states = by_states;
    }

    /// Exact peak memory, context included.
    std::int64_t memory_of(const Choice& choice) {
        const auto [entry, fresh] = memory_.try_emplace(choice, 0);
        if (fresh) {
            ++search_.candidate_lowerings;
            entry->second = lowered_memory_bytes(plan_of(request_, choice));
        }
        return entry->second;
    }

    /// Whether the same plan fits without recomputation, so that recomputing would be wasted.
    bool fits_without(const Choice& choice) {
        if (choice.recompute == Recompute::none || !tries_without_recomputation()) return false;
        Choice without = choice;
        without.recompute = Recompute::none;
        without.recompute_layers = -1;
        return bounder_.bounds(without).least_memory_bytes <= limit_ && memory_of(without) <= limit_;
    }

    /// Raises recompute_layers to the smallest number with which the plan fits; false if no number does.
    bool settle_layers(Choice& choice) {
        if (memory_of(choice) <= limit_) return true;
        std::int64_t low = choice.recompute_layers + 1, high = bounder_.largest_chunk(choice);
        if (low > high) return false;
        Choice tried = choice;
        tried.recompute_layers = high;
        if (memory_of(tried) > limit_) {
            choice = tried;
            return false;
        }
        while (low < high) {
            tried.recompute_layers = (low + high) / 2;
            if (memory_of(tried) <= limit_) {
                high = tried.recompute_layers;
            } else {
                low = tried.recompute_layers + 1;
            }
        }
        choice.recompute_layers = low;
        return true;
    }

    void lower_node(const Node& node) {
        Choice choice = node.choice;
        const auto closes = [&] { --open_[mesh_of(choice)]; };
        if (fits_without(choice)) {
            fits_.insert(mesh_of(choice));
            return closes();
        }
        if (choice.recompute == Recompute::full && !settle_layers(choice)) {
            note(choice, memory_of(choice), false);
            return closes();
        }
        const Plan plan = plan_of(request_, choice);
        if (choice.recompute_layers != node.choice.recompute_layers) {
            const double least = bounder_.bounds(choice).least_step_s;
            if (least > node.least_step_s) return push({.least_step_s = least, .choice = choice});
        }
        ++search_.candidate_lowerings;
        const LoweredBounds found = lowered_bounds(plan, cluster_, cost_);
        memory_[choice] = found.peak_memory_bytes;
        closes();
        if (found.peak_memory_bytes > limit_) return note(choice, found.peak_memory_bytes, false);
        fits_.insert(mesh_of(choice));
        push({.least_step_s = std::max(node.least_step_s, found.least_step_s),
              .choice = choice,
              .is_lowered = true,
              .peak_memory_bytes = found.peak_memory_bytes});
    }

    void simulate(const Node& node) {
        const Plan plan = plan_of(request_, node.choice);
        ++search_.simulated;
        if (is_simulated_whole(plan)) ++search_.simulated_exactly;
        PlanResult result = timed(plan, cluster_, cost_);
        check_fit(node.peak_memory_bytes, limit_, result);
        const auto faster = [](const PlanResult& a, const PlanResult& b) { return a.step_time_s < b.step_time_s; };
        std::vector<PlanResult>& results = search_.results;
        results.insert(std::upper_bound(results.begin(), results.end(), result, faster), std::move(result));
        if (results.size() > keep_) results.pop_back();
    }

    [[noreturn]] void refuse() const {
        std::int64_t bytes = -1;
        for (const auto& [mesh, closest] : closest_) {
            if (closest.bytes >= 0 && (bytes < 0 || closest.bytes < bytes)) bytes = closest.bytes;
        }
        throw InfeasibleError(request_.model.name + ": none of " + std::to_string(search_.considered) +
                              " plans fits in the " + one_digit(to_gib(Bytes(limit_))) +
                              " GiB that a rank may use; the closest needs at least " +
                              one_digit(to_gib(Bytes(bytes))) + " GiB on its fullest rank");
    }

    void list_infeasible() {
        for (const auto& [mesh, closest] : closest_) {
            const auto open = open_.find(mesh);
            if (closest.bytes < 0 || fits_.count(mesh) > 0 || (open != open_.end() && open->second > 0)) continue;
            search_.results.push_back(
                {.plan = plan_of(request_, closest.choice),
                 .peak_memory_gib = to_gib(Bytes(closest.bytes)),
                 .reason = closest.by_states ? kStatesDoNotFit : "does not fit in device memory"});
        }
    }

    const PlanRequest& request_;
    const topologies::Cluster& cluster_;
    std::size_t keep_, prove_;
    RooflineCost cost_;
    AnalyticBounder bounder_;
    std::int64_t limit_ = 0;
    std::int64_t sequence_ = 0;
    std::priority_queue<Node, std::vector<Node>, Later> nodes_;
    std::map<Choice, std::int64_t> memory_;
    std::map<MeshKey, Closest> closest_;
    std::map<MeshKey, std::int64_t> open_;  // candidates not yet known to fit or not to fit
    std::set<MeshKey> fits_;
    PlanSearch search_;
};

}  // namespace

std::vector<std::string> default_implementations(const topologies::ClusterSpec& cluster) {
    const bool is_measured = !cluster.device.operator_samples.empty();  // no preset has them
    if (cluster.ranks_may_share_devices() || is_measured) return {"orrery"};
    return {"megatron-core", "torch-fsdp2"};
}

void merge(PlanSearch& into, PlanSearch from, std::size_t keep) {
    std::vector<PlanResult>& all = into.results;
    std::move(from.results.begin(), from.results.end(), std::back_inserter(all));
    const auto split =
        std::stable_partition(all.begin(), all.end(), [](const PlanResult& result) { return result.feasible; });
    std::stable_sort(all.begin(), split,
                     [](const PlanResult& a, const PlanResult& b) { return a.step_time_s < b.step_time_s; });
    const auto feasible = static_cast<std::size_t>(split - all.begin());
    if (feasible > keep) {
        all.erase(all.begin() + static_cast<std::ptrdiff_t>(keep), all.begin() + static_cast<std::ptrdiff_t>(feasible));
    }
    into.considered += from.considered;
    into.left_out += from.left_out;
    into.too_large += from.too_large;
    into.layer_lowerings += from.layer_lowerings;
    into.candidate_lowerings += from.candidate_lowerings;
    into.simulated += from.simulated;
    into.simulated_exactly += from.simulated_exactly;
    into.least_open_s = std::min(into.least_open_s, from.least_open_s);
}

std::size_t proven_results(const PlanSearch& search) {
    const auto is_proven = [&](const PlanResult& result) {
        return result.feasible && (1 - kStepTolerance) * search.least_open_s > result.step_time_s;
    };
    return static_cast<std::size_t>(std::find_if_not(search.results.begin(), search.results.end(), is_proven) -
                                    search.results.begin());
}

PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep,
                        std::size_t prove) {
    ORRERY_CHECK(prove > 0 && prove <= keep, "a search that proves no plan, or more than it keeps");
    return Search(request, cluster, keep, prove).run();
}

}  // namespace orrery::sim
