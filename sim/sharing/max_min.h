// Max-min fair sharing of resources among running activities, in integers: the whole problem, solved afresh.
//
// Activity a rises to a level x[a] and takes units * x[a] of each resource that it demands; what a resource gives is
// its capacity. All activities rise together until a resource is full or one of them is at its cap; those on it stop
// there, and the others go on. A level is a whole number; where that does not come out even, it is rounded down:
//
//     level of a resource = floor((capacity - units * x of those that stopped lower) / units of those that have not)
//
// So no resource is ever over-subscribed, and the answer depends on no order: equal problems have equal integers.
#pragma once

#include <cstdint>
#include <vector>

namespace orrery::sim {

/// For products of an amount and a level.
__extension__ using Wide = __int128;

/// Units of a resource of which there is one piece (one core, one port).
inline constexpr std::int64_t kUnit = 1'000'000'000;
/// An activity that is simulated as a fraction of its full speed has this level at full speed.
inline constexpr std::int64_t kFullRate = std::int64_t{1} << 30;
/// The cap of an activity that has none. One that demands nothing rises to here.
inline constexpr std::int64_t kUnlimited = std::int64_t{1} << 62;

/// What `activity` takes of `resource` for each level that it has risen. An activity may name a resource several times.
struct Demand {
    std::int32_t activity = 0;
    std::int32_t resource = 0;
    std::int64_t units = 0;  // > 0
};

/// Where a resource is full: what is left of it goes to those that are still rising, in equal levels.
[[nodiscard]] inline std::int64_t level_of(Wide left, std::int64_t rising_units) {
    const Wide level = left / rising_units;
    return level >= kUnlimited ? kUnlimited : static_cast<std::int64_t>(level);
}

/// Solves one problem after another. Each takes rounds over all demands, one for each level at which something stops.
class MaxMinSolver {
  public:
    /// One level for each activity, of which there are as many as caps; 0 where a resource has nothing to give. Valid
    /// until the next call.
    [[nodiscard]] const std::vector<std::int64_t>& levels(const std::vector<Wide>& capacities,
                                                          const std::vector<std::int64_t>& caps,
                                                          const std::vector<Demand>& demands);

  private:
    struct Filling {
        Wide left = 0;            // capacity minus what stopped activities take
        std::int64_t rising = 0;  // units demanded by activities that are still rising
    };
    std::vector<std::int64_t> levels_;
    std::vector<Filling> resources_;
    std::vector<std::int64_t> full_at_;  // by resource; kUnlimited: nothing rises on it
};

}  // namespace orrery::sim
