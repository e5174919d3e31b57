// What a job's work draws on.
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

unsigned kinds_of(const OperationLoad& load) {
    unsigned kinds = 0;
    for (std::size_t kind = 0; kind < kResourceKinds; ++kind) kinds |= (load.units[kind] != 0 ? 1U : 0U) << kind;
    return kinds;
}

}  // namespace

/// Quotient::resources are numbered as they are added.
void Simulation::list_draws() {
    for (std::int32_t stream = 0; stream < local_streams_; ++stream) {
        drawn_kind_.push_back(kind_of(compiled_.counters.streams[at(stream)], compiled_.host_runs_compute));
    }
    for (std::int32_t rank = 0; rank < rank_count_; ++rank) {
        for (std::int32_t stream = 0; stream < local_streams_; ++stream) {
            const auto kind = static_cast<std::size_t>(drawn_kind_[at(stream)]);
            const Quotient::Attachment& own = quotient_.attachments[at(rank)][kind];
            draw_list_.clear();
            if (own.resource >= 0) draw_list_.push_back({own.resource, kUnit * own.weight});
            local_draws_.push_back(work_.add_draws(draw_list_));
            work_.may_draw(local_activity(rank, stream), local_draws_.back());
        }
    }
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        groups_[group].first_operation = static_cast<std::int32_t>(group_draws_.size());
        unsigned listed = 0;  // kinds of resources, one bit each
        for (const OperationLoad& load : input_.loads[at(quotient_.groups[group].placement)]) {
            group_draws_.push_back(list_group_draws(quotient_.groups[group], load));
            const unsigned kinds = kinds_of(load);
            if ((kinds & ~listed) != 0) work_.may_draw(group_activity(group), group_draws_.back());
            listed |= kinds;
        }
    }
}

SharedWork::Draws Simulation::list_group_draws(const Quotient::Group& group, const OperationLoad& load) {
    draw_list_.clear();
    for (std::int32_t i = 0; i < group.member_count; ++i) {
        const Quotient::RankOfGroup& member = quotient_.members[at(group.first_member + i)];
        for (std::size_t kind = 0; kind < kResourceKinds; ++kind) {
            const Quotient::Attachment& attachment = quotient_.attachments[at(member.rank)][kind];
            if (attachment.resource < 0 || load.units[kind] == 0 || !draws(member.seat, kind)) continue;
            draw_list_.push_back({attachment.resource, load.units[kind] * attachment.weight});
        }
    }
    return work_.add_draws(draw_list_);
}

}  // namespace orrery::sim
