// The draws of a job's work on resources.
#include "core/error.h"
#include "sim/engine/simulation.h"

namespace orrery::sim {

namespace {

/// Whether a member at this endpoint draws on that kind of resource, if the operation does.
constexpr bool draws(Endpoint endpoint, ResourceKind kind) {
    using enum ResourceKind;
    if (kind == port_out || kind == nic_out) return !receives(endpoint);
    if (kind == port_in || kind == nic_in) return !sends(endpoint);
    return true;
}

/// The resource on which a rank's local instructions draw. `cores` is unlimited if the host does not run the
/// computation: the cluster then has no such resource.
constexpr ResourceKind kind_of(program::Stream local_stream, bool host_runs_compute) {
    if (host_runs_compute) return ResourceKind::cores;
    if (local_stream == program::Stream::copy_out) return ResourceKind::copy_out;
    if (local_stream == program::Stream::copy_in) return ResourceKind::copy_in;
    return ResourceKind::cores;
}

unsigned kinds_of(const OperationLoad& load) {
    unsigned kinds = 0;
    for (const ResourceKind kind : kResourceKinds) {
        kinds |= (load.units[kind] != 0 ? 1U : 0U) << static_cast<unsigned>(kind);
    }
    return kinds;
}

}  // namespace

/// The quotient's resource indices are those of `work_`.
void Simulation::list_draws() {
    list_local_draws();
    list_device_draws();
    for (const SimulatedGroup group : groups_.indices()) {
        const Quotient::Group& shape = quotient_.groups[group];
        GroupState& state = groups_[group];
        state.first_draws = group_draws_.next_index();
        state.operation_count = input_.loads.front()[shape.placement].next_index().value();
        unsigned listed = 0;  // kinds of resources, one bit each
        for (const auto& loads : input_.loads) {
            for (const OperationLoad& load : loads[shape.placement]) {
                group_draws_.push_back({list_group_draws(shape, load), list_held(shape, load), moves_of(shape, load)});
                const unsigned kinds = kinds_of(load);
                if ((kinds & ~listed) != 0) work_.may_draw(group_activity(group), group_draws_.back().draws);
                listed |= kinds;
            }
        }
        draw_list_.clear();
        for (const Quotient::LinkDraw& link : quotient_.links_of(shape)) draw_list_.push_back({link.resource, 1});
        work_.may_draw(group_activity(group), draw_list_);
    }
}

void Simulation::list_local_draws() {
    const IndexRange<CounterIndex> local = compiled_.counters.local();
    for (const CounterIndex stream : local) {
        drawn_kind_.push_back(kind_of(compiled_.counters.streams[stream], compiled_.host_runs_compute));
    }
    for (const SimulatedRank rank : ranks_.indices()) {
        for (const CounterIndex stream : local) {
            const Quotient::Attachment& own = quotient_.attachments[rank][drawn_kind_[stream]];
            draw_list_.clear();
            if (own.resource >= 0) draw_list_.push_back({own.resource, kUnit * own.weight});
            local_draws_.push_back(work_.add_draws(draw_list_));
            work_.may_draw(local_activity(rank, stream), draw_list_);
        }
    }
}

void Simulation::list_device_draws() {
    if (compiled_.device_draw_of.empty()) return;
    if (quotient_.attachments.front()[ResourceKind::compute_units].resource < 0) return;
    for (const SimulatedRank rank : ranks_.indices()) {
        const std::int32_t compute_units = quotient_.attachments[rank][ResourceKind::compute_units].resource;
        const std::int32_t memory = quotient_.attachments[rank][ResourceKind::memory].resource;
        for (const DeviceDraw& draw : compiled_.device_draws) {
            draw_list_.clear();
            const auto add = [&](std::int32_t resource, std::int64_t steps) {
                if (steps > 0) draw_list_.push_back({resource, kUnit / DeviceDraw::kSteps * steps});
            };
            add(compute_units, draw.compute_units);
            add(memory, draw.memory);
            device_draws_.push_back(work_.add_draws(draw_list_));
        }
        draw_list_ = {{compute_units, 1}, {memory, 1}};
        work_.may_draw(local_activity(rank, kComputeCounter), draw_list_);
    }
}

SharedWork::Draws Simulation::draws_of_local(SimulatedRank rank, CounterIndex stream) const {
    if (stream != kComputeCounter || device_draws_.empty()) {
        return local_draws_[static_cast<std::size_t>(local_activity(rank, stream) - first_activity_)];
    }
    const DeviceDrawIndex draw = compiled_.device_draw_of[duration_place(ranks_[rank].streams[stream])];
    return device_draws_[rank.position() * compiled_.device_draws.size() + draw.position()];
}

SharedWork::Draws Simulation::list_group_draws(const Quotient::Group& group, const OperationLoad& load) {
    draw_list_.clear();
    for (const Quotient::RankOfGroup& member : quotient_.members_of(group)) {
        for (const ResourceKind kind : kResourceKinds) {
            const Quotient::Attachment& attachment = quotient_.attachments[member.rank][kind];
            if (attachment.resource < 0 || load.units[kind] == 0 || !draws(member.endpoint, kind)) continue;
            draw_list_.push_back({attachment.resource, load.units[kind] * attachment.weight});
        }
    }
    if (load.links) add_link_draws(group, *load.links);
    return work_.add_draws(draw_list_);
}

void Simulation::add_link_draws(const Quotient::Group& group, const FabricRate& rate) {
    for (const Quotient::LinkDraw& link : quotient_.links_of(group)) {
        if (link.way != rate.way) continue;
        const double share = link.seconds_per_byte * rate.bytes_per_second;
        constexpr double kMost = 1e8;  // so that the sum of all loads on the link stays within 63 bits
        ORRERY_CHECK(share * static_cast<double>(link.weight) < kMost,
                     "the load on a link is too high to be represented");
        const auto units = static_cast<std::int64_t>(share * static_cast<double>(kUnit));
        if (units > 0) draw_list_.push_back({link.resource, units * link.weight});
    }
}

/// Those of all draws that list_group_draws and list_held list, but for links of the fabric.
std::vector<SharedWork::Move> Simulation::moves_of(const Quotient::Group& group, const OperationLoad& load) const {
    std::vector<SharedWork::Move> moves;
    for (const OperationLoad::UnitTerm& term : load.unit_terms) {
        for (const Quotient::RankOfGroup& member : quotient_.members_of(group)) {
            for (const ResourceKind kind : kResourceKinds) {
                const Quotient::Attachment& attachment = quotient_.attachments[member.rank][kind];
                const bool is_drawn = load.units[kind] != 0 && draws(member.endpoint, kind);
                const double held_units = kind == ResourceKind::compute_units ? term.held_units : 0;
                const double drawn_units = is_drawn ? term.units[kind] * static_cast<double>(attachment.weight) : 0;
                if (attachment.resource < 0 || (held_units == 0 && drawn_units == 0)) continue;
                moves.push_back({attachment.resource, term.cell.value(), drawn_units, held_units});
            }
        }
    }
    return moves;
}

SharedWork::Draws Simulation::list_held(const Quotient::Group& group, const OperationLoad& load) {
    draw_list_.clear();
    if (load.held_compute_units > 0) {
        for (const Quotient::RankOfGroup& member : quotient_.members_of(group)) {
            const std::int32_t device = quotient_.attachments[member.rank][ResourceKind::compute_units].resource;
            if (device >= 0) draw_list_.push_back({device, load.held_compute_units});
        }
    }
    return work_.add_draws(draw_list_);
}

}  // namespace orrery::sim
