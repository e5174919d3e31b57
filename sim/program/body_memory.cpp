// The memory that a body uses: the layout of its transient arena, and the lifetime of each slot.
#include <algorithm>
#include <utility>

#include "sim/program/body_builder.h"

namespace orrery::program {
namespace {

using models::kNoSlot;
using models::Operator;
using models::SlotIndex;

/// One use of a slot by an operator or a communication.
struct Touch {
    std::int32_t position = 0;  // in issue order, over operators and communications
    InstructionIndex instruction = 0;
};

struct Lifetimes {
    IndexedVector<SlotIndex, std::vector<Touch>> touches;
    std::vector<InstructionIndex> instruction_at;                    // by position
    IndexedVector<InstructionIndex, PerStream<std::int32_t>> clock;  // completed on each stream before the instruction
    IndexedVector<InstructionIndex, std::int32_t> sequence;          // index of the instruction on its stream

    /// Whether use a has certainly completed when use b begins.
    [[nodiscard]] bool before(const Body& body, Touch a, Touch b) const {
        const Stream sa = body.instructions[a.instruction].stream;
        const Stream sb = body.instructions[b.instruction].stream;
        if (sa == sb) return a.position < b.position;
        return clock[b.instruction][sa] > sequence[a.instruction];
    }
};

Lifetimes find_lifetimes(const Body& body) {
    Lifetimes result;
    result.touches.resize(body.slots.size());
    PerStream<std::int32_t> next{};
    PerStream<InstructionIndex> last{};
    last.fill(-1);
    for (const InstructionIndex i : body.instructions.indices()) {
        const Instruction& instruction = body.instructions[i];
        const Stream stream = instruction.stream;
        PerStream<std::int32_t> clock{};
        const auto join = [&](InstructionIndex earlier) {
            const PerStream<std::int32_t>& known = result.clock[earlier];
            for (const Stream s : kStreams) clock[s] = std::max(clock[s], known[s]);
            std::int32_t& own = clock[body.instructions[earlier].stream];
            own = std::max(own, result.sequence[earlier] + 1);
        };
        if (last[stream] >= 0) join(last[stream]);
        for (InstructionIndex earlier : instruction.after) join(earlier);
        result.clock.push_back(clock);
        result.sequence.push_back(next[stream]++);
        last[stream] = i;
        const auto touch = [&](SlotIndex slot) {
            if (slot == kNoSlot) return;
            auto& list = result.touches[slot];
            const auto position = static_cast<std::int32_t>(result.instruction_at.size());
            if (list.empty() || list.back().position != position) list.push_back({position, i});
        };
        if (instruction.is_communication) {
            for (const SlotIndex slot : instruction.communication.slots_read()) touch(slot);
            touch(instruction.communication.out);
            result.instruction_at.push_back(i);
        }
        for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
            const Operator& op = body.operators[instruction.first_operator + o];
            for (SlotIndex slot : op.in) touch(slot);
            for (SlotIndex slot : op.out) touch(slot);
            touch(op.scratch);
            result.instruction_at.push_back(i);
        }
    }
    return result;
}

/// First fit in order of first use. Two transients may share memory when every use of the earlier one happens before
/// the first use of the later one.
void lay_out_transients(Body& body, const Lifetimes& lifetimes) {
    std::vector<SlotIndex> order;
    for (const SlotIndex slot : body.slots.indices()) {
        if (body.slots[slot].space == Space::transient && !lifetimes.touches[slot].empty()) order.push_back(slot);
    }
    std::sort(order.begin(), order.end(), [&](SlotIndex a, SlotIndex b) {
        const auto pa = lifetimes.touches[a].front().position;
        const auto pb = lifetimes.touches[b].front().position;
        return pa != pb ? pa < pb : a < b;
    });
    std::vector<SlotIndex> placed;
    for (const SlotIndex slot : order) {
        const Touch first = lifetimes.touches[slot].front();
        std::vector<std::pair<std::int64_t, std::int64_t>> taken;
        for (const SlotIndex other : placed) {
            const auto& uses = lifetimes.touches[other];
            const bool has_ended =
                std::all_of(uses.begin(), uses.end(), [&](Touch use) { return lifetimes.before(body, use, first); });
            if (!has_ended)
                taken.emplace_back(body.slots[other].offset, body.slots[other].offset + body.slots[other].bytes);
        }
        std::sort(taken.begin(), taken.end());
        std::int64_t offset = 0;
        for (const auto& [begin, end] : taken) {
            if (offset + body.slots[slot].bytes <= begin) break;
            offset = std::max(offset, align(end));
        }
        body.slots[slot].offset = offset;
        body.transient_bytes = std::max(body.transient_bytes, align(offset + body.slots[slot].bytes));
        placed.push_back(slot);
    }
}

/// The position after which the slot's memory is free: its last use or, if a stream other than compute uses it, the
/// last position before an instruction that has waited for all its uses.
std::int32_t free_position(const Body& body, const Lifetimes& lifetimes, SlotIndex slot) {
    const auto& uses = lifetimes.touches[slot];
    const std::int32_t last = uses.back().position;
    const auto end = static_cast<std::int32_t>(lifetimes.instruction_at.size());
    const bool only_compute = std::all_of(uses.begin(), uses.end(), [&](Touch use) {
        return body.instructions[use.instruction].stream == Stream::compute;
    });
    if (only_compute) return last;
    for (std::int32_t position = last + 1; position < end; ++position) {
        const Touch here{position, lifetimes.instruction_at[static_cast<std::size_t>(position)]};
        if (std::all_of(uses.begin(), uses.end(), [&](Touch use) { return lifetimes.before(body, use, here); })) {
            return position - 1;
        }
    }
    return end - 1;
}

/// Whether the slot lies in the micro-batch's frame. The offload window is a separate arena.
bool lies_in_frame(const Slot& slot, const Segment& segment) {
    switch (slot.space) {
        case Space::activation:
            return !segment.in_offload_window;
        case Space::hidden_in:
            return segment.hidden_in_offset >= 0;
        case Space::hidden_out:
            return segment.hidden_out_offset >= 0;
        case Space::hidden_gradient:
            return segment.gradient_in_offset >= 0;
        case Space::hidden_gradient_out:
            return segment.gradient_out_offset >= 0;
        case Space::parameter:
        case Space::gradient:
        case Space::parameter_shard:
        case Space::gradient_shard:
        case Space::reduction:
        case Space::weight_copy:
        case Space::tied_parameter:
        case Space::tied_gradient:
        case Space::transient:
        case Space::scalars:
        case Space::optimizer:
        case Space::host:
            break;
    }
    return false;
}
/// Whether this pass first writes the slot. A value from the adjacent layer counts where that layer writes it.
bool born_here(const Slot& slot, Phase phase) {
    if (slot.space == Space::hidden_in || slot.space == Space::hidden_gradient) return false;
    if (slot.space == Space::hidden_out) return phase == Phase::forward;
    const bool is_backward = phase == Phase::backward;
    if (slot.space == Space::hidden_gradient_out) return is_backward || phase == Phase::backward_input;
    return slot.born == phase || (is_backward && slot.born != Phase::forward);
}
/// Whether this pass is the last to use the slot. A value for the adjacent layer dies where that layer uses it.
bool dies_here(const Slot& slot, Phase phase) {
    if (slot.space == Space::hidden_out || slot.space == Space::hidden_gradient_out) return false;
    return slot.dies == phase || (phase == Phase::backward && slot.dies != Phase::forward);
}

}  // namespace

