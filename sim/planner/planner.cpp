#include "sim/planner/planner.h"

#include <fmt/format.h>
#include <oneapi/tbb/parallel_for.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <utility>

#include "core/error.h"
#include "core/index.h"
#include "core/units.h"
#include "sim/planner/ahead.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/planner/best_plans.h"
#include "sim/planner/candidates.h"
#include "sim/planner/lowered_bounds.h"
#include "sim/planner/misfits.h"
#include "sim/planner/node_space.h"
#include "sim/planner/pruned.h"
#include "sim/planner/search_queue.h"
#include "sim/planner/search_reporter.h"
#include "sim/planner/search_space.h"
#include "sim/planner/timing.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::PlanResult;
using program::Recompute;
using Node = SearchNode;

class Search {
  public:
    Search(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep, std::size_t prove,
           std::span<const double> rivals)
        : request_(request),
          cluster_(cluster),
          prove_(prove),
          best_(keep, prove, rivals),
          cost_(request.cluster, request.rates),
          bounder_(request, cluster, cost_),
          space_(request, cluster, cost_) {}

    PlanSearch run() {
        search_.considered = list_.considered;
        search_.left_out = list_.left_out;
        list_meshes();
        limit_ = memory_per_rank_bytes(plan_of(request_, choice_of({.rung = Rung::flat})),
                                       request_.memory_margin_gib);  // the same for every plan
        if (request_.max_memory_bytes > 0) limit_ = std::min(limit_, request_.max_memory_bytes);
        search_.memory_limit_bytes = limit_;
        while (!nodes_.empty()) {
            if (is_beaten(nodes_.front())) {
                search_.least_open_s = nodes_.front().least_step_s;
                break;
            }
            const Node node = nodes_.pop();
            start_ahead();
            report(node.least_step_s);
            (this->*kTurns.at(static_cast<std::size_t>(node.rung)))(node);
        }
        if (!any_fits_ && std::isinf(search_.least_open_s)) refuse();
        search_.results = best_.take();
        tbb::parallel_for(std::size_t{0}, search_.results.size(),
                          [this](std::size_t i) { add_derivatives(cluster_, cost_, search_.results[i]); });
        search_.spaces = {space_of(request_, list_)};
        for (PlanResult& misfit : misfits_.results(request_)) search_.results.push_back(std::move(misfit));
        search_.layer_lowerings = bounder_.layer_lowerings();
        return std::move(search_);
    }

    /// Keeps what run() excludes, for pruned().
    void keep_pruned() { keeps_pruned_ = true; }
    /// After run(): a sample of what it excluded.
    [[nodiscard]] std::vector<Pruned> pruned(std::size_t samples, std::uint64_t seed) {
        auto strata = nodes_.take_by_rung();
        std::vector<Pruned> found;
        const std::size_t each = samples / (strata.size() + (refused_.empty() ? 0 : 1));
        std::mt19937_64 random(seed);
        for (const auto& [name, nodes] : strata) {
            Pruned& one = found.emplace_back(Pruned{.excluded_by = name});
            for (const Node& node : nodes) one.candidates += space_.candidates_of(node);
            const bool has_many = one.candidates > std::ssize(nodes);  // whole pipelines or blocks
            for (std::size_t i = 0; i < (has_many ? each : std::min(each, nodes.size())); ++i) {
                const Node& node = has_many ? nodes[random() % nodes.size()] : nodes[i];
                one.sample.push_back({draw(node, random), node.least_step_s});
            }
        }
        if (refused_.empty()) return found;
        found.push_back({.excluded_by = "memory", .candidates = std::ssize(refused_)});
        for (std::size_t i = 0; i < std::min(each, refused_.size()); ++i) {
            std::swap(refused_[i], refused_[i + random() % (refused_.size() - i)]);
            found.back().sample.push_back({refused_[i]});
        }
        return found;
    }

