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
#include "sim/planner/part_sets.h"
#include "sim/planner/timing.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::PlanResult;
using program::Recompute;

constexpr const char* kStatesDoNotFit = "parameters, gradients and optimizer states alone exceed device memory";

/// A candidate that may be faster than one with the same pipeline by at most this share is not looked at when only the
/// best plan is to be proven.
constexpr double kDominance = kStepTolerance / 2;

/// How well a node's bound is known, in the order in which bounds are refined.
enum class Rung : std::uint8_t {
    block,    // all shardings of a micro-batch size and a kind of recomputation of a family; bound of its computation
    flat,     // a candidate; analytic bounds
    path,     // analytic bounds and the critical path
    lowered,  // a candidate that fits; bounds of a short lowering
};

/// Candidates that may still be among the best.
struct Node {
    double least_step_s = 0;
    std::int64_t sequence = 0;                               // total order
    std::int32_t family = 0, micro_batch = 0, sharding = 0;  // indices
    std::int16_t part_set = 0;                               // selective recomputation: index
    std::int16_t layers = -1;                                // full recomputation; -1: not decided yet
    Recompute recompute = Recompute::none;
    Rung rung = Rung::block;
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
          bounder_(request, cluster, cost_),
          list_(list_candidates(request)),
          part_sets_(part_sets(request, cluster, cost_)) {}

