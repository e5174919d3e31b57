#include "sim/planner/isolated_times.h"

#include <algorithm>

#include "core/error.h"
#include "sim/program/work_rates.h"

namespace orrery::sim {

using program::Body;
using program::BodyId;
using program::ClassIndex;
using program::CommKind;
using program::Communication;
using program::GroupAxis;
using program::Instruction;
using program::InstructionIndex;
using program::Segment;
using program::SegmentListId;
using program::Stream;

namespace {

/// The member of the rank class whose coordinates on the other axes are 0.
std::int64_t member_of(const program::Program& program, ClassIndex rank_class) {
    return program.mesh->rank_at({.pp = program.classes[rank_class].pp_index});
}

}  // namespace

IsolatedTimes::IsolatedTimes(const program::Program& program, const topologies::Cluster& cluster,
                             const RooflineCost& cost)
    : program_(program), cluster_(cluster), cost_(cost), instruction_seconds_(program.bodies.size()) {
    // With pp as the slowest axis, stages are contiguous ranges of ranks. If each is a whole number of nodes, their
    // groups have the same placement.
    const program::Parallelism& p = program.plan->parallelism;
    const std::int64_t stage = p.tp * p.cp * p.dp, node = cluster.spec().devices_per_node;
    stages_lie_alike_ = p.placement.empty() && p.order.back() == program::MeshAxis::pp && stage % node == 0;
}

const program::SegmentList& IsolatedTimes::segments(ClassIndex rank_class, SegmentListId list) const {
    return program_.classes[rank_class].segment_lists[list];
}

const GroupPlacement& IsolatedTimes::placement(ClassIndex rank_class, GroupAxis axis) {
    const auto [entry, fresh] = placements_.try_emplace({rank_class, axis});
    if (fresh) {
        std::vector<std::int64_t> devices = program_.group_of(axis, member_of(program_, rank_class));
        const std::vector<std::int64_t>& placed = program_.plan->parallelism.placement;
        for (std::int64_t& device : devices) {
            device =
                placed.empty() ? device % cluster_.spec().device_count() : placed[static_cast<std::size_t>(device)];
        }
        if (devices.size() > 1) entry->second = place_group(cluster_, devices);
    }
    return entry->second;
}

double IsolatedTimes::communication_s(ClassIndex rank_class, const Communication& communication) {
    if (stages_lie_alike_ && !is_pair(communication.axis) && communication.axis != GroupAxis::embedding &&
        communication.axis != GroupAxis::pipeline && communication.axis != GroupAxis::model) {
        rank_class = 0;
    }
    const auto [entry, fresh] =
        communications_.try_emplace({rank_class, communication.axis, communication.kind, communication.bytes()}, 0.0);
    if (fresh) {
        const GroupPlacement& group = placement(rank_class, communication.axis);
        if (group.ranks > 1) {
            const program::WorkCell cell = program::cell_of(communication.kind, communication.axis, group.nodes > 1);
            const program::Rates& rates = program_.plan->rates;
            entry->second = collective_cost(communication.kind, communication.bytes(), group, cluster_.spec()).seconds *
                                program::factor_of(cell, rates) +
                            program::wait_s(cell, rates);
        }
    }
    return entry->second;
}

const IsolatedTimes::InstructionTimes& IsolatedTimes::operators_of(BodyId id) {
    InstructionTimes& seconds = instruction_seconds_[id];
    const Body& body = program_.bodies[id];
    if (!seconds.empty() || body.instructions.empty()) return seconds;
    for (const Instruction& instruction : body.instructions) {
        double& sum = seconds.emplace_back(0);
        // Copies and host work run beside the device's computation; a lower bound leaves them out.
        if (instruction.is_communication || instruction.stream != Stream::compute) continue;
        for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
            sum += cost_.operator_seconds(body.operators[instruction.first_operator + i]);
        }
    }
    return seconds;
}

void IsolatedTimes::play(ClassIndex rank_class, BodyId id, StreamEnds& ends) {
    const Body& body = program_.bodies[id];
    const InstructionTimes& computation = operators_of(id);
    InstructionTimes end(body.instructions.size());
    for (const InstructionIndex i : body.instructions.indices()) {
        const Instruction& instruction = body.instructions[i];
        double& stream = ends[instruction.stream];
        double start = stream;
        for (const InstructionIndex before : instruction.after) start = std::max(start, end[before]);
        const bool transfers = program::is_pipeline(instruction.stream);
        double duration = computation[i];
        if (instruction.is_communication && !transfers) {
            duration = communication_s(rank_class, instruction.communication);
        }
        if (instruction.stream == Stream::compute && start == kBefore) start = 0;
        stream = end[i] = start + duration;
    }
}

double IsolatedTimes::body_s(ClassIndex rank_class, BodyId body) {
    const auto [entry, fresh] = bodies_.try_emplace({stages_lie_alike_ ? ClassIndex(0) : rank_class, body}, 0.0);
    if (fresh) {
        StreamEnds ends;
        ends.fill(kBefore);
        play(rank_class, body, ends);
        entry->second = std::max(0.0, ends[Stream::compute]);
    }
    return entry->second;
}

double IsolatedTimes::computation_s(ClassIndex rank_class, SegmentListId list) {
    double sum = 0;
    for (const Segment& segment : segments(rank_class, list)) sum += body_s(rank_class, segment.body);
    return sum;
}

double IsolatedTimes::lists_s(ClassIndex rank_class, const std::vector<SegmentListId>& lists) {
    StreamEnds ends{};
    double gradients = 0;
    for (const SegmentListId list : lists) {
        if (list == lists.back()) ends.fill(gradients);
        for (const Segment& segment : segments(rank_class, list)) play(rank_class, segment.body, ends);
        for (const Stream stream : {Stream::compute, Stream::dp, Stream::dp_replicate}) {
            gradients = std::max(gradients, ends[stream]);
        }
    }
    // Parameter gathers of the last list on other streams may overlap the next step.
    return ends[Stream::compute];
}

double IsolatedTimes::stream_s(ClassIndex rank_class, SegmentListId list, Stream stream) {
    double sum = 0;
    for (const Segment& segment : segments(rank_class, list)) {
        const Body& body = program_.bodies[segment.body];
        if (body.stream_counts[stream] == 0) continue;
        for (const Instruction& instruction : body.instructions) {
            if (instruction.is_communication && instruction.stream == stream) {
                sum += communication_s(rank_class, instruction.communication);
            }
        }
    }
    return sum;
}

double IsolatedTimes::transfer_s(ClassIndex rank_class, SegmentListId list) {
    for (const Segment& segment : segments(rank_class, list)) {
        for (const Instruction& instruction : program_.bodies[segment.body].instructions) {
            if (instruction.is_communication && instruction.communication.kind == CommKind::send) {
                return communication_s(rank_class, instruction.communication);
            }
        }
    }
    return 0;
}

}  // namespace orrery::sim