  private:
    /// One of the candidates that the node stands for.
    [[nodiscard]] Choice draw(const Node& node, std::mt19937_64& random) {
        Choice choice = space_.draw(node, random);
        const bool has_layers = choice.recompute == Recompute::full || choice.offload_layers != 0;
        if (has_layers && choice.relieved_layers() < 0) {
            const auto blocks = static_cast<std::size_t>(std::max<std::int64_t>(1, bounder_.largest_chunk(choice)));
            choice.relieved_layers() = static_cast<std::int64_t>(1 + random() % blocks);
        }
        return choice;
    }

    [[nodiscard]] Choice choice_of(const Node& node) const { return space_.choice_of(node); }
    [[nodiscard]] const std::vector<Sharding>& shardings_of(const Node& node) const {
        return space_.shardings_of(node);
    }
    /// The bounds of torch DataParallel are zero.
    [[nodiscard]] bool has_no_bounds(const Family& family) const {
        return list_.shardings_of(family).front().data_parallel == program::DataParallel::dp;
    }

    void list_meshes() {
        for (std::size_t f = 0; f < list_.families.size(); f = list_.mesh_end(f)) {
            ++misfits_.open(list_.families[f].choice);
            push(NodeSpace::mesh_node(f));
        }
    }

    /// Bounds a mesh by those with half of one of its degrees, as long as these have a higher bound for it; then by its
    /// own computation.
    void bound_mesh(Node node) {
        const auto first = static_cast<std::size_t>(node.family);
        const std::span mesh(&list_.families[first], list_.mesh_end(first) - first);
        if (std::any_of(mesh.begin(), mesh.end(), [this](const Family& family) { return has_no_bounds(family); })) {
            node.rung = Rung::mesh;
            return push(node);
        }
        double& known = mesh_bounds_.add(degrees_of(mesh.front().choice), 0.0).first;
        double least_s = known;
        for (const Choice& half : halves_of(mesh.front().choice)) {
            const double* const of_half = mesh_bounds_.find(half);
            if (of_half != nullptr) least_s = std::max(least_s, kLeastShareOfHalf * *of_half);
        }
        if (least_s == known) {
            node.rung = Rung::mesh;
            least_s = std::max(least_s, bounder_.least_computation_s(mesh));
        }
        known = least_s;
        push(node, least_s);
    }

    /// Pushes the pipelines of a mesh.
    void list_pipelines(Node node) {
        const auto first = static_cast<std::size_t>(node.family);
        for (std::size_t f = first; f < list_.mesh_end(first); ++f) {
            const Family& family = list_.families[f];
            Node pipeline = NodeSpace::pipeline_node(f);
            pipeline.least_step_s = node.least_step_s;
            push(pipeline,
                 has_no_bounds(family) ? 0 : bounder_.least_computation_s(family.choice, family.micro_batches));
        }
        misfits_.open(list_.families[first].choice) += static_cast<std::int64_t>(list_.mesh_end(first) - first) - 1;
    }

    /// Pushes a block for each micro-batch size, unless the states of all shardings are too large.
    void list_blocks(Node node) {
        const Family& family = list_.families[static_cast<std::size_t>(node.family)];
        Choice choice = family.choice;
        --misfits_.open(choice);
        const std::vector<Sharding>& shardings = shardings_of(node);
        choice.micro_batch = bounder_.efficient_micro_batch(choice, family.micro_batches);
        if (bounder_.all_states_exceed(choice, shardings, limit_)) {
            bounder_.bounds_of_each(choice, shardings, bounds_, limit_);
            search_.bounded += std::ssize(shardings);
            for (std::size_t i = 0; i < shardings.size(); ++i) {
                choice.sharding = shardings[i];
                note(choice, bounds_[i].least_memory_bytes, true);
            }
            return;
        }
        node.rung = Rung::block;
        misfits_.open(choice) += std::ssize(family.micro_batches);
        for (std::size_t i = 0; i < family.micro_batches.size(); ++i) {
            choice.micro_batch = family.micro_batches[i];
            node.micro_batch = static_cast<std::int32_t>(i);
            push(node, has_no_bounds(family) ? 0 : bounder_.least_computation_s(choice));
        }
    }

