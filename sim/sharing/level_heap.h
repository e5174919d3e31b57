// The next stops of a sweep over levels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace orrery::sim {

/// A binary heap with the lowest stop in front. The order of equal stops depends only on the sequence of calls.
class LevelHeap {
  public:
    struct Stop {
        std::uint64_t stop = 0;
        std::int32_t index = 0;  // of the activity or resource at the stop
    };

    [[nodiscard]] bool empty() const { return stops_.empty(); }
    [[nodiscard]] const Stop& front() const { return stops_.front(); }
    void clear() { stops_.clear(); }

    void push(const Stop& stop) {
        stops_.push_back(stop);
        std::size_t gap = stops_.size() - 1;
        while (gap > 0 && stop.stop < stops_[(gap - 1) / 2].stop) {
            stops_[gap] = stops_[(gap - 1) / 2];
            gap = (gap - 1) / 2;
        }
        stops_[gap] = stop;
    }

    /// Removes the front and returns its index; the heap must not be empty.
    std::int32_t pop() {
        const std::int32_t index = stops_.front().index;
        const Stop last = stops_.back();
        stops_.pop_back();
        const std::size_t size = stops_.size();
        if (size == 0) return index;
        std::size_t gap = 0;
        for (std::size_t child = 1; child < size; child = 2 * gap + 1) {
            // Branch-free, because a branch on the lower child could not be predicted.
            const std::size_t other = child + 1 < size ? child + 1 : child;
            child += (other - child) * static_cast<std::size_t>(stops_[other].stop < stops_[child].stop);
            if (last.stop <= stops_[child].stop) break;
            stops_[gap] = stops_[child];
            gap = child;
        }
        stops_[gap] = last;
        return index;
    }

  private:
    std::vector<Stop> stops_;
};

}  // namespace orrery::sim
