#include "sim/program/access_order.h"

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/index.h"

namespace orrery::program {
namespace {

constexpr bool has(StreamSet streams, Stream stream) {
    return (streams & only(stream)) != 0;
}
template <typename Visit>
void for_each_stream(StreamSet streams, const Visit& visit) {
    for (; streams != 0; streams &= streams - 1) visit(static_cast<Stream>(std::countr_zero(streams)));
}
/// Whether different actions may bind the same instance as different regions.
constexpr bool shares_instances(Region region) {
    return region == Region::input_boundary || region == Region::forward_boundary ||
           region == Region::backward_boundary || region == Region::gradient_out;
}
void raise(StreamCounts& counts, const StreamCounts& others) {
    for (const Stream s : kStreams) counts[s] = std::max(counts[s], others[s]);
}

void add_use(BodyOrder& order, const Slot& slot, Stream stream, bool write, InstructionIndex instruction) {
    const SpacePart part = part_of(slot);
    if (part.begin == part.end) return;
    // Activations and transients belong to one call, so that all of its slots there can be merged into one range.
    const bool own = slot.space == Space::activation || slot.space == Space::transient;
    for (BodyOrder::Use& use : order.uses) {
        if (use.stream != stream || use.write != write) continue;
        if (use.part.space != part.space || use.part.range != part.range) continue;
        if (!own && (part.begin > use.part.end || part.end < use.part.begin)) continue;
        use.part.begin = std::min(use.part.begin, part.begin);
        use.part.end = std::max(use.part.end, part.end);
        use.last = instruction;
        return;
    }
    order.uses.push_back({part, stream, write, instruction, instruction});
}

void find_ties(BodyOrder& order) {
    if (!has(order.streams, Stream::compute)) return;
    const BodyOrder::Start& end = order.starts[order.last[Stream::compute]];
    for (BodyOrder::Use& use : order.uses) {
        const bool begins_after = has(order.starts[use.first].past, Stream::compute);
        const bool ends_before = use.stream == Stream::compute || end.done[use.stream] >= order.on_stream[use.last];
        use.is_tied = begins_after && ends_before;
    }
}

/// The waits of one list's segments, found in the order of the list.
class SegmentOrder {
  public:
    SegmentOrder(const RankClass& ranks, IndexedVector<SegmentIndex, ListedSegment>& list,
                 std::vector<SegmentWait>& waits)
        : ranks_(ranks), list_(list), waits_(waits) {}
    ListOrder run();

  private:
    /// The last use of some bytes by a stream.
    struct LastUse {
        Stream stream{};
        bool write = false;
        SegmentIndex segment = 0;
        std::int32_t position = 0;  // on the stream, from 1 in the list
    };
    using Bytes = std::vector<LastUse>;
    using Cells = std::map<std::int64_t, Bytes>;  // by begin; each cell extends to the next

    void number_streams();
    [[nodiscard]] std::size_t row(Stream stream) const { return rows_[stream]; }
    void note_uses(const ListedSegment& listed);
    void wait_for_uses(SegmentIndex here, const BodyOrder& order);
    void replace_uses(SegmentIndex here, const BodyOrder& order);
    void pass(SegmentIndex here, const BodyOrder& order);
    void wait_for(const LastUse& last);
    [[nodiscard]] static Cells::iterator cut(Cells& cells, std::int64_t at);
    /// What has completed when the instruction begins, including what the segment's waits so far imply.
    [[nodiscard]] StreamCounts known_at(const BodyOrder& order, InstructionIndex instruction) const;

