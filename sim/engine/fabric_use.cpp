#include "sim/engine/fabric_use.h"

#include <algorithm>
#include <utility>

#include "sim/network/fabric_loads.h"

namespace orrery::sim {

namespace {

using topologies::Cluster;

/// A link with more than this share of its bandwidth loaded is oversubscribed; the excess over 1 allows for rounding.
constexpr double kFull = 1.0 + 1e-6;

}  // namespace

/// Collects all loads in each state of the cluster, then keeps those on links that may be oversubscribed.
class FabricUse::Collector {
  public:
    Collector(const PlacedJobs& jobs, const IndexedVector<JobIndex, FabricRates>& rates) : jobs_(jobs), rates_(rates) {}

    void add_state(StateIndex state, const Cluster& cluster) {
        links_.resize(static_cast<std::size_t>(cluster.link_count()));
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
        std::vector<Load> loads;
        for (auto& [link, load] : found_) {
            load.link = link_of(link).number;
            if (load.link >= 0) loads.push_back(load);
        }
        AnyGroup groups = 0;
        for (const PlacedJob& job : jobs_) {
            program::PerAxis<AnyGroup>& first = use.first_group_.emplace_back();
            for (const program::GroupAxis axis : program::kAxes) {
                first[axis] = groups;
                groups = groups + job.groups().family(axis).end.value();
            }
        }
        use.of_group_ = {groups.position(), loads,
                         [&](const Load& load) { return use.first_group_[load.job][load.axis] + load.group.value(); }};
        use.of_link_ = {end.position(), use.of_group_.all(), [](const Load& load) { return load.link; }};
    }

  private:
    struct Link {
        double all_groups = 0;  // share of its bandwidth for all groups, each with the operation that takes most
        double this_group = 0;
        bool may_be_over = false;
        SharedLink number = -1;
    };

    Link& link_of(topologies::LinkId id) { return links_[static_cast<std::size_t>(id)]; }

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
                Link& state = link_of(load.link);
                if (state.this_group == 0) touched_.push_back(load.link);
                state.this_group = std::max(state.this_group, load.seconds_per_byte * rate.bytes_per_second);
                found_.push_back({load.link, {job, axis, group, -1, rate.way, load.seconds_per_byte}});
            }
        }
        for (const topologies::LinkId id : touched_) {
            link_of(id).all_groups += std::exchange(link_of(id).this_group, 0);
        }
    }

    const PlacedJobs& jobs_;
    const IndexedVector<JobIndex, FabricRates>& rates_;
    IndexedVector<PlacementIndex, std::vector<FabricRate>> ways_;  // for the current job and state
    std::vector<Link> links_;                                      // by id
    std::vector<topologies::LinkId> touched_;
    std::vector<std::pair<topologies::LinkId, Load>> found_;
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

}  // namespace orrery::sim
