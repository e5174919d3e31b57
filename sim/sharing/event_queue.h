// The pending events of a simulation, ordered by (time, sequence): a total order, first in first out at equal times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/error.h"

namespace orrery::sim {

/// A heap with lazy cancellation, four children to a node so that they share a cache line. Whoever may have an event
/// pending owns a slot, and a slot has at most one: a new one replaces the old, whose entry stays in the heap until it
/// surfaces and is thrown away.
class EventQueue {
  public:
    struct Event {
        std::int64_t time_ps = 0;
        std::int32_t slot = 0;
    };

    explicit EventQueue(std::size_t slots) : live_(slots, kNone) {
        ORRERY_CHECK(slots < (std::size_t{1} << kSlotBits), "more slots than the queue can number");
    }

    [[nodiscard]] bool empty() const { return live_count_ == 0; }
    [[nodiscard]] std::size_t size() const { return live_count_; }
    [[nodiscard]] std::int64_t now() const { return now_; }
    [[nodiscard]] bool pending(std::int32_t slot) const { return live_[index(slot)] != kNone; }

    /// Sets the slot's event; one in the past is a bug, one now is not.
    void schedule(std::int32_t slot, std::int64_t time_ps) {
        ORRERY_CHECK(time_ps >= now_, "an event would lie in the past");
        std::uint64_t& live = live_[index(slot)];
        if (live == kNone) ++live_count_;
        live = ++sequence_ << kSlotBits | static_cast<std::uint64_t>(slot);
        const Entry entry{time_ps, live};
        if (vacant_front_) {
            vacant_front_ = false;
            sink(entry);
        } else {
            heap_.push_back(entry);
            rise(entry);
        }
    }

    /// Without effect when the slot has no event.
    void cancel(std::int32_t slot) {
        std::uint64_t& live = live_[index(slot)];
        if (live != kNone) --live_count_;
        live = kNone;
    }

    /// The time of the next event; the queue must not be empty.
    [[nodiscard]] std::int64_t next_time() {
        drop_cancelled();
        return heap_.front().time_ps;
    }

    /// Takes the next event and moves the clock to it; the queue must not be empty.
    Event pop() {
        drop_cancelled();
        const Entry entry = heap_.front();
        const auto slot = static_cast<std::int32_t>(entry.key & ((std::uint64_t{1} << kSlotBits) - 1));
        vacant_front_ = true;
        live_[index(slot)] = kNone;
        --live_count_;
        now_ = entry.time_ps;
        return {entry.time_ps, slot};
    }

  private:
    static constexpr int kSlotBits = 24;  // what is left numbers 10^12 events
    static constexpr std::size_t kChildren = 4;
    struct Entry {
        std::int64_t time_ps = 0;
        std::uint64_t key = 0;  // sequence, slot
        [[nodiscard]] bool before(const Entry& other) const {
            return time_ps != other.time_ps ? time_ps < other.time_ps : key < other.key;
        }
    };
    static constexpr std::uint64_t kNone = 0;
    static std::size_t index(std::int32_t slot) { return static_cast<std::size_t>(slot); }

    /// Moves the last entry up to its place.
    void rise(const Entry& entry) {
        std::size_t at = heap_.size() - 1;
        while (at > 0) {
            const std::size_t parent = (at - 1) / kChildren;
            if (!entry.before(heap_[parent])) break;
            heap_[at] = heap_[parent];
            at = parent;
        }
        heap_[at] = entry;
    }
    /// Puts the entry at the front and lets it sink to its place.
    void sink(const Entry& entry) {
        const std::size_t size = heap_.size();
        std::size_t at = 0;
        for (std::size_t child = 1; child < size; child = kChildren * at + 1) {
            const std::size_t end = std::min(child + kChildren, size);
            std::size_t first = child;
            for (std::size_t other = child + 1; other < end; ++other) {
                if (heap_[other].before(heap_[first])) first = other;
            }
            if (!heap_[first].before(entry)) break;
            heap_[at] = heap_[first];
            at = first;
        }
        heap_[at] = entry;
    }
    void drop_front() {
        const Entry last = heap_.back();
        heap_.pop_back();
        if (!heap_.empty()) sink(last);
    }
    void drop_cancelled() {
        ORRERY_CHECK(live_count_ > 0, "the queue is empty");
        if (vacant_front_) {
            vacant_front_ = false;
            drop_front();
        }
        while (live_[heap_.front().key & ((std::uint64_t{1} << kSlotBits) - 1)] != heap_.front().key) drop_front();
    }

    std::vector<Entry> heap_;
    bool vacant_front_ = false;        // the front was taken; mostly the next event, soon to come, takes its place
    std::vector<std::uint64_t> live_;  // per slot: key of its pending event
    std::size_t live_count_ = 0;
    std::uint64_t sequence_ = 0;
    std::int64_t now_ = 0;
};

}  // namespace orrery::sim