    /// Pushes the candidates of a block: those that may fit, and those for which recomputation or offload has to be
    /// tried. As both only add time, the bound without them holds with them, and most blocks need no costs with them.
    void expand(Node node) {
        node.rung = Rung::flat;
        push_least(node, space_.tried_first(node));
        --misfits_.open(choice_of(node));
    }

    /// Pushes candidates with these shardings, and in place of those that do not fit also those with more on the host.
    void push_least(Node node, std::vector<std::size_t> tried) {
        const std::vector<Sharding>& shardings = shardings_of(node);
        const bool saves_activations = space_.may_save_activations(node);
        const Choice block = choice_of(node);
        std::vector<std::size_t> misfits, more;
        for (; !tried.empty(); tried = std::exchange(more, {})) {
            bounder_.bounds_of_some(block, shardings, tried, bounds_, limit_);
            search_.bounded += std::ssize(tried);
            for (const std::size_t i : tried) {
                const AnalyticBounds& found = bounds_[i];
                node.sharding = static_cast<std::int32_t>(i);
                if (list_.savings_of(choice_of(node), shardings[i]) == 0) continue;
                if (!space_.allows(Recompute::none) || list_.must_offload_activations(shardings[i])) {
                    misfits.push_back(i);
                    continue;
                }
                if (push_if_fits(node, found)) continue;
                if (const std::optional<std::size_t> next = more_offload(shardings, i)) more.push_back(*next);
                const bool by_states = found.least_state_bytes > limit_;
                if (by_states || !saves_activations) {
                    note(choice_of(node), found.least_memory_bytes, by_states);
                } else {
                    misfits.push_back(i);
                }
            }
        }
        node.rung = Rung::misfit;
        for (const std::size_t i : misfits) {
            node.sharding = static_cast<std::int32_t>(i);
            ++misfits_.open(choice_of(node));
            push(node, bounds_[i].least_step_s);
        }
    }

    /// Analytic bounds of one candidate.
    AnalyticBounds bound(const Node& node) {
        return bounder_.bounds(choice_of(node), shardings_of(node), static_cast<std::size_t>(node.sharding));
    }

    /// Pushes the candidate, which does not fit as it is, with the least recomputation or offloaded activations of each
    /// kind with which it may.
    void relieve(Node node) {
        node.rung = Rung::flat;
        const Choice choice = choice_of(node);
        if (list_.may_offload_activations(choice)) offload_activations(node);
        if (!list_.must_offload_activations(choice.sharding)) recompute(node);
        --misfits_.open(choice);
    }

    void offload_activations(Node node) {
        node.offloads = true;
        push_blocks(node, bound(node));
    }

    void recompute(Node node) {
        if (list_.recompute.back() == Recompute::none) return;
        const Choice without = choice_of(node);
        // Full recomputation keeps less than any set of parts, unless a split backward keeps for its second half what
        // it recomputed for the first. What does not fit with it need not be costed with sets.
        const bool keeps_least = !row_of(without.schedule).splits_backward();
        bool may_fit = true;
        if (space_.allows(Recompute::full) || keeps_least) {
            node.recompute = Recompute::full;
            const AnalyticBounds all = bound(node);
            may_fit = !keeps_least || all.least_lasting_bytes <= limit_;
            if (!may_fit)
                note(space_.allows(Recompute::full) ? choice_of(node) : without, all.least_lasting_bytes, false);
            if (may_fit && space_.allows(Recompute::full)) push_blocks(node, all);
        }
        if (may_fit && space_.allows(Recompute::selective)) recompute_parts(node);
    }

