#include "sim/engine/fabric_use.h"

#include <algorithm>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "sim/network/fabric_loads.h"

namespace orrery::sim {

namespace {

using topologies::Cluster;

/// A link with more than this share of its bandwidth loaded is oversubscribed; the excess over 1 allows for rounding.
constexpr double kFull = 1.0 + 1e-6;

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

}  // namespace

/// Collects all loads in each state of the cluster, then keeps those on links that may be oversubscribed.
class FabricUse::Collector {
  public:
    Collector(const PlacedJobs& jobs, const IndexedVector<JobIndex, FabricRates>& rates) : jobs_(jobs), rates_(rates) {}

    void add_state(StateIndex state, const Cluster& cluster) {
        links_.resize(at(cluster.link_count()));
        for (Link& link : links_) link.all_groups = 0;
        FabricLoads fabric(cluster);
        for (const JobIndex job : jobs_.indices()) {
            list_ways(rates_[job][state]);
            for (const program::GroupAxis axis : program::kAxes) {
                for (const GroupIndex group : jobs_[job].groups().family(axis).groups()) {
                    add_group(job, axis, group, fabric);
                }
            }
        }
        for (Link& link : links_) link.may_be_over = link.may_be_over || link.all_groups > kFull;
    }

    void finish(FabricUse& use) {
        SharedLink end = 0;
        for (Link& link : links_) {
            if (!link.may_be_over) continue;
            link.number = end;
            ++end;
        }
        std::erase_if(found_, [&](const Found& one) { return links_[at(one.link)].number < 0; });
        const auto by_group = [](const Found& one) { return std::tuple(one.user.job, one.user.axis, one.user.group); };
        std::stable_sort(found_.begin(), found_.end(),
                         [&](const Found& x, const Found& y) { return by_group(x) < by_group(y); });
        list_by_group(use);
        list_by_link(use, end);
    }

  private:
    struct Link {
        double all_groups = 0;  // share of its bandwidth for all groups, each with the operation that takes most
        double this_group = 0;
        bool may_be_over = false;
        SharedLink number = -1;
    };
    struct Found {
        topologies::LinkId link = 0;
        User user;
    };

    /// Lists the ways of each placement, each with the highest rate of its operations.
    void list_ways(const PerOperation<std::optional<FabricRate>>& rates) {
        ways_.clear();
        for (const auto& operations : rates) {
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

    void add_group(JobIndex job, program::GroupAxis axis, GroupIndex group, FabricLoads& fabric) {
        const std::vector<FabricRate>& ways = ways_[jobs_[job].placement_of(axis, group)];
        touched_.clear();
        for (const FabricRate& rate : ways) {
            const std::vector<FabricLoad> loads =
                fabric.of(rate.way.algorithm, rate.way.kind, jobs_[job].devices_of(axis, group));
            for (const FabricLoad& load : loads) {
                Link& state = links_[at(load.link)];
                if (state.this_group == 0) touched_.push_back(load.link);
                state.this_group = std::max(state.this_group, load.seconds_per_byte * rate.bytes_per_second);
                found_.push_back({load.link, {job, axis, group, rate.way, load.seconds_per_byte}});
            }
        }
        for (const topologies::LinkId id : touched_) {
            links_[at(id)].all_groups += std::exchange(links_[at(id)].this_group, 0);
        }
    }

    void list_by_group(FabricUse& use) const {
        use.first_load_.resize(jobs_.size());
        std::size_t next = 0;
        for (const JobIndex job : jobs_.indices()) {
            for (const program::GroupAxis axis : program::kAxes) {
                auto& first = use.first_load_[job][axis];
                for (const GroupIndex group : jobs_[job].groups().family(axis).groups()) {
                    first.push_back(static_cast<std::int32_t>(use.loads_.size()));
                    for (; next < found_.size() && is_of(found_[next].user, job, axis, group); ++next) {
                        const Found& one = found_[next];
                        use.loads_.push_back({links_[at(one.link)].number, one.user.way, one.user.seconds_per_byte});
                    }
                }
                first.push_back(static_cast<std::int32_t>(use.loads_.size()));
            }
        }
        ORRERY_CHECK(next == found_.size(), "a load on a link belongs to no group");
    }

    static bool is_of(const User& user, JobIndex job, program::GroupAxis axis, GroupIndex group) {
        return user.job == job && user.axis == axis && user.group == group;
    }

    void list_by_link(FabricUse& use, SharedLink end) const {
        use.first_user_.assign(end.position() + 1, 0);
        for (const Found& one : found_) ++use.first_user_[links_[at(one.link)].number + 1];
        std::partial_sum(use.first_user_.begin(), use.first_user_.end(), use.first_user_.begin());
        IndexedVector<SharedLink, std::int32_t> next = use.first_user_;
        use.users_.resize(found_.size());
        for (const Found& one : found_) use.users_[at(next[links_[at(one.link)].number]++)] = one.user;
    }

    const PlacedJobs& jobs_;
    const IndexedVector<JobIndex, FabricRates>& rates_;
    IndexedVector<PlacementIndex, std::vector<FabricRate>> ways_;  // for the current job and state
    std::vector<Link> links_;                                      // by id
    std::vector<topologies::LinkId> touched_;
    std::vector<Found> found_;
};

FabricUse::FabricUse(const PlacedJobs& jobs, const IndexedVector<JobIndex, FabricRates>& rates,
                     std::span<const topologies::Cluster* const> states) {
    Collector collector(jobs, rates);
    for (StateIndex state = 0; const topologies::Cluster* cluster : states) {
        if (may_over_subscribe(*cluster)) collector.add_state(state, *cluster);
        ++state;
    }
    collector.finish(*this);
}

std::span<const FabricUse::Load> FabricUse::loads(JobIndex job, program::GroupAxis axis, GroupIndex group) const {
    if (loads_.empty()) return {};
    const auto& first = first_load_[job][axis];
    return {loads_.data() + first[group], loads_.data() + first[group + 1]};
}

std::span<const FabricUse::User> FabricUse::users(SharedLink link) const {
    return {users_.data() + first_user_[link], users_.data() + first_user_[link + 1]};
}

}  // namespace orrery::sim