void count_streams(Body& body) {
    body.stream_counts = {};
    for (const Instruction& instruction : body.instructions) {
        ++body.stream_counts[instruction.stream];
    }
}

void complete(Body& body) {
    count_streams(body);
    const Lifetimes lifetimes = find_lifetimes(body);
    lay_out_transients(body, lifetimes);
    body.transient_live_peak = walk_body(body, Segment{}).transient_peak;
}

SlotStays walk_slots(const Body& body, const Segment& segment) {
    const Lifetimes lifetimes = find_lifetimes(body);
    SlotStays result{.positions = static_cast<std::int32_t>(lifetimes.instruction_at.size())};
    for (const SlotIndex index : body.slots.indices()) {
        const auto& uses = lifetimes.touches[index];
        if (uses.empty()) continue;
        const Slot& slot = body.slots[index];
        if (slot.own_block) continue;  // lies in another slot
        const bool transient = slot.space == Space::transient;
        if (!transient && !lies_in_frame(slot, segment)) continue;
        SlotStay stay{.slot = index, .transient = transient};
        if (transient || born_here(slot, body.phase)) stay.born = uses.front().position;
        if (transient || dies_here(slot, body.phase)) stay.freed = free_position(body, lifetimes, index);
        if (stay.born >= 0 || stay.freed >= 0) result.stays.push_back(stay);
    }
    return result;
}

BodyMemory walk_body(const Body& body, const Segment& segment) {
    const SlotStays slots = walk_slots(body, segment);
    const auto positions = static_cast<std::size_t>(slots.positions);
    std::vector<std::int64_t> activation_before(positions, 0), activation_after(positions, 0);
    std::vector<std::int64_t> transient_before(positions, 0), transient_after(positions, 0);
    for (const SlotStay& stay : slots.stays) {
        const std::int64_t bytes = body.slots[stay.slot].bytes;
        auto& before = stay.transient ? transient_before : activation_before;
        auto& after = stay.transient ? transient_after : activation_after;
        if (stay.born >= 0) before[static_cast<std::size_t>(stay.born)] += bytes;
        if (stay.freed >= 0) after[static_cast<std::size_t>(stay.freed)] += bytes;
    }
    BodyMemory memory;
    std::int64_t activations = 0, transients = 0;
    for (std::size_t position = 0; position < positions; ++position) {
        activations += activation_before[position];
        transients += transient_before[position];
        memory.activation_peak = std::max(memory.activation_peak, activations);
        memory.transient_peak = std::max(memory.transient_peak, transients);
        memory.joint_peak = std::max(memory.joint_peak, activations + transients);
        activations -= activation_after[position];
        transients -= transient_after[position];
    }
    memory.activation_net = activations;
    return memory;
}

}  // namespace orrery::program
