// The memory that a body uses: the layout of its transient arena, and the lifetime of each slot.
#include <algorithm>
#include <boost/container/small_vector.hpp>
#include <utility>

#include "sim/program/access_order.h"
#include "sim/program/body_builder.h"
#include "sim/program/memory_map.h"

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
    InstructionOrder order;
    IndexedVector<SlotIndex, boost::container::small_vector<Touch, 4>> touches;
    std::vector<InstructionIndex> instruction_at;  // by position

    /// Whether use a has certainly completed when use b begins.
    [[nodiscard]] bool before(const Body& body, Touch a, Touch b) const {
        const Stream stream = body.instructions[a.instruction].stream;
        if (stream == body.instructions[b.instruction].stream) return a.position < b.position;
        return order.starts[b.instruction].done[stream] >= order.on_stream[a.instruction];
    }
    [[nodiscard]] bool all_before(const Body& body, SlotIndex slot, Touch b) const {
        // The last use is the one that most likely comes later.
        return std::all_of(touches[slot].rbegin(), touches[slot].rend(),
                           [&](Touch use) { return before(body, use, b); });
    }
};

Lifetimes find_lifetimes(const Body& body) {
    Lifetimes result{.order = instruction_order(body)};
    result.touches.resize(body.slots.size());
    for (const InstructionIndex i : body.instructions.indices()) {
        const Instruction& instruction = body.instructions[i];
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
            if (lifetimes.all_before(body, other, first)) continue;
            const Slot& held = body.slots[other];
            taken.emplace_back(held.offset, held.offset + held.bytes);
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
        if (lifetimes.all_before(body, slot, here)) return position - 1;
    }
    return end - 1;
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

SlotStays stays_of(const Body& body, const Segment& segment, const Lifetimes& lifetimes) {
    SlotStays result{.positions = static_cast<std::int32_t>(lifetimes.instruction_at.size())};
    for (const SlotIndex index : body.slots.indices()) {
        const auto& uses = lifetimes.touches[index];
        if (uses.empty()) continue;
        const Slot& slot = body.slots[index];
        if (slot.own_block) continue;  // lies in another slot
        const bool transient = slot.space == Space::transient;
        // The offload window is a separate arena.
        if (!transient && region_of(body.phase, segment, slot.space) != Region::activation) continue;
        SlotStay stay{.slot = index, .transient = transient};
        if (transient || born_here(slot, body.phase)) stay.born = uses.front().position;
        if (transient || dies_here(slot, body.phase)) stay.freed = free_position(body, lifetimes, index);
        if (stay.born >= 0 || stay.freed >= 0) result.stays.push_back(stay);
    }
    return result;
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
    body.transient_live_peak = walk_body(body, stays_of(body, {}, lifetimes)).transient_peak;
}

StaysKey stays_key(const Segment& segment) {
    return {segment.body,
            {segment.hidden_in_offset >= 0, segment.hidden_out_offset >= 0, segment.gradient_in_offset >= 0,
             segment.gradient_out_offset >= 0, segment.in_offload_window}};
}

SlotStays walk_slots(const Bodies& bodies, const Segment& segment) {
    const Body& body = bodies[segment.body];
    if (body.whole < 0) return stays_of(body, segment, find_lifetimes(body));
    const Body& whole = bodies[body.whole];
    const Lifetimes lifetimes = find_lifetimes(whole);
    const auto position_of = [&](InstructionIndex instruction) {  // the first position of that instruction or a later
        return std::ranges::lower_bound(lifetimes.instruction_at, instruction) - lifetimes.instruction_at.begin();
    };
    const auto begin = static_cast<std::int32_t>(position_of(body.first_in_whole));
    const auto end = static_cast<std::int32_t>(
        position_of(body.first_in_whole + static_cast<std::int32_t>(body.instructions.size())));
    SlotStays stays = stays_of(whole, segment, lifetimes);
    stays.positions = end - begin;
    const auto inside = [&](std::int32_t position) {
        return position >= begin && position < end ? position - begin : -1;
    };
    for (SlotStay& stay : stays.stays) {
        stay.born = inside(stay.born);
        stay.freed = inside(stay.freed);
    }
    std::erase_if(stays.stays, [](const SlotStay& stay) { return stay.born < 0 && stay.freed < 0; });
    return stays;
}

BodyMemory walk_body(const Body& body, const SlotStays& slots) {
    /// The bytes that are allocated before a position and freed after it, of activations and of transients.
    struct Change {
        std::array<std::int64_t, 2> allocated{}, freed{};
    };
    std::vector<Change> changes(static_cast<std::size_t>(slots.positions));
    for (const SlotStay& stay : slots.stays) {
        const std::int64_t bytes = body.slots[stay.slot].bytes;
        const std::size_t kind = stay.transient ? 1 : 0;
        if (stay.born >= 0) changes[static_cast<std::size_t>(stay.born)].allocated[kind] += bytes;
        if (stay.freed >= 0) changes[static_cast<std::size_t>(stay.freed)].freed[kind] += bytes;
    }
    BodyMemory memory;
    std::int64_t activations = 0, transients = 0;
    for (std::int32_t position = 0; position < slots.positions; ++position) {
        const Change& change = changes[static_cast<std::size_t>(position)];
        activations += change.allocated[0];
        transients += change.allocated[1];
        memory.activation_peak = std::max(memory.activation_peak, activations);
        memory.transient_peak = std::max(memory.transient_peak, transients);
        if (position == 0 || activations + transients > memory.joint_peak) {
            memory.joint_peak = activations + transients;
            memory.joint_position = position;
        }
        activations -= change.freed[0];
        transients -= change.freed[1];
    }
    memory.activation_net = activations;
    memory.transient_net = transients;
    return memory;
}

}  // namespace orrery::program
