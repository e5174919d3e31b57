// Sharing of resources among running activities, in integers.
#pragma once

#include <cstdint>
#include <vector>

namespace orrery::sim {

/// For products of an amount and a rate.
__extension__ using Wide = __int128;

/// Capacity of one resource of which there is one piece (one core, one port) in demand units.
inline constexpr std::int64_t kUnit = 1'000'000'000;
/// An activity's rate is a fraction of its full speed, in units of 1 / kFullRate.
inline constexpr std::int64_t kFullRate = std::int64_t{1} << 30;

/// What `activity` takes of `resource` at full speed, in units. An activity may name a resource several times.
struct Demand {
    std::int32_t activity = 0;
    std::int32_t resource = 0;
    std::int64_t units = 0;  // > 0
};

/// Max-min fair rates by progressive filling: all activities speed up together until a resource is full; those on it
/// stop there and the others go on, at most to full speed. Levels are rounded down to whole units of 1 / kFullRate, so
/// no resource is ever over-subscribed and equal inputs give equal integers. Returns one rate for each activity.
[[nodiscard]] std::vector<std::int64_t> max_min_rates(const std::vector<std::int64_t>& capacities,
                                                      std::size_t activities, const std::vector<Demand>& demands);

/// The same for one problem after another.
class MaxMinSolver {
  public:
    /// Valid until the next call.
    [[nodiscard]] const std::vector<std::int64_t>& rates(const std::vector<std::int64_t>& capacities,
                                                         std::size_t activities, const std::vector<Demand>& demands);

  private:
    struct Filling {
        Wide left = 0;            // capacity * kFullRate minus what fixed activities take
        std::int64_t rising = 0;  // units demanded by activities that are still speeding up
        [[nodiscard]] std::int64_t level() const {
            const Wide level = left / rising;
            return level >= kFullRate ? kFullRate : static_cast<std::int64_t>(level);
        }
    };
    std::vector<std::int64_t> rates_;
    std::vector<Filling> resources_;
    std::vector<std::int64_t> levels_;  // of resources on which something is rising
};

}  // namespace orrery::sim