    /// Pushes the candidate with one block of each chunk, or more, recomputed or offloaded. `all`: the bounds with all.
    void push_blocks(Node node, AnalyticBounds all) {
        ++search_.bounded;
        node.layers = 1;
        const AnalyticBounds one = bound(node);
        if (push_if_fits(node, one)) return;
        // The least memory is that of all blocks, the least time that of one.
        node.layers = -1;
        all.least_step_s = one.least_step_s;
        if (!push_if_fits(node, all)) note(choice_of(node), all.least_memory_bytes, all.least_state_bytes > limit_);
    }

    void recompute_parts(Node node) {
        ++search_.bounded;
        node.recompute = Recompute::selective;
        const auto bound_with = [&](std::size_t set) {
            node.part_set = static_cast<std::int16_t>(set);
            return bound(node);
        };
        // Each further set keeps less and takes longer, so that the first one whose lasting values fit is found by
        // bisection. From there on the transients, which grow with what is recomputed, have to fit too.
        std::size_t low = 0;
        for (std::size_t high = space_.part_sets().size(); low < high;) {
            const std::size_t middle = (low + high) / 2;
            if (bound_with(middle).least_lasting_bytes <= limit_) {
                high = middle;
            } else {
                low = middle + 1;
            }
        }
        for (std::size_t set = std::min(low, space_.part_sets().size() - 1);; ++set) {
            const AnalyticBounds found = bound_with(set);
            if (push_if_fits(node, found)) return;
            const bool by_states = found.least_state_bytes > limit_;
            if (by_states || set + 1 == space_.part_sets().size()) {
                return note(choice_of(node), found.least_memory_bytes, by_states);
            }
        }
    }

    bool push_if_fits(const Node& node, const AnalyticBounds& found) {
        if (found.least_memory_bytes > limit_) return false;
        ++misfits_.open(choice_of(node));
        push(node, found.least_step_s);
        return true;
    }

    /// With its bound, or a further one on the step if that is higher.
    void push(Node node, double least_step_s = 0) {
        if (least_step_s > 0) {
            const double error = space_.is_simulated_whole(node) ? 0 : kStepTolerance;
            node.least_step_s = std::max(node.least_step_s, (1 - error) * least_step_s);
        }
        nodes_.push(node);
    }

    /// Whether no candidate of the node can be among the plans to be proven.
    [[nodiscard]] bool is_beaten(const Node& node) const {
        return node.least_step_s > std::min(best_.time_to_beat_s(), request_.most_step_s);
    }

    /// Starts the work of the next nodes on free threads. Some of it may turn out not to be needed.
    void start_ahead() {
        const int most = 2 * tbb::this_task_arena::max_concurrency();
        int seen = 0;
        for (const Node& node : nodes_.long_work()) {
            if (!has_free_thread(running_) || is_beaten(node) || seen++ == most) return;
            const Choice choice = choice_of(node);
            if (node.rung == Rung::brief) times_.start(choice);
            if (node.rung == Rung::lowered) briefs_.start(choice);
            if (node.rung == Rung::traffic) lowerings_.start(choice);
        }
    }

    void report(double least_open_s) {
        if (!reporter_.is_due()) return;
        std::int64_t open = 0;
        for (const Node& node : nodes_.nodes()) open += space_.candidates_of(node);
        reporter_.report({.considered = search_.considered,
                          .decided = std::max<std::int64_t>(0, search_.considered - open),
                          .best_step_s = best_.time_to_beat_s(),
                          .least_open_s = least_open_s});
    }

    void note(const Choice& choice, std::int64_t bytes, bool by_states) {
        ++search_.too_large;
        if (keeps_pruned_) refused_.push_back(choice);
        misfits_.add(choice, bytes, by_states);
    }

    /// Exact peak memory, context included.
    std::int64_t memory_of(const Choice& choice) {
        const auto [bytes, fresh] = memory_.add(choice, 0);
        if (fresh) {
            ++search_.candidate_lowerings;
            last_lowered_.emplace(choice, FewMicroBatches(plan_of(request_, choice)));
            bytes = last_lowered_->second.peak_memory_bytes();
        }
        return bytes;
    }

