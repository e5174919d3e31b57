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
        std::int64_t time_ps = 0;
        std::uint64_t order = 0;  // among those of one time; no two are equal
        std::int32_t slot = 0;
        [[nodiscard]] bool before(const Event& other) const {
            return time_ps != other.time_ps ? time_ps < other.time_ps : order < other.order;
        }
    };

    [[nodiscard]] bool empty() const { return heap_.empty(); }
    [[nodiscard]] std::size_t size() const { return heap_.size(); }
    [[nodiscard]] const Event& front() const { return heap_.front(); }

    /// A slot has at most one event; a new one takes its place.
    void schedule(const Event& event) {
        if (positions_.size() <= index(event.slot)) positions_.resize(index(event.slot) + 1, kNone);
        const std::int32_t position = positions_[index(event.slot)];
        if (position == kNone) {
            heap_.emplace_back();
            rise(heap_.size() - 1, event);
        } else if (event.before(heap_[index(position)])) {
            rise(index(position), event);
        } else {
            sink(index(position), event);
        }
    }

    /// Without effect when the slot has no event.
    void cancel(std::int32_t slot) {
        if (positions_.size() <= index(slot) || positions_[index(slot)] == kNone) return;
        const std::size_t gap = index(positions_[index(slot)]);
        positions_[index(slot)] = kNone;
        const Event last = heap_.back();
        heap_.pop_back();
        if (gap == heap_.size()) return;
        if (gap > 0 && last.before(heap_[(gap - 1) / kChildren])) {
            rise(gap, last);
        } else {
            sink(gap, last);
        }
    }

  private:
    static constexpr std::size_t kChildren = 4;
    static constexpr std::int32_t kNone = -1;
    static std::size_t index(std::int32_t value) { return static_cast<std::size_t>(value); }

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
                if (heap_[other].before(heap_[first])) first = other;
            }
            if (!heap_[first].before(event)) break;
            put(gap, heap_[first]);
            gap = first;
        }
        put(gap, event);
    }

    std::vector<Event> heap_;
    std::vector<std::int32_t> positions_;  // by slot, in the heap; kNone: no event
};

}  // namespace orrery::sim
