#include "sim/program/peak_contents.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.h"
#include "sim/program/body_builder.h"

namespace orrery::program {
namespace {

/// One name for hidden states and their gradients: a layer's output is the next layer's input.
std::string name_of(const Slot& slot) {
    switch (slot.space) {
        case Space::hidden_in:
        case Space::hidden_out:
            return "hidden";
        case Space::hidden_gradient:
        case Space::hidden_gradient_out:
            return "hidden_gradient";
        default:
            return slot.decl.name;
    }
}

struct Amount {
    std::int64_t count = 0;
    std::int64_t bytes = 0;
    void add(std::int64_t slots, std::int64_t each) {
        count += slots;
        bytes += slots * each;
    }
};
using Amounts = std::map<std::pair<bool, std::string>, Amount>;  // by whether it is transient, and name

/// Applies the changes of a call of the body up to position `until`, without the frees after that position.
void apply(const Body& body, const SlotStays& slots, std::int32_t until, Amounts& live) {
    for (const SlotStay& stay : slots.stays) {
        const Slot& slot = body.slots[stay.slot];
        Amount& amount = live[{stay.transient, name_of(slot)}];
        if (stay.born >= 0 && stay.born <= until) amount.add(1, slot.bytes);
        if (stay.freed >= 0 && stay.freed < until) amount.add(-1, slot.bytes);
    }
}

/// The most bytes alive during a call of the body, relative to its start, and the position at which this is reached.
std::pair<std::int64_t, std::int32_t> fullest(const Body& body, const SlotStays& slots) {
    std::vector<std::int64_t> change(static_cast<std::size_t>(slots.positions) + 1, 0);
    for (const SlotStay& stay : slots.stays) {
        const std::int64_t bytes = body.slots[stay.slot].bytes;
        if (stay.born >= 0) change[static_cast<std::size_t>(stay.born)] += bytes;
        if (stay.freed >= 0) change[static_cast<std::size_t>(stay.freed) + 1] -= bytes;
    }
    std::pair<std::int64_t, std::int32_t> best{0, -1};
    std::int64_t bytes = 0;
    for (std::int32_t position = 0; position < slots.positions; ++position) {
        bytes += change[static_cast<std::size_t>(position)];
        if (best.second < 0 || bytes > best.first) best = {bytes, position};
    }
    return best;
}

class Walk {
  public:
    Walk(const Program& program, const RankClass& ranks) : program_(program), ranks_(ranks) {}

    PeakContents run() {
        PeakContents contents{.action = ranks_.memory.peak_action};
        if (contents.action < 0) return contents;
        std::map<std::pair<ChunkIndex, std::int32_t>, std::int64_t> frames;  // bytes by chunk and micro-batch
        Amounts live;
        const auto add = [&](const Action& action, const Amounts& amounts) {
            std::int64_t& frame = frames[{action.chunk, action.micro_batch}];
            for (const auto& [name, amount] : amounts) {
                live[name].count += amount.count;
                live[name].bytes += amount.bytes;
                if (!name.first) frame += amount.bytes;
            }
        };
        for (const ActionIndex a : IndexRange<ActionIndex>(0, contents.action)) {
            const Action& action = ranks_.actions[a];
            if (is_pass(action.kind)) add(action, net_of(action.segments));
        }
        const Action& last = ranks_.actions[contents.action];
        add(last, until_fullest(last.segments, contents.layer));
        for (const auto& [name, bytes] : frames) contents.micro_batches += bytes > 0 ? 1 : 0;
        for (const auto& [name, amount] : live) {
            if (amount.bytes == 0) continue;
            (name.first ? contents.transient_bytes : contents.activation_bytes) += amount.bytes;
            contents.slots.push_back({name.second, name.first, amount.count, amount.bytes});
        }
        std::stable_sort(contents.slots.begin(), contents.slots.end(),
                         [](const LiveSlots& a, const LiveSlots& b) { return a.bytes > b.bytes; });
        return contents;
    }

  private:
    [[nodiscard]] const Body& body_of(const Segment& segment) const { return program_.bodies[segment.body]; }

    /// The net change that one pass over the segment list makes.
    const Amounts& net_of(SegmentListId list) {
        const auto [entry, fresh] = nets_.try_emplace(list);
        if (fresh) {
            for (const Segment& segment : ranks_.segment_lists[list]) {
                const SlotStays slots = walk_slots(body_of(segment), segment);
                apply(body_of(segment), slots, slots.positions, entry->second);
            }
        }
        return entry->second;
    }

    /// What the pass has added when its most bytes are alive; sets `layer` to the layer at that moment.
    [[nodiscard]] Amounts until_fullest(SegmentListId list, std::int32_t& layer) const {
        Amounts live, best;
        std::int64_t most = -1;
        for (const Segment& segment : ranks_.segment_lists[list]) {
            const Body& body = body_of(segment);
            const SlotStays slots = walk_slots(body, segment);
            std::int64_t before = 0;
            for (const auto& [name, amount] : live) before += amount.bytes;
            const auto [bytes, position] = fullest(body, slots);
            if (position >= 0 && before + bytes > most) {
                most = before + bytes;
                best = live;
                apply(body, slots, position, best);
                layer = segment.layer;
            }
            apply(body, slots, slots.positions, live);
        }
        return best;
    }

    const Program& program_;
    const RankClass& ranks_;
    std::map<SegmentListId, Amounts> nets_;
};

}  // namespace

PeakContents peak_contents(const Program& program, ClassIndex rank_class) {
    const RankClass& ranks = program.classes.at(rank_class);
    PeakContents contents = Walk(program, ranks).run();
    const std::int64_t live = ranks.memory.live_peak - ranks.memory.fixed();
    ORRERY_CHECK(contents.activation_bytes + contents.transient_bytes == live,
                 ranks.name + ": " + std::to_string(contents.activation_bytes + contents.transient_bytes) +
                     " bytes live at the peak, where the footprint has " + std::to_string(live));
    return contents;
}

}  // namespace orrery::program
