#include "sim/planner/shortlist.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "sim/planner/analytic_bounds.h"
#include "sim/planner/candidates.h"
#include "sim/planner/nearest_plan.h"

namespace orrery::sim {
namespace {

using program::DataParallel;
using program::Parallelism;
using program::Plan;
using program::PlanResult;
using program::Recompute;
using program::Schedule;

constexpr double kNoStep_s = std::numeric_limits<double>::infinity();  // bound without candidates

/// What data-parallel ranks share.
enum class Shared : std::uint8_t { nothing, states, parameters };
Shared shared_by(DataParallel kind) {
    const program::DataParallelRow& row = row_of(kind);
    return row.shards_parameters ? Shared::parameters : row.shards_states ? Shared::states : Shared::nothing;
}

/// One stage has no schedule.
Schedule schedule_of(const Parallelism& p) {
    return p.pp > 1 ? p.schedule : Schedule::one_f_one_b;
}

Shared shared_by(const Parallelism& p) {
    return p.gradient_ranks() > 1 ? shared_by(p.data_parallel) : Shared::nothing;
}

/// The candidates of one kind.
struct Kind {
    std::size_t request = 0;
    std::int64_t tp = 1, pp = 1, cp = 1, ep = 1;
    Schedule schedule{};
    Shared shared{};
    auto operator<=>(const Kind&) const = default;
};

/// What the bounds of one request's candidates need.
struct Space {
    const PlanRequest& request;
    const topologies::Cluster cluster;
    const RooflineCost cost;
    AnalyticBounder bounder;
    const CandidateList list;
    std::int64_t limit_bytes = 0;

    explicit Space(const PlanRequest& of)
        : request(of),
          cluster(of.cluster),
          cost(of.cluster, of.rates),
          bounder(of, cluster, cost),
          list(list_candidates(of)),
          limit_bytes(allowed_bytes(of, plan_of(of, list.families.front().choice))) {}
};

class Shortlister {
  public:
    Shortlister(const std::vector<PlanRequest>& requests, std::size_t count) : requests_(requests), count_(count) {}

    std::vector<PlanResult> run() {
        for (std::size_t i = 0; i < requests_.size(); ++i) {
            try {
                spaces_.push_back(std::make_unique<Space>(requests_[i]));
                list_kinds(i);
            } catch (const InputError&) {
                if (!wrong_) wrong_ = std::current_exception();
                if (spaces_.size() == i) spaces_.push_back(nullptr);
            }
        }
        if (open_.empty()) std::rethrow_exception(wrong_);
        while (!open_.empty()) {
            const auto [bound, is_tight, kind] = *open_.begin();
            if (found_.size() == count_ && (1 - kStepTolerance) * bound > found_.back().step_time_s) break;
            open_.erase(open_.begin());
            if (!is_tight) {
                const double tight = std::max(bound, tight_bound(kind));
                if (tight < kNoStep_s) open_.insert({tight, true, kind});
            } else {
                search(kind);
            }
        }
        return std::move(found_);
    }

    [[nodiscard]] const std::optional<InfeasibleError>& nothing() const { return nothing_; }

  private:
    /// With the bounds by computation alone.
    void list_kinds(std::size_t request) {
        Space& space = *spaces_[request];
        std::map<Kind, double> bounds;
        for (const Family& family : space.list.families) {
            Choice choice = family.choice;
            double least = kNoStep_s;
            for (const std::int64_t micro_batch : family.micro_batches) {
                choice.micro_batch = micro_batch;
                least = std::min(least, space.bounder.least_computation_s(choice));
            }
            for (const Sharding& sharding : space.list.shardings_of(family)) {
                const Kind kind{.request = request,
                                .tp = choice.tp,
                                .pp = choice.pp,
                                .cp = choice.cp,
                                .ep = choice.ep,
                                .schedule = choice.schedule,
                                .shared = shared_of(choice, sharding)};
                double& bound = bounds.try_emplace(kind, kNoStep_s).first->second;
                bound = std::min(bound, least);
            }
        }
        for (const auto& [kind, bound] : bounds) open_.insert({bound, false, kind});
    }

    static Shared shared_of(const Choice& choice, const Sharding& sharding) {
        return choice.dp * choice.cp > 1 ? shared_by(sharding.data_parallel) : Shared::nothing;
    }

