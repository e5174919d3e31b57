// The pending events of a simulation, ordered by (time, sequence): a total order, first in first out at equal times.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/error.h"

namespace orrery::sim {

/// A binary heap with lazy cancellation. Whoever may have an event pending owns a slot, and a slot has at most one: a
/// new one replaces the old, whose entry stays in the heap until it surfaces and is thrown away.
class EventQueue {
  public:
    struct Event {
        std::int64_t time_ps = 0;
        std::int32_t slot = 0;
    };

    explicit EventQueue(std::size_t slots) : live_(slots, kNone) {}

    [[nodiscard]] bool empty() const { return live_count_ == 0; }
    [[nodiscard]] std::size_t size() const { return live_count_; }
    [[nodiscard]] std::int64_t now() const { return now_; }
    [[nodiscard]] bool pending(std::int32_t slot) const { return live_[index(slot)] != kNone; }

    /// Sets the slot's event; one in the past is a bug, one now is not.
    void schedule(std::int32_t slot, std::int64_t time_ps) {
        ORRERY_CHECK(time_ps >= now_, "an event would lie in the past");
        std::uint64_t& live = live_[index(slot)];
        if (live == kNone) ++live_count_;
        live = ++sequence_;
        const Entry entry{time_ps, sequence_, slot};
        if (vacant_front_) {
            vacant_front_ = false;
            sink(entry);
        } else {
            heap_.push_back(entry);
            std::push_heap(heap_.begin(), heap_.end(), Later{});
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
        vacant_front_ = true;
        live_[index(entry.slot)] = kNone;
        --live_count_;
        now_ = entry.time_ps;
        return {entry.time_ps, entry.slot};
    }

  private:
    struct Entry {
        std::int64_t time_ps = 0;
        std::uint64_t sequence = 0;
        std::int32_t slot = 0;
    };
    struct Later {
        bool operator()(const Entry& a, const Entry& b) const {
            return a.time_ps != b.time_ps ? a.time_ps > b.time_ps : a.sequence > b.sequence;
        }
    };
    static constexpr std::uint64_t kNone = 0;
    static std::size_t index(std::int32_t slot) { return static_cast<std::size_t>(slot); }

    /// Puts the entry at the front and lets it sink to its place.
    void sink(const Entry& entry) {
        const std::size_t size = heap_.size();
        std::size_t at = 0;
        for (std::size_t child = 1; child < size; child = 2 * at + 1) {
            if (child + 1 < size && Later{}(heap_[child], heap_[child + 1])) ++child;
            if (!Later{}(entry, heap_[child])) break;
            heap_[at] = heap_[child];
            at = child;
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
        while (live_[index(heap_.front().slot)] != heap_.front().sequence) drop_front();
    }

    std::vector<Entry> heap_;
    bool vacant_front_ = false;        // the front was taken; mostly the next event, soon to come, takes its place
    std::vector<std::uint64_t> live_;  // per slot: sequence of its pending event
    std::size_t live_count_ = 0;
    std::uint64_t sequence_ = 0;
    std::int64_t now_ = 0;
};

}  // namespace orrery::sim
