// What a job's work draws on.
#include "core/error.h"
#include "sim/engine/simulation.h"

namespace orrery::sim {

namespace {

constexpr auto kComputeUnits = static_cast<std::size_t>(ResourceKind::compute_units);
constexpr auto kMemory = static_cast<std::size_t>(ResourceKind::memory);

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// Whether a member in this seat draws on that kind of resource.
constexpr bool draws(Seat seat, std::size_t kind) {
    switch (static_cast<ResourceKind>(kind)) {
        case ResourceKind::cores:
        case ResourceKind::memory:
            return true;
        case ResourceKind::port_out:
        case ResourceKind::nic_out:
            return !receives(seat);
        case ResourceKind::port_in:
        case ResourceKind::nic_in:
            return !sends(seat);
        case ResourceKind::copy_out:
        case ResourceKind::copy_in:
        case ResourceKind::compute_units:  // which are held
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
    list_local_draws();
    list_device_draws();
    for (std::size_t group = 0; group < groups_.size(); ++group) {
        const Quotient::Group& shape = quotient_.groups[group];
        GroupState& state = groups_[group];
        state.first_operation = static_cast<std::int32_t>(group_draws_.size());
        state.operation_count = static_cast<std::int32_t>(input_.loads.front()[at(shape.placement)].size());
        unsigned listed = 0;  // kinds of resources, one bit each
        for (const auto& loads : input_.loads) {
            for (const OperationLoad& load : loads[at(shape.placement)]) {
                group_draws_.push_back({list_group_draws(shape, load), list_held(shape, load)});
                const unsigned kinds = kinds_of(load);
                if ((kinds & ~listed) != 0) work_.may_draw(group_activity(group), group_draws_.back().draws);
                listed |= kinds;
            }
        }
        draw_list_.clear();
        for (std::int32_t i = shape.first_link; i < shape.first_link + shape.link_count; ++i) {
            draw_list_.push_back({quotient_.links[at(i)].resource, 1});
        }
        work_.may_draw(group_activity(group), draw_list_);
    }
}

void Simulation::list_local_draws() {
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
            work_.may_draw(local_activity(rank, stream), draw_list_);
        }
    }
}

void Simulation::list_device_draws() {
    if (compiled_.device_draw_of.empty() || quotient_.attachments.front()[kComputeUnits].resource < 0) return;
    for (std::int32_t rank = 0; rank < rank_count_; ++rank) {
        const auto& attachments = quotient_.attachments[at(rank)];
        for (const DeviceDraw& draw : compiled_.device_draws) {
            draw_list_.clear();
            const auto add = [&](std::size_t kind, std::int64_t steps) {
                if (steps > 0) draw_list_.push_back({attachments[kind].resource, kUnit / DeviceDraw::kSteps * steps});
            };
            add(kComputeUnits, draw.compute_units);
            add(kMemory, draw.memory);
            device_draws_.push_back(work_.add_draws(draw_list_));
        }
        draw_list_ = {{attachments[kComputeUnits].resource, 1}, {attachments[kMemory].resource, 1}};
        work_.may_draw(local_activity(rank, kComputeCounter), draw_list_);
    }
}

SharedWork::Draws Simulation::draws_of_local(std::int32_t rank, std::int32_t stream) const {
    if (stream != kComputeCounter || device_draws_.empty()) return local_draws_[at(rank * local_streams_ + stream)];
    const std::size_t place = duration_place(ranks_[at(rank)].streams[stream]);
    return device_draws_[at(rank) * compiled_.device_draws.size() + compiled_.device_draw_of[place]];
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
    if (load.links) add_link_draws(group, *load.links);
    return work_.add_draws(draw_list_);
}

void Simulation::add_link_draws(const Quotient::Group& group, const FabricRate& rate) {
    for (std::int32_t i = group.first_link; i < group.first_link + group.link_count; ++i) {
        const Quotient::LinkDraw& link = quotient_.links[at(i)];
        if (link.way != rate.way) continue;
        const double share = link.seconds_per_byte * rate.bytes_per_second;
        constexpr double kMost = 1e8;  // so that the loads of all on the link stay within 63 bits
        ORRERY_CHECK(share * static_cast<double>(link.weight) < kMost, "a link is loaded beyond measure");
        const auto units = static_cast<std::int64_t>(share * static_cast<double>(kUnit));
        if (units > 0) draw_list_.push_back({link.resource, units * link.weight});
    }
}

SharedWork::Draws Simulation::list_held(const Quotient::Group& group, const OperationLoad& load) {
    draw_list_.clear();
    for (std::int32_t i = 0; i < group.member_count && load.held_compute_units > 0; ++i) {
        const Quotient::RankOfGroup& member = quotient_.members[at(group.first_member + i)];
        const Quotient::Attachment& device = quotient_.attachments[at(member.rank)][kComputeUnits];
        if (device.resource >= 0) draw_list_.push_back({device.resource, load.held_compute_units});
    }
    return work_.add_draws(draw_list_);
}

}  // namespace orrery::sim
