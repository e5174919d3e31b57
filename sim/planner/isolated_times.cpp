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

double ComputeDraws::beside_s(double held) const {
    double sum = 0;
    for (std::size_t bin = 0; bin < kBins; ++bin) sum += std::max(0.0, seconds_[bin]) / speed_of(bin, held);
    return sum;
}

double ComputeDraws::least_delay_s(const CommunicationTimes& communication, double idle_s) const {
    const double held = communication.held;
    double left = communication.seconds - idle_s, delay = 0;
    for (std::size_t bin = 0; bin < kBins && left > 0; ++bin) {
        const double speed = speed_of(bin, held);
        if (speed <= 0) return delay + left;
        const double beside = std::min(left, std::max(0.0, seconds_[bin]) / speed);
        delay += (1 - speed) * beside;
        left -= beside;
    }
    return delay;
}

CommunicationTimes communication_times(const Operation& operation, GroupAxis axis, const GroupPlacement& group,
                                       const topologies::ClusterSpec& cluster, const program::Rates& rates) {
    if (group.ranks < 2) return {};
    const program::WorkCell cell = program::cell_of(operation.kind, axis, group.nodes > 1);
    const OperationPrice price = price_of(operation, axis, group, cluster);
    const double factor = program::factor_of(cell, rates);
    CommunicationTimes times{.seconds = price.cost.seconds * factor + program::wait_s(cell, rates)};
    if (price.cost.nic_bytes > 0) {
        times.nic_s = static_cast<double>(price.cost.nic_bytes) / cluster.nic.reached_bytes_per_s() * factor;
    }
    const topologies::DeviceProfile& device = cluster.device;
    if (device.compute_units > 0 && device.collective_kernels) {
        times.held = price.demand.compute_units / static_cast<double>(device.compute_units);
        if (const auto hidden = program::hidden_cell(cell)) times.held += program::factor_of(*hidden, rates);
        times.held = std::min(1.0, times.held);
    }
    return times;
}

IsolatedTimes::IsolatedTimes(const program::Program& program, const topologies::Cluster& cluster,
                             const RooflineCost& cost, bool hides_tokens)
    : program_(program),
      cluster_(cluster),
      cost_(cost),
      hides_tokens_(hides_tokens),
      instruction_times_(program.bodies.size()),
      draws_(program.bodies.size()) {
    // With pp as the slowest axis, stages are contiguous ranges of ranks. If each is a whole number of nodes, their
    // groups have the same placement.
    const program::Parallelism& p = program.plan->parallelism;
    const std::int64_t stage = p.tp * p.cp * p.dp, node = cluster.spec().devices_per_node;
    stages_lie_alike_ = p.placement.empty() && p.order.back() == program::MeshAxis::pp && stage % node == 0;
}

const program::SegmentList& IsolatedTimes::segments(ClassIndex rank_class, SegmentListId list) const {
    return program_.classes[rank_class].segment_lists[list];
}

std::vector<std::int64_t> IsolatedTimes::devices_of(ClassIndex rank_class, GroupAxis axis) const {
    std::vector<std::int64_t> devices = program_.group_of(axis, member_of(program_, rank_class));
    const std::vector<std::int64_t>& placed = program_.plan->parallelism.placement;
    for (std::int64_t& device : devices) {
        device = placed.empty() ? device % cluster_.spec().device_count() : placed[static_cast<std::size_t>(device)];
    }
    return devices;
}

const GroupPlacement& IsolatedTimes::placement(ClassIndex rank_class, GroupAxis axis) {
    const auto [entry, fresh] = placements_.try_emplace({rank_class, axis});
    if (fresh) {
        const std::vector<std::int64_t> devices = devices_of(rank_class, axis);
        if (devices.size() > 1) entry->second = place_group(cluster_, devices);
    }
    return entry->second;
}