    const RankClass& ranks_;
    IndexedVector<SegmentIndex, ListedSegment>& list_;
    std::vector<SegmentWait>& waits_;
    PerRegion<bool> has_untied_use_{};  // some use of the region is not BodyOrder::Use::is_tied
    bool tracks_ = false;               // some segment may have to wait
    PerRegion<Cells> cells_;
    StreamSet streams_ = 0;          // with instructions of the list
    PerStream<std::size_t> rows_{};  // numbers these streams
    std::size_t row_count_ = 0;
    // By row: what has completed when the stream's last instruction has completed; after each segment, if tracks_.
    std::vector<StreamCounts> known_, known_after_, known_now_;
    PerStream<LastUse> last_on_{};  // by stream: the last segment with instructions there
    StreamCounts issued_{};
    StreamCounts waited_for_{};  // by the current segment
    struct Touched {
        const BodyOrder::Use* use = nullptr;
        Cells::iterator first, end;
    };
    std::vector<Touched> touched_;  // by the current segment
    std::size_t first_wait_ = 0;    // of the current segment
    ListOrder result_;
};

ListOrder SegmentOrder::run() {
    for (const ListedSegment& listed : list_) note_uses(listed);
    number_streams();
    for (const SegmentIndex here : list_.indices()) {
        ListedSegment& listed = list_[here];
        waited_for_ = {};
        first_wait_ = waits_.size();
        if (listed.after_all) {
            for_each_stream(result_.streams, [&](Stream stream) { wait_for(last_on_[stream]); });
        }
        if (tracks_) {
            wait_for_uses(here, *listed.order);
            replace_uses(here, *listed.order);
        }
        pass(here, *listed.order);
        listed.segment.first_wait = static_cast<std::int32_t>(first_wait_);
        listed.segment.wait_count = static_cast<std::int32_t>(waits_.size() - first_wait_);
    }
    for_each_stream(result_.streams, [&](Stream stream) {
        for_each_stream(result_.streams, [&](Stream other) {
            if (known_[row(stream)][other] == issued_[other]) result_.ended_by[other] |= only(stream);
        });
    });
    return std::move(result_);
}

void SegmentOrder::number_streams() {
    for_each_stream(streams_, [&](Stream stream) { rows_[stream] = row_count_++; });
    known_.resize(row_count_);
    if (tracks_) known_after_.reserve(list_.size() * row_count_);
}

void SegmentOrder::note_uses(const ListedSegment& listed) {
    streams_ |= listed.order->streams;
    tracks_ = tracks_ || listed.after_all;
    for (const BodyOrder::Use& use : listed.order->uses) {
        const MemoryRange range = resolve(ranks_, listed.order->phase, listed.segment, use.part);
        const Region region = range.region;
        has_untied_use_[region] = has_untied_use_[region] || !use.is_tied;
        tracks_ = tracks_ || !use.is_tied;
        if (is_bound(range.region)) {
            (use.write ? result_.bound[region].writes : result_.bound[region].reads) |= only(use.stream);
            continue;
        }
        std::vector<ListOrder::Use>& known = result_.uses[region];
        const auto same = std::find_if(known.rbegin(), known.rend(), [&](const ListOrder::Use& other) {
            return other.stream == use.stream && other.write == use.write;
        });
        if (same != known.rend() && range.begin <= same->end && range.end >= same->begin) {
            same->begin = std::min(same->begin, range.begin);
            same->end = std::max(same->end, range.end);
        } else {
            known.push_back({range.begin, range.end, use.stream, use.write});
        }
    }
}

SegmentOrder::Cells::iterator SegmentOrder::cut(Cells& cells, std::int64_t at) {
    const auto next = cells.lower_bound(at);
    if (next != cells.end() && next->first == at) return next;
    return cells.emplace_hint(next, at, next == cells.begin() ? Bytes{} : std::prev(next)->second);
}

StreamCounts SegmentOrder::known_at(const BodyOrder& order, InstructionIndex instruction) const {
    const BodyOrder::Start& start = order.starts[instruction];
    StreamCounts known = waited_for_;
    for_each_stream(start.past & streams_, [&](Stream stream) { raise(known, known_[row(stream)]); });
    for_each_stream(order.streams, [&](Stream s) {
        known[s] = std::max(known[s], start.done[s] > 0 ? issued_[s] + start.done[s] : 0);
    });
    return known;
}

void SegmentOrder::wait_for(const LastUse& last) {
    raise(waited_for_, known_after_[last.segment.position() * row_count_ + row(last.stream)]);
    const auto own = waits_.begin() + static_cast<std::ptrdiff_t>(first_wait_);
    const auto known = std::ranges::find(own, waits_.end(), last.stream, &SegmentWait::stream);
    if (known == waits_.end()) {
        waits_.push_back({last.segment, last.stream});
    } else {
        known->segment = std::max(known->segment, last.segment);
    }
}

void SegmentOrder::wait_for_uses(SegmentIndex here, const BodyOrder& order) {
    touched_.clear();
    const Segment& segment = list_[here].segment;
    for (const BodyOrder::Use& use : order.uses) {
        const MemoryRange range = resolve(ranks_, order.phase, segment, use.part);
        const Region region = range.region;
        if (!has_untied_use_[region]) continue;
        const auto end = cut(cells_[region], range.end);
        const auto first = cut(cells_[region], range.begin);
        touched_.push_back({&use, first, end});
        std::optional<StreamCounts> known;  // waits add to it
        for (auto cell = first; cell != end; ++cell) {
            for (const LastUse& last : cell->second) {
                if (last.stream == use.stream || !(last.write || use.write)) continue;
                if (!known.has_value()) known = known_at(order, use.first);
                if ((*known)[last.stream] >= last.position) continue;
                wait_for(last);
                known.reset();
            }
        }
    }
}

void SegmentOrder::replace_uses(SegmentIndex here, const BodyOrder& order) {
    for (const Touched& touched : touched_) {
        const BodyOrder::Use& use = *touched.use;
        const LastUse now{use.stream, use.write, here, issued_[use.stream] + order.on_stream[use.last]};
        for (auto cell = touched.first; cell != touched.end; ++cell) {
            std::erase_if(cell->second, [&](const LastUse& last) {
                return (use.write && last.segment != here) || (last.stream == now.stream && last.write == now.write);
            });
            cell->second.push_back(now);
        }
    }
}

/// Updates what is known to have completed, now that the segment has been issued.
void SegmentOrder::pass(SegmentIndex here, const BodyOrder& order) {
    std::vector<StreamCounts>& known = known_now_;
    known = known_;
    for_each_stream(order.streams, [&](Stream s) {
        if (!has(result_.streams, s)) {
            const StreamCounts begin = known_at(order, order.first[s]);
            result_.begins_after[s] = only(s);
            for (const Stream other : kStreams) {
                if (begin[other] > 0) result_.begins_after[s] |= only(other);
            }
        }
        StreamCounts& after = known[row(s)];
        after = known_at(order, order.last[s]);
        after[s] = issued_[s] + order.on_stream[order.last[s]];
        last_on_[s] = {s, true, here, after[s]};
    });
    for_each_stream(order.streams, [&](Stream stream) { issued_[stream] = known[row(stream)][stream]; });
    std::swap(known_, known);
    if (tracks_) known_after_.insert(known_after_.end(), known_.begin(), known_.end());
    result_.streams |= order.streams;
}

}  // namespace

InstructionOrder instruction_order(const Body& body) {
    InstructionOrder order;
    order.starts.resize(body.instructions.size());
    for (const InstructionIndex index : body.instructions.indices()) {
        const Instruction& instruction = body.instructions[index];
        const Stream s = instruction.stream;
        InstructionOrder::Start& start = order.starts[index];
        const auto comes_after = [&](InstructionIndex earlier) {
            const InstructionOrder::Start& known = order.starts[earlier];
            start.past |= known.past;
            raise(start.done, known.done);
            std::int32_t& done = start.done[body.instructions[earlier].stream];
            done = std::max(done, order.on_stream[earlier]);
        };
        start.past = only(s);
        const bool first = !has(order.streams, s);
        if (first) {
            order.first[s] = index;
        } else {
            comes_after(order.last[s]);
        }
        for (const InstructionIndex earlier : instruction.after) comes_after(earlier);
        order.on_stream.push_back(first ? 1 : order.on_stream[order.last[s]] + 1);
        order.last[s] = index;
        order.streams |= only(s);
    }
    return order;
}

BodyOrder order_of(const Body& body) {
    BodyOrder order{instruction_order(body), body.phase, {}};
    for (const InstructionIndex index : body.instructions.indices()) {
        const Instruction& instruction = body.instructions[index];
        visit_accesses(body, instruction, [&](models::SlotIndex slot, bool write) {
            add_use(order, body.slots[slot], instruction.stream, write, index);
        });
    }
    find_ties(order);
    return order;
}

ListOrder order_list(const RankClass& ranks, IndexedVector<SegmentIndex, ListedSegment>& list,
                     std::vector<SegmentWait>& waits) {
    return SegmentOrder(ranks, list, waits).run();
}

ActionOrder::ActionOrder(const IndexedVector<SegmentListId, ListOrder>& lists)
    : lists_(lists), fixed_(lists.size()), bound_(lists.size()), histories_(kTokens) {
    for (const Region region : kRegions) {
        number_ranges(region);
        Users users;
        for (const SegmentListId list : lists.indices()) {
            const ListOrder::Streams& streams = lists[list].bound[region];
            if ((streams.reads | streams.writes) != 0) users.push_back({list, streams});
        }
        if (!shares_instances(region) && !need_order(users)) continue;
        for (const auto& [list, streams] : users) bound_[list].push_back({region, streams});
    }
}

/// Whether some action with one of these lists may have to wait for another because of the memory that they share.
bool ActionOrder::need_order(const Users& users) const {
    for (const auto& earlier : users) {
        const ListOrder::Streams before = earlier.second;
        for (const auto& later : users) {
            const ListOrder::Streams after = later.second;
            bool needs = false;
            for_each_stream(after.reads | after.writes, [&](Stream waiting) {
                const StreamSet others = before.writes | (has(after.writes, waiting) ? before.reads : 0);
                for_each_stream(others & ~only(waiting), [&](Stream other) {
                    needs = needs || !is_implied(lists_[earlier.first].ended_by[other], waiting, lists_[later.first]);
                });
            });
            if (needs) return true;
        }
    }
    return false;
}

/// Assigns keys to the memory of a region with one instance: all parts that the same lists use on the same streams
/// share a key. Parts for which no action ever has to wait get none.
void ActionOrder::number_ranges(Region region) {
    std::vector<std::int64_t> cuts;
    StreamSet streams = 0;
    for (const ListOrder& list : lists_) {
        for (const ListOrder::Use& use : list.uses[region]) {
            cuts.push_back(use.begin);
            cuts.push_back(use.end);
            streams |= only(use.stream);
        }
    }
    if (streams == 0 || std::has_single_bit(streams)) return;
    std::sort(cuts.begin(), cuts.end());
    cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
    std::vector<Users> signatures(cuts.size());
    for (const SegmentListId list : lists_.indices()) {
        for (const ListOrder::Use& use : lists_[list].uses[region]) {
            auto cell = static_cast<std::size_t>(std::lower_bound(cuts.begin(), cuts.end(), use.begin) - cuts.begin());
            for (; cuts[cell] != use.end; ++cell) {
                Users& signature = signatures[cell];
                if (signature.empty() || signature.back().first != list) signature.push_back({list, {}});
                (use.write ? signature.back().second.writes : signature.back().second.reads) |= only(use.stream);
            }
        }
    }
    std::sort(signatures.begin(), signatures.end());
    signatures.erase(std::unique(signatures.begin(), signatures.end()), signatures.end());
    for (const Users& signature : signatures) {
        if (!need_order(signature)) continue;
        const std::int32_t key = new_key();
        for (const auto& [list, sets] : signature) fixed_[list].push_back({key, sets});
    }
}

std::int32_t ActionOrder::new_key() {
    histories_.emplace_back();
    return static_cast<std::int32_t>(histories_.size()) - 1;
}

std::int32_t ActionOrder::key_of(const Instance& memory) {
    auto& chunks = instance_keys_[memory.region];
    if (memory.chunk.position() >= chunks.size()) chunks.resize(memory.chunk.position() + 1);
    std::vector<std::int32_t>& keys = chunks[memory.chunk];
    ORRERY_CHECK(memory.index >= 0, "an action uses the " + std::string(name_of(memory.region)) + " but binds none");
    if (at(memory.index) >= keys.size()) keys.resize(at(memory.index) + 1, -1);
    std::int32_t& key = keys[at(memory.index)];
    if (key < 0) key = new_key();
    return key;
}

void ActionOrder::collect(const Action& action, std::span<const ActionUse> more) {
    const ListOrder& list = lists_[action.segments];
    uses_ = fixed_[action.segments];
    const std::size_t fixed = uses_.size();
    const auto add = [&](std::int32_t key, ListOrder::Streams streams) {
        for (std::size_t i = fixed; i < uses_.size(); ++i) {  // two regions may bind the same instance
            if (uses_[i].key != key) continue;
            uses_[i].streams.reads |= streams.reads;
            uses_[i].streams.writes |= streams.writes;
            return;
        }
        uses_.push_back({key, streams});
    };
    for (const BoundUse& use : bound_[action.segments]) {
        add(key_of(bound_by(action, use.region)), use.streams);
    }
    for (const ActionUse& use : more) {
        const StreamSet streams = use.streams & list.streams;
        if (streams == 0) continue;
        const bool is_memory = use.token == ActionUse::Token::memory;
        const std::int32_t key = is_memory ? key_of(use.memory) : static_cast<std::int32_t>(use.token);
        add(key, {use.write ? 0 : streams, use.write ? streams : 0});
    }
}

std::int32_t ActionOrder::add(ActionIndex index, const Action& action, std::span<const ActionUse> more,
                              std::vector<Wait>& waits) {
    collect(action, more);
    const ListOrder& list = lists_[action.segments];
    needed_.clear();
    for (const Use& use : uses_) {
        const History& history = histories_[at(use.key)];
        for_each_stream(use.streams.reads | use.streams.writes, [&](Stream waiting) {
            const bool writes = has(use.streams.writes, waiting);
            const StreamSet others = (history.written | (writes ? history.read : 0)) & ~only(waiting);
            for_each_stream(others, [&](Stream other) {
                Last last = has(history.written, other) ? history.writes[other] : Last{};
                if (writes && has(history.read, other)) last = std::max(last, history.reads[other]);
                if (last.step + 1 < step_) return;  // older steps than the previous one have ended
                if (is_implied(last.ended_by, waiting, list)) return;
                for (Needed& known : needed_) {
                    if (known.waited_for != other || known.waiting != waiting) continue;
                    known.last = std::max(known.last, last);
                    return;
                }
                needed_.push_back({last, other, waiting});
            });
        });
    }
    const std::size_t first = waits.size();
    for (const Needed& need : needed_) {
        // No wait is needed if a stream that the waiting stream follows inside the action waits for the same use.
        const bool implied = std::any_of(needed_.begin(), needed_.end(), [&](const Needed& other) {
            return other.waiting != need.waiting && has(list.begins_after[need.waiting], other.waiting) &&
                   other.waited_for == need.waited_for && other.last >= need.last;
        });
        if (implied) continue;
        const auto back = static_cast<std::uint8_t>(step_ - need.last.step);
        const auto known =
            std::find_if(waits.begin() + static_cast<std::ptrdiff_t>(first), waits.end(), [&](const Wait& wait) {
                return wait.action == need.last.action && wait.stream == need.waited_for && wait.steps_back == back;
            });
        if (known != waits.end()) {
            known->held_streams |= only(need.waiting);
        } else {
            waits.push_back({need.last.action, need.waited_for, back, only(need.waiting)});
        }
    }
    note_collected(index, list);
    return static_cast<std::int32_t>(waits.size() - first);
}

void ActionOrder::note(ActionIndex index, const Action& action, std::span<const ActionUse> more) {
    collect(action, more);
    note_collected(index, lists_[action.segments]);
}

void ActionOrder::note_collected(ActionIndex index, const ListOrder& list) {
    for (const auto& [key, streams] : uses_) {
        History& history = histories_[at(key)];
        if (streams.writes != 0) history.read = history.written = 0;
        const auto now = [&](Stream stream) { return Last{step_, index, list.ended_by[stream]}; };
        for_each_stream(streams.reads, [&](Stream stream) { history.reads[stream] = now(stream); });
        for_each_stream(streams.writes, [&](Stream stream) { history.writes[stream] = now(stream); });
        history.read |= streams.reads;
        history.written |= streams.writes;
    }
}

}  // namespace orrery::program
