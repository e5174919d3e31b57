// How a simulation's running work shares resources.
#include <limits>

#include "core/error.h"
#include "sim/engine/simulation.h"

namespace orrery::sim {

namespace {

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// Whether a member in this seat draws on that kind of resource.
constexpr bool draws(Seat seat, std::size_t kind) {
    switch (static_cast<ResourceKind>(kind)) {
        case ResourceKind::cores:
            return true;
        case ResourceKind::port_out:
        case ResourceKind::nic_out:
            return seat != Seat::recv_forward && seat != Seat::recv_backward;
        case ResourceKind::port_in:
        case ResourceKind::nic_in:
            return seat != Seat::send_forward && seat != Seat::send_backward;
    }
    return false;
}

}  // namespace

/// visit(attachment, units of one such rank) for everything the activity draws on.
template <typename Visit>
void Simulation::for_each_demand(std::int32_t activity, Visit&& visit) const {
    if (activity < rank_count_) {
        const Quotient::Attachment& cores = quotient_.attachments[at(activity)][0];
        if (cores.resource >= 0) visit(cores, kUnit);
        return;
    }
    const std::int32_t group = activity - rank_count_;
    const GroupState& state = groups_[at(group)];
    const OperationLoad& load = input_.loads[at(quotient_.groups[at(group)].placement)][at(state.operation)];
    for (std::int32_t i = 0; i < state.draw_count; ++i) {
        const MemberDraw& draw = draws_[at(state.first_draw + i)];
        if (load.units[draw.kind] != 0) visit(draw.attachment, load.units[draw.kind]);
    }
}

void Simulation::list_draws() {
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        const Quotient::Group& shape = quotient_.groups[group];
        groups_[group].first_draw = static_cast<std::int32_t>(draws_.size());
        for (std::int32_t i = 0; i < shape.member_count; ++i) {
            const Quotient::RankOfGroup& member = quotient_.members[at(shape.first_member + i)];
            for (std::size_t kind = 0; kind < kResourceKinds; ++kind) {
                const Quotient::Attachment& attachment = quotient_.attachments[at(member.rank)][kind];
                if (attachment.resource >= 0 && draws(member.seat, kind)) draws_.push_back({attachment, kind});
            }
        }
        groups_[group].draw_count = static_cast<std::int32_t>(draws_.size()) - groups_[group].first_draw;
    }
}

void Simulation::start_activity(std::int32_t activity, std::int64_t duration_ps) {
    Activity& started = activities_[at(activity)];
    started.left = static_cast<Wide>(duration_ps) * kFullRate;
    started.since_ps = now_;
    started.rate = kFullRate;
    std::int64_t end = 0;
    ORRERY_CHECK(!__builtin_add_overflow(now_, duration_ps, &end), "the simulated time exceeds 106 days");
    queue_.schedule(activity, end);
    change_loads(activity, 1);
}

void Simulation::change_loads(std::int32_t activity, std::int64_t sign) {
    for_each_demand(activity, [&](const Quotient::Attachment& attachment, std::int64_t units) {
        change_load(attachment, sign * units);
    });
}

void Simulation::change_load(const Quotient::Attachment& attachment, std::int64_t units) {
    std::int64_t& load = resource_loads_[at(attachment.resource)];
    const std::int64_t capacity = quotient_.resources[at(attachment.resource)].capacity_units;
    const bool was_over = load > capacity;
    load += units * attachment.weight;
    if ((was_over || load > capacity) && is_dirty_[at(attachment.resource)] == 0) {
        is_dirty_[at(attachment.resource)] = 1;
        dirty_.push_back(attachment.resource);
    }
}

bool Simulation::is_running(std::int32_t activity) const {
    return activity < rank_count_ ? ranks_[at(activity)].compute_since >= 0
                                  : groups_[at(activity - rank_count_)].running;
}

void Simulation::set_rate(std::int32_t activity, std::int64_t rate) {
    Activity& changed = activities_[at(activity)];
    if (changed.rate == rate) return;
    changed.left -= static_cast<Wide>(now_ - changed.since_ps) * changed.rate;
    if (changed.left < 0) changed.left = 0;  // it ends now; its last picosecond was rounded up
    changed.since_ps = now_;
    changed.rate = rate;
    // The one place where the end of shared work is rounded: up to the next picosecond.
    const Wide duration = (changed.left + rate - 1) / rate;
    ORRERY_CHECK(duration < std::numeric_limits<std::int64_t>::max() - now_, "the simulated time exceeds 106 days");
    queue_.schedule(activity, now_ + static_cast<std::int64_t>(duration));
}

/// Divides the over-subscribed resources that changed, and those that work on them couples them with, afresh.
void Simulation::settle() {
    std::vector<std::int32_t> resources;  // over-subscribed ones, and dirty ones that no longer are
    std::vector<std::int32_t> activities;
    const auto add_resource = [&](std::int32_t resource) {
        if (resource_index_[at(resource)] >= 0) return;
        resource_index_[at(resource)] = static_cast<std::int32_t>(resources.size());
        resources.push_back(resource);
    };
    const auto add_activity = [&](std::int32_t activity) {
        if (activity_index_[at(activity)] >= 0 || !is_running(activity)) return;
        activity_index_[at(activity)] = static_cast<std::int32_t>(activities.size());
        activities.push_back(activity);
        for_each_demand(activity, [&](const Quotient::Attachment& attachment, std::int64_t) {
            const std::int64_t capacity = quotient_.resources[at(attachment.resource)].capacity_units;
            if (resource_loads_[at(attachment.resource)] > capacity) add_resource(attachment.resource);
        });
    };
    for (const std::int32_t resource : dirty_) {
        is_dirty_[at(resource)] = 0;
        add_resource(resource);
    }
    dirty_.clear();
    for (std::size_t next = 0; next < resources.size(); ++next) {
        const Quotient::Resource& resource = quotient_.resources[at(resources[next])];
        for (std::int32_t i = 0; i < resource.user_count; ++i) {
            const std::int32_t rank = quotient_.users[at(resource.first_user + i)];
            add_activity(rank);
            for (const std::int32_t group : quotient_.group_at[at(rank)]) {
                if (group >= 0) add_activity(rank_count_ + group);
            }
        }
    }

    std::vector<std::int64_t> capacities;
    capacities.reserve(resources.size());
    for (const std::int32_t resource : resources) {
        capacities.push_back(quotient_.resources[at(resource)].capacity_units);
    }
    std::vector<Demand> demands;
    for (std::size_t i = 0; i < activities.size(); ++i) {
        for_each_demand(activities[i], [&](const Quotient::Attachment& attachment, std::int64_t units) {
            const std::int32_t resource = resource_index_[at(attachment.resource)];
            if (resource < 0) return;
            demands.push_back({static_cast<std::int32_t>(i), resource, units * attachment.weight});
        });
    }
    const std::vector<std::int64_t> rates = max_min_rates(capacities, activities.size(), demands);
    for (std::size_t i = 0; i < activities.size(); ++i) {
        set_rate(activities[i], rates[i]);
        activity_index_[at(activities[i])] = -1;
    }
    for (const std::int32_t resource : resources) resource_index_[at(resource)] = -1;
}

}  // namespace orrery::sim
