// The pending events of a simulation in the total order (time, order). By default events at equal times are FIFO.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/error.h"

namespace orrery::sim {

/// A heap with four children per node, which share a cache line. Each owner of events has a slot with at most one
/// pending event; a new event replaces it. The heap knows the position of each slot's event, so that it can move the
/// event in place: rates change often, and each change moves an event that is still far in the future.
class EventQueue {
  public:
    struct Event {
        std::int64_t time_ps = 0;
        std::int32_t slot = 0;
    };

    /// Sets the number of slots, which must not shrink.
    void resize(std::size_t slots) {
        ORRERY_CHECK(slots < (std::size_t{1} << kSlotBits), "the event queue has too many slots");
        positions_.resize(slots, kNone);
    }

    [[nodiscard]] bool empty() const { return size() == 0; }
    [[nodiscard]] std::size_t size() const { return heap_.size() - (vacant_front_ ? 1 : 0); }
    [[nodiscard]] std::int64_t now() const { return now_; }

    /// Sets the slot's event. The time may be now, but not in the past. At equal times the event scheduled first comes
    /// first.
    void schedule(std::int32_t slot, std::int64_t time_ps) { schedule(slot, time_ps, ++sequence_); }
    /// At equal times the event with the lowest order comes first. Orders must be distinct and below 2^40, and a caller
    /// must give an order either to all events or to none.
    void schedule(std::int32_t slot, std::int64_t time_ps, std::uint64_t order) {
        ORRERY_CHECK(time_ps >= now_, "an event is scheduled in the past");
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

    /// Removes the slot's event, if it has one.
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

    /// Removes the next event and advances the clock to its time; the queue must not be empty.
    Event pop() {
        now_ = next_time();
        const std::int32_t slot = heap_.front().slot();
        positions_[index(slot)] = kNone;
        vacant_front_ = true;  // usually the next scheduled event fills it
        return {now_, slot};
    }

  private:
    static constexpr int kSlotBits = 24;  // the other 40 bits number 10^12 events
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
    /// Places the entry, which may move up or down from the gap.
    void move(std::size_t gap, const Entry& entry) {
        if (gap > 0 && entry.before(heap_[(gap - 1) / kChildren])) {
            rise(gap, entry);
        } else {
            sink(gap, entry);
        }
    }
    /// Places the entry at the gap or above it.
    void rise(std::size_t gap, const Entry& entry) {
        while (gap > 0) {
            const std::size_t parent = (gap - 1) / kChildren;
            if (!entry.before(heap_[parent])) break;
            put(gap, heap_[parent]);
            gap = parent;
        }
        put(gap, entry);
    }
    /// Places the entry at the gap or below it.
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
    std::vector<std::int32_t> positions_;  // by slot: position of its event in the heap, or kNone
    std::uint64_t sequence_ = 0;
    std::int64_t now_ = 0;
};

}  // namespace orrery::sim