CommunicationTimes IsolatedTimes::least_all_to_all(ClassIndex rank_class, GroupAxis axis, const Operation& operation) {
    const auto at = [&](const GroupPlacement& group) {
        return communication_times(operation, axis, group, cluster_.spec(), program_.plan->rates);
    };
    CommunicationTimes least = at(placement(rank_class, axis));
    const std::vector<std::int64_t> devices = devices_of(rank_class, axis);
    const std::int64_t node = cluster_.spec().devices_per_node, all = cluster_.spec().device_count();
    if (devices.size() < 2 || !program_.plan->parallelism.placement.empty()) return least;
    const std::int64_t extent = (devices[1] - devices[0]) * std::ssize(devices);
    if (extent <= 0 || extent > all || extent % node == 0 || node % extent == 0) return least;
    for (std::int64_t shift = 1; shift < node; ++shift) {
        std::vector<std::int64_t> shifted = devices;
        for (std::int64_t& device : shifted) device = (device + shift) % all;
        const CommunicationTimes times = at(place_group(cluster_, shifted));
        least = {.seconds = std::min(least.seconds, times.seconds),
                 .nic_s = std::min(least.nic_s, times.nic_s),
                 .held = std::min(least.held, times.held)};
    }
    return least;
}

const CommunicationTimes& IsolatedTimes::times_of(ClassIndex rank_class, const Communication& communication) {
    if (stages_lie_alike_ && !is_pair(communication.axis) && communication.axis != GroupAxis::embedding &&
        communication.axis != GroupAxis::pipeline && communication.axis != GroupAxis::model) {
        rank_class = 0;
    }
    const Operation operation = operation_of(communication);
    const auto [entry, fresh] = communications_.try_emplace({rank_class, communication.axis, operation});
    if (!fresh) return entry->second;
    entry->second = operation.kind == CommKind::all_to_all
                        ? least_all_to_all(rank_class, communication.axis, operation)
                        : communication_times(operation, communication.axis, placement(rank_class, communication.axis),
                                              cluster_.spec(), program_.plan->rates);
    return entry->second;
}

const IsolatedTimes::InstructionTimes& IsolatedTimes::operators_of(BodyId id) {
    InstructionTimes& times = instruction_times_[id];
    const Body& body = program_.bodies[id];
    if (!times.empty() || body.instructions.empty()) return times;
    for (const Instruction& instruction : body.instructions) {
        InstructionTime& time = times.emplace_back();
        // Copies and host work run beside the device's computation; a lower bound leaves them out.
        if (instruction.is_communication || instruction.stream != Stream::compute) continue;
        double on_device = 0, arithmetic = 0;
        for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
            const RooflineCost::OperatorTime one = cost_.operator_time(body.operators[instruction.first_operator + i]);
            time.seconds += one.seconds;
            on_device += one.on_device;
            arithmetic += std::min(one.on_device, one.arithmetic);
        }
        if (on_device <= 0) continue;
        time.share = arithmetic / on_device;
        draws_[id].add(time.share, time.seconds);
    }
    return times;
}

double IsolatedTimes::delay_s(const InstructionTime& computation, double start) const {
    double delay = 0;
    for (const std::vector<Beside>& stream : beside_) {
        double sum = 0;
        for (auto one = stream.rbegin(); one != stream.rend() && one->end > start; ++one) {
            const double seconds = std::min(one->end, start + computation.seconds) - std::max(one->start, start);
            sum += std::max(0.0, seconds) * (1 - ComputeDraws::speed(computation.share, one->held));
        }
        delay = std::max(delay, sum);
    }
    return delay;
}

