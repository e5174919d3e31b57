// What happens next to which flow: a total order by (time, order), in which an event moves when its flow is paced anew.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace orrery::sim {

/// A heap of four children to a node that knows where each slot's event stands, so that moving one leaves nothing
/// behind: rates change often, and a change moves an event while it is still far off.
class FlowQueue {
  public:
    struct Event {
        std::int64_t time_ps = 0;  // 0 or later
        std::uint64_t order = 0;   // among those of one time; no two are equal
        std::int32_t slot = 0;
        [[nodiscard]] bool before(const Event& other) const { return key() < other.key(); }

      private:
        __extension__ using Key = unsigned __int128;
        [[nodiscard]] Key key() const { return static_cast<Key>(time_ps) << 64U | order; }
    };

    [[nodiscard]] bool empty() const { return heap_.size() == (vacant_front_ ? 1 : 0); }
    /// The next event; there must be one.
    [[nodiscard]] const Event& front() {
        fill_front();
        return heap_.front();
    }
    /// Takes the next event; there must be one.
    Event pop() {
        fill_front();
        const Event event = heap_.front();
        positions_[index(event.slot)] = kNone;
        vacant_front_ = true;  // mostly the flow that is started next, soon to begin, takes its place
        return event;
    }

    /// A slot has at most one event; a new one takes its place.
    void schedule(const Event& event) {
        if (positions_.size() <= index(event.slot)) positions_.resize(index(event.slot) + 1, kNone);
        const bool is_new = positions_[index(event.slot)] == kNone;
        if (is_new && vacant_front_) {
            vacant_front_ = false;
            sink(0, event);
        } else if (is_new) {
            heap_.emplace_back();
            rise(heap_.size() - 1, event);
        } else {
            fill_front();
            move(index(positions_[index(event.slot)]), event);
        }
    }

    /// Without effect when the slot has no event.
    void cancel(std::int32_t slot) {
        if (positions_.size() <= index(slot) || positions_[index(slot)] == kNone) return;
        fill_front();
        const std::size_t gap = index(positions_[index(slot)]);
        positions_[index(slot)] = kNone;
        const Event last = heap_.back();
        heap_.pop_back();
        if (gap < heap_.size()) move(gap, last);
    }

  private:
    static constexpr std::size_t kChildren = 4;
    static constexpr std::int32_t kNone = -1;
    static std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

    void fill_front() {
        if (!vacant_front_) return;
        vacant_front_ = false;
        const Event last = heap_.back();
        heap_.pop_back();
        if (!heap_.empty()) sink(0, last);
    }
    /// Puts the event where it belongs, from the gap.
    void move(std::size_t gap, const Event& event) {
        if (gap > 0 && event.before(heap_[(gap - 1) / kChildren])) {
            rise(gap, event);
        } else {
            sink(gap, event);
        }
    }
    void put(std::size_t at, const Event& event) {
        heap_[at] = event;
        positions_[index(event.slot)] = static_cast<std::int32_t>(at);
    }
    /// Puts the event where it belongs, at the gap or above it.
    void rise(std::size_t gap, const Event& event) {
        while (gap > 0) {
            const std::size_t parent = (gap - 1) / kChildren;
            if (!event.before(heap_[parent])) break;
            put(gap, heap_[parent]);
            gap = parent;
        }
        put(gap, event);
    }
    /// Puts the event where it belongs, at the gap or below it.
    void sink(std::size_t gap, const Event& event) {
        const std::size_t size = heap_.size();
        for (std::size_t child = kChildren * gap + 1; child < size; child = kChildren * gap + 1) {
            const std::size_t end = std::min(child + kChildren, size);
            std::size_t first = child;
            for (std::size_t other = child + 1; other < end; ++other) {
                // Which of two is earlier cannot be guessed, so it is not branched on.
                first += (other - first) * static_cast<std::size_t>(heap_[other].before(heap_[first]));
            }
            if (!heap_[first].before(event)) break;
            put(gap, heap_[first]);
            gap = first;
        }
        put(gap, event);
    }

    std::vector<Event> heap_;
    bool vacant_front_ = false;
    std::vector<std::int32_t> positions_;  // by slot, in the heap; kNone: no event
};

}  // namespace orrery::sim