    LoweredBounds lowered_bounds_of(const Choice& choice) {
        if (last_lowered_.has_value() && last_lowered_->first == choice) {
            return last_lowered_->second.bounds(cluster_, cost_);
        }
        ++search_.candidate_lowerings;
        const LoweredBounds found = lowerings_.take(choice);
        memory_.add(choice).first = found.peak_memory_bytes;
        return found;
    }

    /// Raises Choice::relieved_layers to the smallest number with which the plan fits; false if no number does. That
    /// number is near the one that the analytic bound gives.
    bool settle_layers(Choice& choice) {
        const std::int64_t most = bounder_.largest_chunk(choice);
        std::int64_t low = choice.relieved_layers(), high = low;
        Choice tried = choice;
        std::int64_t& layers = tried.relieved_layers();
        for (std::int64_t step = 1; memory_of(tried) > limit_; step *= 2) {
            low = layers + 1;
            if (low > most) return false;
            high = layers = std::min(most, layers + step);
        }
        while (low < high) {
            layers = (low + high) / 2;
            if (memory_of(tried) <= limit_) {
                high = layers;
            } else {
                low = layers + 1;
            }
        }
        choice.relieved_layers() = low;
        return true;
    }

    /// Pushes the node, which does not fit, with the next set of parts with which it may.
    void recompute_more(Node node) {
        std::int64_t bytes = memory_of(choice_of(node));
        while (std::cmp_less(node.part_set + 1, space_.part_sets().size())) {
            ++node.part_set;
            const Choice choice = choice_of(node);
            const AnalyticBounds found = bound(node);
            bytes = found.least_memory_bytes;
            if (bytes > limit_) continue;
            ++misfits_.open(choice);
            node.rung = Rung::flat;
            return push(node, found.least_step_s);
        }
        note(choice_of(node), bytes, false);
    }

    /// Settles the number of recomputed or offloaded blocks by the analytic bounds, and adds the bound of the critical
    /// path.
    void find_path(Node node) {
        Choice choice = choice_of(node);
        double least_s = 0;
        if (node.has_layers() && node.layers < 0) {
            choice.relieved_layers() =
                bounder_.fewest_recomputed(choice, shardings_of(node), static_cast<std::size_t>(node.sharding), limit_);
            node.layers = static_cast<std::int16_t>(choice.relieved_layers());
            least_s = bound(node).least_step_s;
        }
        node.rung = Rung::path;
        push(node, std::max(least_s, bounder_.path_s(choice)));
    }

    /// Adds the bound of the schedule's passes beside the data-parallel communication.
    void find_traffic(Node node) {
        const double found =
            bounder_.traffic_s(choice_of(node), shardings_of(node), static_cast<std::size_t>(node.sharding));
        node.rung = Rung::traffic;
        push(node, found);
    }

    void lower_node(Node node) {
        Choice choice = choice_of(node);
        const auto closes = [&] { --misfits_.open(choice); };
        if (node.has_layers()) {
            if (!settle_layers(choice)) {
                choice.relieved_layers() = bounder_.largest_chunk(choice);
                note(choice, memory_of(choice), false);
                return closes();
            }
            if (choice.relieved_layers() != node.layers) {
                node.layers = static_cast<std::int16_t>(choice.relieved_layers());
                return push(node, bound(node).least_step_s);
            }
        }
        const LoweredBounds found = lowered_bounds_of(choice);
        closes();
        if (found.peak_memory_bytes <= limit_) {
            misfits_.fits(choice);
            any_fits_ = true;
            node.rung = has_brief(plan_of(request_, choice)) ? Rung::lowered : Rung::brief;
            push(node, found.least_step_s);
        } else if (node.recompute == Recompute::selective) {
            recompute_more(node);
        } else if (node.recompute != Recompute::none || node.offloads || !push_leaner(node)) {
            note(choice, found.peak_memory_bytes, false);
        }
    }

