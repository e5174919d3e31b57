// The pending events of a simulation, ordered by (time, order): a total order, first in first out at equal times unless
// their owners say otherwise.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/error.h"

namespace orrery::sim {

/// A heap of four children to a node, which share a cache line. Whoever may have an event pending owns a slot, and a
/// slot has at most one: a new one takes its place. The heap knows where each slot's event stands, so that moving one
/// leaves nothing behind: rates change often, and a change moves an event while it is still far off.
class EventQueue {
  public:
    struct Event {
        std::int64_t time_ps = 0;
        std::int32_t slot = 0;
    };

    /// How many slots there are; no fewer than before.
    void resize(std::size_t slots) {
        ORRERY_CHECK(slots < (std::size_t{1} << kSlotBits), "more slots than the queue can number");
        positions_.resize(slots, kNone);
    }

    [[nodiscard]] bool empty() const { return size() == 0; }
    [[nodiscard]] std::size_t size() const { return heap_.size() - (vacant_front_ ? 1 : 0); }
    [[nodiscard]] std::int64_t now() const { return now_; }

    /// Sets the slot's event; one in the past is a bug, one now is not. At equal times the first to be scheduled comes
    /// first.
    void schedule(std::int32_t slot, std::int64_t time_ps) { schedule(slot, time_ps, ++sequence_); }
    /// At equal times the lowest order comes first; no two are equal, and all are below 2^40. Who orders one event
    /// orders all.
    void schedule(std::int32_t slot, std::int64_t time_ps, std::uint64_t order) {
        ORRERY_CHECK(time_ps >= now_, "an event would lie in the past");
        const Entry entry{time_ps, order << kSlotBits | static_cast<std::uint64_t>(slot)};
        if (positions_[index(slot)] != kNone) {
            fill_front();
            move(index(positions_[index(slot)]), entry);
        } else if (vacant_front_) {
            vacant_front_ = false;
            sink(0, entry);
        } else {
            heap_.emplace_back();
            rise(heap_.size() - 1, entry);
        }
    }

    /// Without effect when the slot has no event.
    void cancel(std::int32_t slot) {
        if (positions_[index(slot)] == kNone) return;
        fill_front();
        const std::size_t gap = index(positions_[index(slot)]);
        positions_[index(slot)] = kNone;
        const Entry last = heap_.back();
        heap_.pop_back();
        if (gap < heap_.size()) move(gap, last);
    }

    /// The time of the next event; the queue must not be empty.
    [[nodiscard]] std::int64_t next_time() {
        fill_front();
        ORRERY_CHECK(!heap_.empty(), "the queue is empty");
        return heap_.front().time_ps;
    }

    /// Takes the next event and moves the clock to it; the queue must not be empty.
    Event pop() {
        now_ = next_time();
        const std::int32_t slot = heap_.front().slot();
        positions_[index(slot)] = kNone;
        vacant_front_ = true;  // mostly the next event, soon to come, takes its place
        return {now_, slot};
    }

  private:
    static constexpr int kSlotBits = 24;  // what is left numbers 10^12 events
    static constexpr std::size_t kChildren = 4;
    static constexpr std::int32_t kNone = -1;
    struct Entry {
        std::int64_t time_ps = 0;
        std::uint64_t key = 0;  // order, slot
        [[nodiscard]] bool before(const Entry& other) const {
            return time_ps != other.time_ps ? time_ps < other.time_ps : key < other.key;
        }
        [[nodiscard]] std::int32_t slot() const {
            return static_cast<std::int32_t>(key & ((std::uint64_t{1} << kSlotBits) - 1));
        }
    };
    static std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

    void fill_front() {
        if (!vacant_front_) return;
        vacant_front_ = false;
        const Entry last = heap_.back();
        heap_.pop_back();
        if (!heap_.empty()) sink(0, last);
    }
    void put(std::size_t at, const Entry& entry) {
        heap_[at] = entry;
        positions_[index(entry.slot())] = static_cast<std::int32_t>(at);
    }
    /// Puts the entry where it belongs, from the gap.
    void move(std::size_t gap, const Entry& entry) {
        if (gap > 0 && entry.before(heap_[(gap - 1) / kChildren])) {
            rise(gap, entry);
        } else {
            sink(gap, entry);
        }
    }
    /// Puts the entry where it belongs, at the gap or above it.
    void rise(std::size_t gap, const Entry& entry) {
        while (gap > 0) {
            const std::size_t parent = (gap - 1) / kChildren;
            if (!entry.before(heap_[parent])) break;
            put(gap, heap_[parent]);
            gap = parent;
        }
        put(gap, entry);
    }
    /// Puts the entry where it belongs, at the gap or below it.
    void sink(std::size_t gap, const Entry& entry) {
        const std::size_t size = heap_.size();
        for (std::size_t child = kChildren * gap + 1; child < size; child = kChildren * gap + 1) {
            const std::size_t end = std::min(child + kChildren, size);
            std::size_t first = child;
            for (std::size_t other = child + 1; other < end; ++other) {
                if (heap_[other].before(heap_[first])) first = other;
            }
            if (!heap_[first].before(entry)) break;
            put(gap, heap_[first]);
            gap = first;
        }
        put(gap, entry);
    }

    std::vector<Entry> heap_;
    bool vacant_front_ = false;
    std::vector<std::int32_t> positions_;  // by slot, in the heap; kNone: no event
    std::uint64_t sequence_ = 0;
    std::int64_t now_ = 0;
};

}  // namespace orrery::sim
