#include "sim/engine/fabric_use.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "sim/network/fabric_loads.h"

namespace orrery::sim {

namespace {

using topologies::Cluster;

/// Loads that add up to this much of a link's bandwidth are those of a full link, but for rounding.
constexpr double kFull = 1.0 + 1e-6;

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

}  // namespace

/// Lists every load in one state of the cluster after the other, then keeps those on links that may be over-subscribed.
class FabricUse::Collector {
  public:
    Collector(std::span<const PlacedJob> jobs, std::span<const FabricRates> rates) : jobs_(jobs), rates_(rates) {}

    void add_state(std::size_t state, const Cluster& cluster) {
        links_.resize(at(cluster.link_count()));
        for (Link& link : links_) link.all_groups = 0;
        FabricLoads fabric(cluster);
        for (std::size_t job = 0; job < jobs_.size(); ++job) {
            list_ways(job, state);
            for (std::size_t axis = 0; axis < program::kAxisCount; ++axis) {
                for (std::int64_t group = 0; group < jobs_[job].groups().family(axis).count; ++group) {
                    add_group(job, axis, group, fabric);
                }
            }
        }
        for (Link& link : links_) link.may_be_over = link.may_be_over || link.all_groups > kFull;
    }

    void finish(FabricUse& use) {
        std::int32_t kept = 0;
        for (Link& link : links_) link.number = link.may_be_over ? kept++ : -1;
        std::erase_if(found_, [&](const Found& one) { return links_[at(one.link)].number < 0; });
        const auto by_group = [](const Found& one) { return std::tuple(one.user.job, one.user.axis, one.user.group); };
        std::stable_sort(found_.begin(), found_.end(),
                         [&](const Found& x, const Found& y) { return by_group(x) < by_group(y); });
        list_by_group(use);
        list_by_link(use, kept);
    }

  private:
    struct Link {
        double all_groups = 0;  // share of it that all groups take together, each by the operation that takes most
        double this_group = 0;
        bool may_be_over = false;
        std::int32_t number = -1;
    };
    struct Found {
        std::int32_t link = 0;  // its id
        User user;
    };

    /// The ways of each placement, with the highest rate of each.
    void list_ways(std::size_t job, std::size_t state) {
        ways_.clear();
        for (const auto& operations : rates_[job][state]) {
            std::vector<FabricRate>& ways = ways_.emplace_back();
            for (const std::optional<FabricRate>& rate : operations) {
                if (!rate) continue;
                const auto known =
                    std::find_if(ways.begin(), ways.end(), [&](const FabricRate& one) { return one.way == rate->way; });
                if (known == ways.end()) {
                    ways.push_back(*rate);
                } else {
                    known->bytes_per_second = std::max(known->bytes_per_second, rate->bytes_per_second);
                }
            }
        }
    }

    void add_group(std::size_t job, std::size_t axis, std::int64_t group, FabricLoads& fabric) {
        const std::vector<FabricRate>& ways = ways_[at(jobs_[job].placement_of(axis, group))];
        touched_.clear();
        for (const FabricRate& rate : ways) {
            const std::vector<FabricLoad> loads =
                fabric.of(rate.way.algorithm, rate.way.kind, jobs_[job].devices_of(axis, group));
            for (const FabricLoad& load : loads) {
                Link& state = links_[at(load.link)];
                if (state.this_group == 0) touched_.push_back(load.link);
                state.this_group = std::max(state.this_group, load.seconds_per_byte * rate.bytes_per_second);
                found_.push_back({load.link,
                                  {static_cast<std::int32_t>(job), static_cast<std::int32_t>(axis),
                                   static_cast<std::int32_t>(group), rate.way, load.seconds_per_byte}});
            }
        }
        for (const topologies::LinkId id : touched_) {
            links_[at(id)].all_groups += std::exchange(links_[at(id)].this_group, 0);
        }
    }

    void list_by_group(FabricUse& use) const {
        use.first_load_.resize(jobs_.size());
        std::size_t next = 0;
        for (std::size_t job = 0; job < jobs_.size(); ++job) {
            for (std::size_t axis = 0; axis < program::kAxisCount; ++axis) {
                std::vector<std::int32_t>& first = use.first_load_[job][axis];
                for (std::int64_t group = 0; group < jobs_[job].groups().family(axis).count; ++group) {
                    first.push_back(static_cast<std::int32_t>(use.loads_.size()));
                    for (; next < found_.size() && is_of(found_[next].user, job, axis, group); ++next) {
                        const Found& one = found_[next];
                        use.loads_.push_back({links_[at(one.link)].number, one.user.way, one.user.seconds_per_byte});
                    }
                }
                first.push_back(static_cast<std::int32_t>(use.loads_.size()));
            }
        }
        ORRERY_CHECK(next == found_.size(), "a group's use of links was lost");
    }

    static bool is_of(const User& user, std::size_t job, std::size_t axis, std::int64_t group) {
        return at(user.job) == job && at(user.axis) == axis && user.group == group;
    }

    void list_by_link(FabricUse& use, std::int32_t kept) const {
        use.first_user_.assign(at(kept) + 1, 0);
        for (const Found& one : found_) ++use.first_user_[at(links_[at(one.link)].number) + 1];
        for (std::size_t i = 1; i < use.first_user_.size(); ++i) use.first_user_[i] += use.first_user_[i - 1];
        std::vector<std::int32_t> next = use.first_user_;
        use.users_.resize(found_.size());
        for (const Found& one : found_) use.users_[at(next[at(links_[at(one.link)].number)]++)] = one.user;
    }

    std::span<const PlacedJob> jobs_;
    std::span<const FabricRates> rates_;
    std::vector<std::vector<FabricRate>> ways_;  // by placement, of the job and state at hand
    std::vector<Link> links_;                    // by id
    std::vector<topologies::LinkId> touched_;
    std::vector<Found> found_;
};

FabricUse::FabricUse(std::span<const PlacedJob> jobs, std::span<const FabricRates> rates,
                     std::span<const topologies::Cluster* const> states) {
    Collector collector(jobs, rates);
    for (std::size_t state = 0; state < states.size(); ++state) {
        if (may_over_subscribe(*states[state])) collector.add_state(state, *states[state]);
    }
    collector.finish(*this);
}

std::span<const FabricUse::Load> FabricUse::loads(std::size_t job, std::size_t axis, std::int64_t group) const {
    if (loads_.empty()) return {};
    const std::vector<std::int32_t>& first = first_load_[job][axis];
    return std::span(loads_).subspan(at(first[at(group)]), at(first[at(group) + 1] - first[at(group)]));
}

std::span<const FabricUse::User> FabricUse::users(std::int32_t link) const {
    return std::span(users_).subspan(at(first_user_[at(link)]), at(first_user_[at(link) + 1] - first_user_[at(link)]));
}

}  // namespace orrery::sim