    /// Pushes what may fit in place of a candidate without recomputation; false if the request allows nothing else.
    bool push_leaner(Node node) {
        node.rung = Rung::flat;
        const std::optional<std::size_t> more =
            more_offload(shardings_of(node), static_cast<std::size_t>(node.sharding));
        const bool saves_activations = space_.may_save_activations(node);
        if (saves_activations) {
            ++misfits_.open(choice_of(node));
            relieve(node);
        }
        if (more.has_value()) push_least(node, {*more});
        return saves_activations || more.has_value();
    }

    /// Adds the bound of two short simulations.
    void find_brief(Node node) {
        node.rung = Rung::brief;
        push(node, briefs_.take(choice_of(node)));
    }

    void simulate(Node node) {
        const Choice choice = choice_of(node);
        ++search_.simulated;
        PlanResult result = times_.take(choice);
        check_fit(memory_of(choice), limit_, result);
        best_.add(std::move(result));
    }

    [[noreturn]] void refuse() const {
        throw InfeasibleError(fmt::format("{}: none of {} plans fits in the {:.1f} GiB that a rank may use",
                                          request_.model.name, search_.considered, to_gib(Bytes(limit_))));
    }

    /// What a node's turn does, by rung.
    static constexpr std::array<void (Search::*)(Node), kRungNames.size()> kTurns{
        &Search::bound_mesh, &Search::list_pipelines, &Search::list_blocks, &Search::expand,     &Search::relieve,
        &Search::find_path,  &Search::find_traffic,   &Search::lower_node,  &Search::find_brief, &Search::simulate};

    const PlanRequest& request_;
    const topologies::Cluster& cluster_;
    std::size_t prove_;
    BestPlans best_;
    RooflineCost cost_;
    AnalyticBounder bounder_;
    const NodeSpace space_;
    const CandidateList& list_ = space_.list();
    std::int64_t limit_ = 0;
    SearchQueue nodes_;
    SearchReporter reporter_{request_};
    ByChoice<double> mesh_bounds_;  // on the step, by degrees_of
    ByChoice<std::int64_t> memory_;
    std::optional<std::pair<Choice, FewMicroBatches>> last_lowered_;  // by memory_of
    Misfits misfits_;
    bool any_fits_ = false;
    std::vector<AnalyticBounds> bounds_;  // of one block's candidates
    bool keeps_pruned_ = false;
    std::vector<Choice> refused_;  // do not fit, if keeps_pruned_
    PlanSearch search_;
    // Last, so that their threads end before what they read.
    std::atomic<int> running_ = 0;
    Ahead<Choice, LoweredBounds> lowerings_{
        [this](const Choice& choice) { return lowered_bounds(plan_of(request_, choice), cluster_, cost_); }, running_};
    Ahead<Choice, double> briefs_{
        [this](const Choice& choice) { return brief_step_s(plan_of(request_, choice), cluster_, cost_); }, running_};
    Ahead<Choice, PlanResult> times_{
        [this](const Choice& choice) { return timed(plan_of(request_, choice), cluster_, cost_); }, running_};
};

}  // namespace

PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep,
                        std::size_t prove, std::span<const double> rivals) {
    ORRERY_CHECK(prove > 0 && prove <= keep, "a search that proves no plan, or more than it keeps");
    return Search(request, cluster, keep, prove, rivals).run();
}

PlanSearch search_plans(const PlanRequest& request, const topologies::Cluster& cluster, std::size_t keep,
                        std::size_t samples, std::uint64_t seed, std::vector<Pruned>& pruned) {
    Search search(request, cluster, keep, 1, {});
    search.keep_pruned();
    PlanSearch found = search.run();
    pruned = search.pruned(samples, seed);
    return found;
}

}  // namespace orrery::sim
