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
            return !receives(seat);
        case ResourceKind::port_in:
        case ResourceKind::nic_in:
            return !sends(seat);
        case ResourceKind::copy_out:
        case ResourceKind::copy_in:
            return false;
    }
    return false;
}

/// What a rank's own work draws on. Where the host runs no computation it has cores to spare.
constexpr ResourceKind kind_of(program::Stream local_stream, bool host_runs_compute) {
    if (host_runs_compute) return ResourceKind::cores;
    if (local_stream == program::Stream::copy_out) return ResourceKind::copy_out;
    if (local_stream == program::Stream::copy_in) return ResourceKind::copy_in;
    return ResourceKind::cores;
}

}  // namespace

void Simulation::list_draws() {
    resources_.reserve(quotient_.resources.size());
    for (const Quotient::Resource& resource : quotient_.resources) resources_.push_back({0, resource.capacity_units});
    for (std::int32_t stream = 0; stream < local_streams_; ++stream) {
        drawn_kind_.push_back(kind_of(compiled_.counters.streams[at(stream)], compiled_.host_runs_compute));
    }
    for (std::int32_t rank = 0; rank < rank_count_; ++rank) {
        for (const ResourceKind kind : drawn_kind_) {
            const Quotient::Attachment& own = quotient_.attachments[at(rank)][static_cast<std::size_t>(kind)];
            const auto first = static_cast<std::int32_t>(draws_.size());
            if (own.resource >= 0) draws_.push_back({own.resource, kUnit * own.weight});
            local_draws_.push_back({first, static_cast<std::int32_t>(draws_.size())});
        }
    }
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        groups_[group].first_operation = static_cast<std::int32_t>(group_draws_.size());
        for (const OperationLoad& load : input_.loads[at(quotient_.groups[group].placement)]) {
            group_draws_.push_back(list_group_draws(quotient_.groups[group], load));
        }
    }
}

Simulation::DrawRange Simulation::list_group_draws(const Quotient::Group& group, const OperationLoad& load) {
    const auto first = static_cast<std::int32_t>(draws_.size());
    for (std::int32_t i = 0; i < group.member_count; ++i) {
        const Quotient::RankOfGroup& member = quotient_.members[at(group.first_member + i)];
        for (std::size_t kind = 0; kind < kResourceKinds; ++kind) {
            const Quotient::Attachment& attachment = quotient_.attachments[at(member.rank)][kind];
            if (attachment.resource < 0 || load.units[kind] == 0 || !draws(member.seat, kind)) continue;
            draws_.push_back({attachment.resource, load.units[kind] * attachment.weight});
        }
    }
    ORRERY_CHECK(draws_.size() <= std::numeric_limits<std::int32_t>::max(), "too many demands on shared resources");
    return {first, static_cast<std::int32_t>(draws_.size())};
}

Simulation::DrawRange Simulation::draws_of(std::int32_t activity) const {
    if (activity < first_group_) return local_draws_[at(activity)];
    const GroupState& group = groups_[at(activity - first_group_)];
    return group_draws_[at(group.first_operation + group.operation)];
}

void Simulation::list_rank_activities() {
    for (std::int32_t rank = 0; rank < rank_count_; ++rank) {
        first_rank_activity_.push_back(static_cast<std::int32_t>(rank_activities_.size()));
        for (std::int32_t stream = 0; stream < local_streams_; ++stream) {
            const auto kind = static_cast<std::size_t>(drawn_kind_[at(stream)]);
            if (quotient_.attachments[at(rank)][kind].resource >= 0) {
                rank_activities_.push_back(local_activity(rank, stream));
            }
        }
        for (const std::int32_t group : quotient_.group_at[at(rank)]) {
            if (group >= 0) rank_activities_.push_back(first_group_ + group);
        }
    }
    first_rank_activity_.push_back(static_cast<std::int32_t>(rank_activities_.size()));
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
    const DrawRange range = draws_of(activity);
    for (std::int32_t i = range.first; i < range.last; ++i) {
        const Draw& draw = draws_[at(i)];
        ResourceState& resource = resources_[at(draw.resource)];
        const bool was_over = resource.load_units > resource.capacity_units;
        resource.load_units += sign * draw.units;
        if (!was_over && resource.load_units <= resource.capacity_units) continue;
        if (resource.is_dirty) continue;
        resource.is_dirty = true;
        dirty_.push_back(draw.resource);
    }
}

bool Simulation::is_running(std::int32_t activity) const {
    if (activity >= first_group_) return groups_[at(activity - first_group_)].running;
    return ranks_[at(activity / local_streams_)].streams[activity % local_streams_].waiting == Waiting::running;
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

/// The dirty resources, and what work on them couples them with: over-subscribed ones and dirty ones that no longer
/// are.
void Simulation::collect_problem() {
    problem_resources_.clear();
    problem_activities_.clear();
    problem_capacities_.clear();
    problem_demands_.clear();
    const auto add_resource = [&](std::int32_t resource) {
        ResourceState& state = resources_[at(resource)];
        if (state.index >= 0) return;
        state.index = static_cast<std::int32_t>(problem_resources_.size());
        problem_resources_.push_back(resource);
        problem_capacities_.push_back(static_cast<Wide>(state.capacity_units) * kFullRate);
    };
    const auto add_activity = [&](std::int32_t activity) {
        if (activity_index_[at(activity)] >= 0 || !is_running(activity)) return;
        activity_index_[at(activity)] = static_cast<std::int32_t>(problem_activities_.size());
        problem_activities_.push_back(activity);
        const DrawRange range = draws_of(activity);
        for (std::int32_t i = range.first; i < range.last; ++i) {
            const ResourceState& state = resources_[at(draws_[at(i)].resource)];
            if (state.load_units > state.capacity_units) add_resource(draws_[at(i)].resource);
        }
    };
    for (const std::int32_t resource : dirty_) {
        resources_[at(resource)].is_dirty = false;
        add_resource(resource);
    }
    dirty_.clear();
    for (std::size_t next = 0; next < problem_resources_.size(); ++next) {
        const Quotient::Resource& resource = quotient_.resources[at(problem_resources_[next])];
        for (std::int32_t i = 0; i < resource.user_count; ++i) {
            const std::int32_t rank = quotient_.users[at(resource.first_user + i)];
            for (std::int32_t a = first_rank_activity_[at(rank)]; a < first_rank_activity_[at(rank) + 1]; ++a) {
                add_activity(rank_activities_[at(a)]);
            }
        }
    }
    for (std::size_t i = 0; i < problem_activities_.size(); ++i) {
        const DrawRange range = draws_of(problem_activities_[i]);
        for (std::int32_t d = range.first; d < range.last; ++d) {
            const Draw& draw = draws_[at(d)];
            const std::int32_t resource = resources_[at(draw.resource)].index;
            if (resource >= 0) problem_demands_.push_back({static_cast<std::int32_t>(i), resource, draw.units});
        }
    }
}

/// Divides afresh what changed while it was over-subscribed.
void Simulation::settle() {
    collect_problem();
    problem_caps_.assign(problem_activities_.size(), kFullRate);
    const std::vector<std::int64_t>& rates = solver_.levels(problem_capacities_, problem_caps_, problem_demands_);
    for (std::size_t i = 0; i < problem_activities_.size(); ++i) {
        ORRERY_CHECK(rates[i] > 0, "a resource is shared by more than it can divide");
        set_rate(problem_activities_[i], rates[i]);
        activity_index_[at(problem_activities_[i])] = -1;
    }
    for (const std::int32_t resource : problem_resources_) resources_[at(resource)].index = -1;
}

}  // namespace orrery::sim