    PlanSearch run() {
        search_.considered = list_.considered;
        search_.left_out = list_.left_out;
        list_blocks();
        limit_ = memory_per_rank_bytes(plan_of(request_, choice_of({.rung = Rung::flat})),
                                       request_.memory_margin_gib);  // the same for every plan
        while (!nodes_.empty()) {
            const Node node = nodes_.top();
            // A bound prunes only what is slower by more than the error of a step time.
            if (search_.results.size() == keep_ &&
                (1 - kStepTolerance) * node.least_step_s > search_.results[prove_ - 1].step_time_s) {
                search_.least_open_s = node.least_step_s;
                break;
            }
            nodes_.pop();
            switch (node.rung) {
                case Rung::block:
                    expand(node);
                    break;
                case Rung::flat:
                    find_path(node);
                    break;
                case Rung::path:
                    lower_node(node);
                    break;
                case Rung::lowered:
                    simulate(node);
                    break;
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
        return std::find(list_.recompute.begin(), list_.recompute.end(), Recompute::none) != list_.recompute.end();
    }

    [[nodiscard]] const std::vector<Sharding>& shardings_of(const Node& node) const {
        return list_.shardings_of(list_.families[static_cast<std::size_t>(node.family)]);
    }

    [[nodiscard]] Choice choice_of(const Node& node) const {
        const Family& family = list_.families[static_cast<std::size_t>(node.family)];
        Choice choice = family.choice;
        choice.micro_batch = family.micro_batches[static_cast<std::size_t>(node.micro_batch)];
        choice.recompute = node.recompute;
        if (node.rung == Rung::block) return choice;
        choice.sharding = shardings_of(node)[static_cast<std::size_t>(node.sharding)];
        if (node.recompute == Recompute::selective) {
            choice.recompute_parts = part_sets_[static_cast<std::size_t>(node.part_set)];
        }
        choice.recompute_layers = node.layers;
        return choice;
    }

    void list_blocks() {
        for (std::size_t f = 0; f < list_.families.size(); ++f) {
            const Family& family = list_.families[f];
            Choice choice = family.choice;
            open_[mesh_of(choice)] += std::ssize(family.micro_batches) * std::ssize(list_.recompute);
            for (std::size_t i = 0; i < family.micro_batches.size(); ++i) {
                choice.micro_batch = family.micro_batches[i];
                // The bounds of torch DataParallel are zero.
                const bool is_dp = list_.shardings_of(family).front().data_parallel == program::DataParallel::dp;
                const double least = is_dp ? 0 : bounder_.least_computation_s(choice);
                for (const Recompute recompute : list_.recompute) {
                    push({.least_step_s = least,
                          .family = static_cast<std::int32_t>(f),
                          .micro_batch = static_cast<std::int32_t>(i),
                          .recompute = recompute});
                }
            }
        }
    }

    /// Pushes the candidates of a block that may fit, each with the cheapest recomputation of the block's kind with
    /// which it may.
    void expand(const Node& block) {
        Choice choice = choice_of(block);
        const std::vector<Sharding>& shardings = shardings_of(block);
        search_.bounded += std::ssize(shardings);
        remaining_.clear();
        for (std::size_t i = 0; i < shardings.size(); ++i) remaining_.push_back(i);
        Node node = block;
        node.rung = Rung::flat;
        const auto push_fitting = [&](bool last) {
            std::erase_if(remaining_, [&](std::size_t i) {
                const AnalyticBounds& found = bounds_[i];
                if (found.least_memory_bytes <= limit_) {
                    ++open_[mesh_of(choice)];
                    node.sharding = static_cast<std::int32_t>(i);
                    node.least_step_s = found.least_step_s;
                    push(node);
                    return true;
                }
                const bool by_states = found.least_state_bytes > limit_;
                if (!last && !by_states) return false;
                Choice refused = choice;
                refused.sharding = shardings[i];
                note(refused, found.least_memory_bytes, by_states);
                return true;
            });
        };
        if (block.recompute == Recompute::selective) {
            for (std::size_t set = 0; set < part_sets_.size() && !remaining_.empty(); ++set) {
                choice.recompute_parts = part_sets_[set];
                node.part_set = static_cast<std::int16_t>(set);
                bounder_.bounds_of_each(choice, shardings, bounds_);
                push_fitting(set + 1 == part_sets_.size());
                if (set == 0 && !remaining_.empty()) drop_hopeless(choice, shardings);
            }
        } else if (block.recompute == Recompute::full) {
            choice.recompute_layers = node.layers = 1;
            bounder_.bounds_of_each(choice, shardings, bounds_);
            push_fitting(false);
            if (!remaining_.empty()) {  // the least memory is that of all blocks, the least time that of one
                choice.recompute_layers = node.layers = -1;
                bounder_.bounds_of_each(choice, shardings, more_bounds_);
                for (const std::size_t i : remaining_) more_bounds_[i].least_step_s = bounds_[i].least_step_s;
                bounds_.swap(more_bounds_);
                push_fitting(true);
            }
        } else {
            bounder_.bounds_of_each(choice, shardings, bounds_);
            push_fitting(true);
        }
        --open_[mesh_of(choice)];
    }

    /// Drops the remaining shardings whose lasting values do not fit even with full recomputation, which keeps less
    /// than any set of parts: then the larger sets need not be costed.
    void drop_hopeless(Choice choice, const std::vector<Sharding>& shardings) {
        choice.recompute = Recompute::full;
        choice.recompute_parts = 0;
        bounder_.bounds_of_each(choice, shardings, more_bounds_);
        std::erase_if(remaining_, [&](std::size_t i) {
            if (more_bounds_[i].least_lasting_bytes <= limit_) return false;
            Choice refused = choice;
            refused.sharding = shardings[i];
            note(refused, more_bounds_[i].least_lasting_bytes, false);
            return true;
        });
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

    [[nodiscard]] bool fits(const Choice& choice) {
        return bounder_.bounds(choice).least_memory_bytes <= limit_ && memory_of(choice) <= limit_;
    }

    /// Whether the same plan fits with less recomputation, so that more would be wasted.
    bool fits_with_less(const Node& node) {
        if (node.recompute == Recompute::none) return false;
        Node less = node;
        less.layers = -1;
        if (node.recompute == Recompute::selective && node.part_set > 0) {
            --less.part_set;
        } else if (tries_without_recomputation()) {
            less.recompute = Recompute::none;
        } else {
            return false;
        }
        return fits(choice_of(less));
    }

    /// Whether a candidate that is known to fit, with no more recomputation and another sharding, is at most
    /// kDominance of the step slower, so that this one is not worth more work.
    bool is_dominated(const Node& node) {
        const auto known = fitting_.find({node.family, node.micro_batch});
        if (prove_ > 1 || known == fitting_.end()) return false;  // the second best may be one that the best dominates
        const Choice choice = choice_of(node);
        return std::any_of(known->second.begin(), known->second.end(), [&](const Node& other) {
            if (other.recompute != Recompute::none && other.recompute != node.recompute) return false;
            if (other.part_set > node.part_set || other.layers > node.layers) return false;
            return bounder_.most_excess_s(choice, shardings_of(node), static_cast<std::size_t>(other.sharding),
                                          static_cast<std::size_t>(node.sharding)) <= kDominance * node.least_step_s;
        });
    }

    /// Raises recompute_layers to the smallest number with which the plan fits; false if no number does. That number
    /// is near the one that the analytic bound gives.
    bool settle_layers(Choice& choice) {
        const std::int64_t most = bounder_.largest_chunk(choice);
        std::int64_t low = choice.recompute_layers, high = low;
        Choice tried = choice;
        for (std::int64_t step = 1; memory_of(tried) > limit_; step *= 2) {
            low = tried.recompute_layers + 1;
            if (low > most) return false;
            high = tried.recompute_layers = std::min(most, tried.recompute_layers + step);
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

    /// Pushes the node, which does not fit, with the next set of parts with which it may.
    void recompute_more(Node node) {
        std::int64_t bytes = memory_of(choice_of(node));
        while (std::cmp_less(node.part_set + 1, part_sets_.size())) {
            ++node.part_set;
            const Choice choice = choice_of(node);
            const AnalyticBounds found = bounder_.bounds(choice);
            bytes = found.least_memory_bytes;
            if (bytes > limit_) continue;
            ++open_[mesh_of(choice)];
            node.rung = Rung::flat;
            node.least_step_s = std::max(node.least_step_s, found.least_step_s);
            return push(node);
        }
        note(choice_of(node), bytes, false);
    }

    /// Settles the number of recomputed blocks by the analytic bounds, and adds the bound of the critical path.
    void find_path(Node node) {
        Choice choice = choice_of(node);
        if (node.recompute == Recompute::full && node.layers < 0) {
            choice.recompute_layers = bounder_.fewest_recomputed(choice, limit_);
            node.layers = static_cast<std::int16_t>(choice.recompute_layers);
            node.least_step_s = std::max(node.least_step_s, bounder_.bounds(choice).least_step_s);
        }
        node.least_step_s = std::max(node.least_step_s, bounder_.path_s(choice));
        node.rung = Rung::path;
        push(node);
    }

    void lower_node(Node node) {
        Choice choice = choice_of(node);
        const auto closes = [&] { --open_[mesh_of(choice)]; };
        if (fits_with_less(node)) {
            fits_.insert(mesh_of(choice));
            return closes();
        }
        if (node.recompute == Recompute::full) {
            if (!settle_layers(choice)) {
                choice.recompute_layers = bounder_.largest_chunk(choice);
                note(choice, memory_of(choice), false);
                return closes();
            }
            if (choice.recompute_layers != node.layers) {
                node.layers = static_cast<std::int16_t>(choice.recompute_layers);
                node.least_step_s = std::max(node.least_step_s, bounder_.bounds(choice).least_step_s);
                return push(node);
            }
        }
        if (is_dominated(node)) {
            ++search_.dominated;
            return closes();
        }
        ++search_.candidate_lowerings;
        const LoweredBounds found = lowered_bounds(plan_of(request_, choice), cluster_, cost_);
        memory_[choice] = found.peak_memory_bytes;
        closes();
        if (found.peak_memory_bytes <= limit_) {
            fits_.insert(mesh_of(choice));
            fitting_[{node.family, node.micro_batch}].push_back(node);
            node.rung = Rung::lowered;
            node.least_step_s = std::max(node.least_step_s, found.least_step_s);
            push(node);
        } else if (node.recompute == Recompute::selective) {
            recompute_more(node);
        } else {
            note(choice, found.peak_memory_bytes, false);
        }
    }

    void simulate(const Node& node) {
        const Choice choice = choice_of(node);
        const Plan plan = plan_of(request_, choice);
        ++search_.simulated;
        PlanResult result = timed(plan, cluster_, cost_);
        check_fit(memory_of(choice), limit_, result);
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
    const CandidateList list_;
    const std::vector<PartSet> part_sets_;
    std::int64_t limit_ = 0;
    std::int64_t sequence_ = 0;
    std::priority_queue<Node, std::vector<Node>, Later> nodes_;
    std::map<Choice, std::int64_t> memory_;
    std::map<MeshKey, Closest> closest_;
    std::map<MeshKey, std::int64_t> open_;  // candidates not yet known to fit or not to fit
    std::set<MeshKey> fits_;
    std::map<std::pair<std::int32_t, std::int32_t>, std::vector<Node>> fitting_;  // by family and micro-batch
    std::vector<AnalyticBounds> bounds_, more_bounds_;                            // of one block's candidates
    std::vector<std::size_t> remaining_;  // indices of a block's shardings that do not fit yet
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
    into.bounded += from.bounded;
    into.dominated += from.dominated;
    into.layer_lowerings += from.layer_lowerings;
    into.candidate_lowerings += from.candidate_lowerings;
    into.simulated += from.simulated;
    into.least_open_s = std::min(into.least_open_s, from.least_open_s);
}

std::size_t proven_results(const PlanSearch& search) {
    const auto is_proven = [&](const PlanResult& result) {
        return result.feasible && (1 - kStepTolerance) * search.least_open_s > result.step_time_s;
    };
    const auto proven = static_cast<std::size_t>(
        std::find_if_not(search.results.begin(), search.results.end(), is_proven) - search.results.begin());
    return search.dominated > 0 ? std::min<std::size_t>(1, proven) : proven;
}

PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep,
                        std::size_t prove) {
    ORRERY_CHECK(prove > 0 && prove <= keep, "a search that proves no plan, or more than it keeps");
    return Search(request, cluster, keep, prove).run();
}

}  // namespace orrery::sim
