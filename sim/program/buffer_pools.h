// Private to the lowerings: pools from which micro-batches take frames and boundary buffers.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <limits>
#include <vector>

namespace orrery::program {

/// A pool of equal slots, which hands out the lowest free one and grows if none is free.
class SlotPool {
  public:
    std::int32_t take() {
        const auto place = std::find(used_.begin(), used_.end(), false) - used_.begin();
        if (place == std::ssize(used_)) used_.push_back(false);
        used_[static_cast<std::size_t>(place)] = true;
        return static_cast<std::int32_t>(place);
    }
    void give_back(std::int32_t index) { used_.at(static_cast<std::size_t>(index)) = false; }
    [[nodiscard]] std::int32_t high_water() const { return static_cast<std::int32_t>(used_.size()); }

  private:
    std::vector<bool> used_;
};

/// A pool of equal slots, which are given back with the time from which on they are free, for example the end of a
/// transfer. It hands out the slot that has been free longest. It grows to `least` slots before it reuses any, and
/// whenever none is free at the time of taking.
class TimedPool {
  public:
    explicit TimedPool(std::int32_t least = 0) : least_(least) {}
    std::int32_t take(double now) {
        std::int32_t best = -1;
        for (std::int32_t i = 0; high_water() >= least_ && i < high_water(); ++i) {
            const double free_at = free_at_[static_cast<std::size_t>(i)];
            if (free_at > now) continue;
            if (best < 0 || free_at < free_at_[static_cast<std::size_t>(best)]) best = i;
        }
        if (best < 0) {
            free_at_.push_back(kTaken);
            return high_water() - 1;
        }
        free_at_[static_cast<std::size_t>(best)] = kTaken;
        return best;
    }
    void give_back(std::int32_t index, double free_at) { free_at_.at(static_cast<std::size_t>(index)) = free_at; }
    [[nodiscard]] std::int32_t high_water() const { return static_cast<std::int32_t>(free_at_.size()); }

  private:
    static constexpr double kTaken = std::numeric_limits<double>::infinity();
    std::int32_t least_;
    std::vector<double> free_at_;
};

}  // namespace orrery::program
