#include "sim/program/peak_contents.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "core/error.h"

namespace orrery::program {
namespace {

/// One name for hidden states and their gradients: a layer's output is the next layer's input.
std::string name_of(const Slot& slot) {
    using enum Space;
    if (slot.space == hidden_in || slot.space == hidden_out) return "hidden";
    const bool is_gradient = slot.space == hidden_gradient || slot.space == hidden_gradient_out;
    return is_gradient ? "hidden_gradient" : slot.decl.name;
}

struct Amount {
    std::int64_t count = 0;
    std::int64_t bytes = 0;
    void operator+=(const Amount& more) {
        count += more.count;
        bytes += more.bytes;
    }
};
using Amounts = std::map<std::pair<bool, std::string>, Amount>;  // by whether it is transient, and name

/// Applies the changes of a call of the body up to position `until`, without the frees after that position.
void apply(const Body& body, const SlotStays& slots, std::int32_t until, Amounts& live) {
    for (const SlotStay& stay : slots.stays) {
        const Slot& slot = body.slots[stay.slot];
        Amount& amount = live[{stay.transient, name_of(slot)}];
        if (stay.born >= 0 && stay.born <= until) amount += {1, slot.bytes};
        if (stay.freed >= 0 && stay.freed < until) amount += {-1, -slot.bytes};
    }
}

/// What one pass over a segment list has added when its most bytes are alive, in this layer, and at its end.
struct Pass {
    Amounts fullest, net;
    std::int32_t layer = 0;
};

Pass walk(const Program& program, const SegmentList& list) {
    Pass pass;
    std::int64_t most = -1;
    for (const Segment& segment : list) {
        const Body& body = program.bodies[segment.body];
        const SlotStays slots = walk_slots(program.bodies, segment);
        std::int64_t before = 0;
        for (const auto& [name, amount] : pass.net) before += amount.bytes;
        const BodyMemory memory = walk_body(body, slots);
        if (slots.positions > 0 && before + memory.joint_peak > most) {
            most = before + memory.joint_peak;
            pass.fullest = pass.net;
            apply(body, slots, memory.joint_position, pass.fullest);
            pass.layer = segment.layer;
        }
        apply(body, slots, slots.positions, pass.net);
    }
    return pass;
}

PeakContents contents_at(const Program& program, const RankClass& ranks, ActionIndex peak) {
    PeakContents contents{.action = peak};
    std::map<std::pair<ChunkIndex, std::int32_t>, std::int64_t> frames;  // bytes by chunk and micro-batch
    std::map<SegmentListId, Pass> passes;
    Amounts live;
    for (const ActionIndex a : IndexRange<ActionIndex>(0, peak + 1)) {
        const Action& action = ranks.actions[a];
        if (!is_pass(action.kind)) continue;
        const auto [entry, fresh] = passes.try_emplace(action.segments);
        Pass& pass = entry->second;
        if (fresh) pass = walk(program, ranks.segment_lists[action.segments]);
        contents.layer = pass.layer;
        for (const auto& [name, amount] : a == peak ? pass.fullest : pass.net) {
            live[name] += amount;
            if (!name.first) frames[{action.chunk, action.micro_batch}] += amount.bytes;
        }
    }
    for (const auto& [name, bytes] : frames) contents.micro_batches += bytes > 0 ? 1 : 0;
    for (const auto& [name, amount] : live) {
        if (amount.bytes == 0) continue;
        (name.first ? contents.transient_bytes : contents.activation_bytes) += amount.bytes;
        contents.slots.push_back({name.second, name.first, amount.count, amount.bytes});
    }
    std::ranges::stable_sort(contents.slots, std::greater(), &LiveSlots::bytes);
    return contents;
}

}  // namespace

PeakContents peak_contents(const Program& program, ClassIndex rank_class) {
    const RankClass& ranks = program.classes.at(rank_class);
    PeakContents contents;
    if (ranks.memory.peak_action >= 0) contents = contents_at(program, ranks, ranks.memory.peak_action);
    const std::int64_t live = ranks.memory.live_peak - ranks.memory.fixed();
    ORRERY_CHECK(contents.activation_bytes + contents.transient_bytes == live,
                 ranks.name + ": " + std::to_string(contents.activation_bytes + contents.transient_bytes) +
                     " bytes live at the peak, where the footprint has " + std::to_string(live));
    return contents;
}

BodyChange BodyChanges::of(const Program& program, const Segment& segment) {
    const auto [known, fresh] = stays_.try_emplace(stays_key(segment));
    if (fresh) known->second = walk_slots(program.bodies, segment);
    const BodyMemory memory = walk_body(program.bodies[segment.body], known->second);
    return {memory.activation_net, memory.joint_peak};
}

}  // namespace orrery::program