    /// The least step bound of the kind's candidates that may fit with the strongest recomputation; infinite if none
    /// may.
    double tight_bound(const Kind& kind) {
        Space& space = *spaces_[kind.request];
        // Only full recomputation bounds the memory of all candidates from below.
        const bool is_leanest = space.list.recompute.back() == Recompute::full && !space.list.offloads_activations;
        double least = kNoStep_s;
        std::vector<AnalyticBounds> leanest, fastest;
        for (const Family& family : space.list.families) {
            Choice choice = family.choice;
            if (choice.tp != kind.tp || choice.pp != kind.pp || choice.cp != kind.cp || choice.ep != kind.ep ||
                choice.schedule != kind.schedule) {
                continue;
            }
            const std::vector<Sharding>& shardings = space.list.shardings_of(family);
            for (const std::int64_t micro_batch : family.micro_batches) {
                choice.micro_batch = micro_batch;
                choice.recompute = space.list.recompute.back();
                space.bounder.bounds_of_each(choice, shardings, leanest);
                choice.recompute = space.list.recompute.front();
                space.bounder.bounds_of_each(choice, shardings, fastest);
                for (std::size_t i = 0; i < shardings.size(); ++i) {
                    if (shared_of(choice, shardings[i]) != kind.shared) continue;
                    const std::int64_t bytes =
                        is_leanest ? leanest[i].least_memory_bytes : leanest[i].least_state_bytes;
                    if (bytes > space.limit_bytes) continue;
                    least = std::min(least, fastest[i].least_step_s);
                }
            }
        }
        return least;
    }

    void search(const Kind& kind) {
        const Space& space = *spaces_[kind.request];
        PlanRequest request = space.request;
        request.tp = kind.tp;
        request.pp = kind.pp;
        request.cp = kind.cp;
        request.ep = kind.ep;
        request.schedules = {kind.schedule};
        std::erase_if(request.data_parallel, [&](DataParallel one) {
            return kind.shared != Shared::nothing && shared_by(one) != kind.shared;
        });
        if (kind.shared == Shared::nothing) request.data_parallel = {DataParallel::ddp};
        if (found_.size() == count_) request.most_step_s = found_.back().step_time_s;
        try {
            std::vector<PlanResult> results = search_plans(request, space.cluster, 1, 1).results;
            if (results.empty() || !results.front().feasible) return;  // its plans are slower than most_step_s
            PlanResult& best = results.front();
            const auto slower = std::find_if(found_.begin(), found_.end(), [&](const PlanResult& other) {
                return other.step_time_s > best.step_time_s;
            });
            found_.insert(slower, std::move(best));
            if (found_.size() > count_) found_.pop_back();
        } catch (const InfeasibleError& error) {
            if (!nothing_) nothing_ = error;
        }
    }

    const std::vector<PlanRequest>& requests_;
    const std::size_t count_;
    std::vector<std::unique_ptr<Space>> spaces_;  // by request; null if it has no candidate
    std::set<std::tuple<double, bool, Kind>> open_;
    std::vector<PlanResult> found_;
    std::optional<InfeasibleError> nothing_;
    std::exception_ptr wrong_;
};

}  // namespace

double kind_distance(const Plan& a, const Plan& b) {
    const Parallelism &p = a.parallelism, &q = b.parallelism;
    double distance = 0;
    for (const auto degree : {&Parallelism::tp, &Parallelism::pp, &Parallelism::cp, &Parallelism::ep}) {
        distance += std::abs(std::log2(static_cast<double>(p.*degree) / static_cast<double>(q.*degree)));
    }
    distance += a.implementation.name != b.implementation.name ? 1 : 0;
    distance += schedule_of(p) != schedule_of(q) ? 1 : 0;
    distance += shared_by(p) != shared_by(q) ? 1 : 0;
    return distance;
}

std::vector<PlanResult> shortlist(const std::vector<PlanRequest>& requests, std::size_t count) {
    ORRERY_CHECK(count > 0 && !requests.empty(), "a shortlist of no plan");
    Shortlister shortlister(requests, count);
    std::vector<PlanResult> found = shortlister.run();
    if (!found.empty()) return found;
    if (shortlister.nothing()) throw InfeasibleError(*shortlister.nothing());
    // By the bounds alone nothing fits; the search says what is nearest.
    return search_plans(requests.front(), topologies::Cluster(requests.front().cluster), 1, 1).results;
}

}  // namespace orrery::sim