void IsolatedTimes::play(ClassIndex rank_class, BodyId id, StreamEnds& ends) {
    const Body& body = program_.bodies[id];
    for (std::vector<Beside>& stream : beside_) stream.clear();
    const InstructionTimes& computation = operators_of(id);
    IndexedVector<InstructionIndex, double> end(body.instructions.size());
    for (const InstructionIndex i : body.instructions.indices()) {
        const Instruction& instruction = body.instructions[i];
        double& stream = ends[instruction.stream];
        double start = stream;
        for (const InstructionIndex before : instruction.after) start = std::max(start, end[before]);
        const bool is_free =
            program::is_pipeline(instruction.stream) || (hides_tokens_ && instruction.stream == Stream::ep);
        double duration = computation[i].seconds;
        if (instruction.is_communication && !is_free) {
            const CommunicationTimes& times = times_of(rank_class, instruction.communication);
            duration = times.seconds;
            if (times.held > 0) beside_[instruction.stream].push_back({start, start + duration, times.held});
        }
        if (instruction.stream == Stream::compute) {
            if (start == kBefore) start = 0;
            duration += delay_s(computation[i], start);
        }
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

CommunicationTimes IsolatedTimes::on_stream(ClassIndex rank_class, BodyId body, Stream stream) {
    CommunicationTimes sum;
    for (const Instruction& instruction : program_.bodies[body].instructions) {
        if (!instruction.is_communication || instruction.stream != stream) continue;
        sum.add(times_of(rank_class, instruction.communication));
    }
    return sum;
}

double IsolatedTimes::computation_s(ClassIndex rank_class, SegmentListId list) {
    double sum = 0;
    for (const Segment& segment : segments(rank_class, list)) sum += body_s(rank_class, segment.body);
    return sum;
}

void IsolatedTimes::play_list(ClassIndex rank_class, SegmentListId list, StreamEnds& ends) {
    std::vector<StreamEnds> after;  // each segment
    for (const Segment& segment : segments(rank_class, list)) {
        double awaited = 0;
        for (std::int32_t w = 0; w < segment.wait_count; ++w) {
            const program::SegmentWait& wait =
                program_.classes[rank_class].segment_waits[static_cast<std::size_t>(segment.first_wait + w)];
            awaited = std::max(awaited, after[wait.segment.position()][wait.stream]);
        }
        for (const Instruction& instruction : program_.bodies[segment.body].instructions) {
            ends[instruction.stream] = std::max(ends[instruction.stream], awaited);
        }
        play(rank_class, segment.body, ends);
        after.push_back(ends);
    }
}

double IsolatedTimes::lists_s(ClassIndex rank_class, const std::vector<SegmentListId>& lists) {
    StreamEnds ends{};
    double gradients = 0;
    for (const SegmentListId list : lists) {
        if (list == lists.back()) ends.fill(gradients);
        play_list(rank_class, list, ends);
        for (const Stream stream : {Stream::compute, Stream::dp, Stream::dp_replicate}) {
            gradients = std::max(gradients, ends[stream]);
        }
    }
    // Parameter gathers of the last list on other streams may overlap the next step.
    return ends[Stream::compute];
}

program::PerStream<CommunicationTimes> IsolatedTimes::communication(ClassIndex rank_class, SegmentListId list) {
    program::PerStream<CommunicationTimes> sums;
    for (const Segment& segment : segments(rank_class, list)) {
        for (const Instruction& instruction : program_.bodies[segment.body].instructions) {
            if (!instruction.is_communication || is_pair(instruction.communication.axis)) continue;
            sums[instruction.stream].add(times_of(rank_class, instruction.communication));
        }
    }
    return sums;
}

const ComputeDraws& IsolatedTimes::draws(BodyId body) {
    (void)operators_of(body);
    return draws_[body];
}

ComputeDraws IsolatedTimes::draws(ClassIndex rank_class, SegmentListId list) {
    ComputeDraws sum;
    for (const Segment& segment : segments(rank_class, list)) sum.add(draws(segment.body));
    return sum;
}

double IsolatedTimes::transfer_s(ClassIndex rank_class, SegmentListId list) {
    for (const Segment& segment : segments(rank_class, list)) {
        for (const Instruction& instruction : program_.bodies[segment.body].instructions) {
            if (instruction.is_communication && instruction.communication.kind == CommKind::send) {
                return times_of(rank_class, instruction.communication).seconds;
            }
        }
    }
    return 0;
}

}  // namespace orrery::sim
