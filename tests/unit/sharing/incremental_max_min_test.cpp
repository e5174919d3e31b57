// The incremental solver against the one that solves everything afresh, and the properties of both.
#include "sim/sharing/incremental_max_min.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "core/random.h"

namespace orrery::sim {
namespace {

using Use = IncrementalMaxMin::Use;
using Levels = std::vector<std::int64_t>;

class Dice {
  public:
    explicit Dice(std::uint64_t seed) : stream_(seed, "incremental max-min") {}
    std::int64_t below(std::int64_t bound) {
        return static_cast<std::int64_t>(stream_.below(next_++, static_cast<std::uint64_t>(bound)));
    }
    std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
    bool once_in(std::int64_t times) { return below(times) == 0; }

  private:
    RandomStream stream_;
    std::uint64_t next_ = 0;
};

/// A whole problem, kept beside the incremental one.
struct Problem {
    struct Activity {
        std::vector<Use> uses;
        std::int64_t cap = 0;
    };
    std::vector<Wide> capacities;
    std::map<std::int32_t, Activity> activities;  // by index in the incremental solver

    /// By the full solver, in the order of the indices.
    [[nodiscard]] Levels solve() const {
        Levels caps;
        std::vector<Demand> demands;
        for (const auto& [index, activity] : activities) {
            for (const Use& use : activity.uses) {
                demands.push_back({static_cast<std::int32_t>(caps.size()), use.resource, use.units});
            }
            caps.push_back(activity.cap);
        }
        return MaxMinSolver().levels(capacities, caps, demands);
    }
};

/// How large numbers are. In small ones nearly everything ties and is rounded; large ones fill 128 bits.
struct Sizes {
    std::int64_t capacity, units, cap;
};
constexpr Sizes kSizes[] = {{12, 2, 8}, {1000, 5, 300}, {kUnit, kUnit, 1 << 20}, {kUnlimited, kUnit, kUnlimited}};

Problem::Activity random_activity(Dice& dice, const Sizes& sizes, std::int32_t resources) {
    Problem::Activity activity;
    activity.cap = dice.once_in(3) ? kUnlimited : dice.between(dice.once_in(20) ? 0 : 1, sizes.cap);
    const std::int64_t count = dice.below(5);
    for (std::int64_t i = 0; i < count; ++i) {
        activity.uses.push_back({static_cast<std::int32_t>(dice.below(resources)), dice.between(1, sizes.units)});
    }
    return activity;
}

Wide random_capacity(Dice& dice, const Sizes& sizes) {
    return dice.once_in(15) ? 0 : static_cast<Wide>(dice.between(1, sizes.capacity)) * dice.between(1, 5);
}

/// Edits both by the dice.
void edit(Dice& dice, const Sizes& sizes, Problem& problem, IncrementalMaxMin& incremental) {
    const auto resources = static_cast<std::int32_t>(problem.capacities.size());
    const std::int64_t what = dice.below(10);
    if (what < 4 || problem.activities.empty()) {
        const Problem::Activity activity = random_activity(dice, sizes, resources);
        problem.activities[incremental.add(activity.uses, activity.cap)] = activity;
        return;
    }
    auto chosen = problem.activities.begin();
    std::advance(chosen, dice.below(static_cast<std::int64_t>(problem.activities.size())));
    if (what < 7) {
        incremental.remove(chosen->first);
        problem.activities.erase(chosen);
    } else if (what < 8) {
        chosen->second.cap = dice.between(1, sizes.cap);
        incremental.set_cap(chosen->first, chosen->second.cap);
    } else {
        const auto resource = static_cast<std::int32_t>(dice.below(resources));
        problem.capacities[static_cast<std::size_t>(resource)] = random_capacity(dice, sizes);
        incremental.set_capacity(resource, problem.capacities[static_cast<std::size_t>(resource)]);
    }
}

Levels levels_of(const Problem& problem, const IncrementalMaxMin& incremental) {
    Levels levels;
    for (const auto& [index, activity] : problem.activities) levels.push_back(incremental.level(index));
    return levels;
}

TEST(IncrementalMaxMin, EqualsTheFullSolverAfterEveryEdit) {
    for (int round = 0; round < 12'000; ++round) {
        Dice dice(static_cast<std::uint64_t>(round));
        const Sizes& sizes = kSizes[round % 4];
        Problem problem;
        const std::int64_t resources = dice.between(1, round % 10 == 0 ? 40 : 8);
        for (std::int64_t r = 0; r < resources; ++r) problem.capacities.push_back(random_capacity(dice, sizes));
        IncrementalMaxMin incremental(problem.capacities);
        const std::int64_t batches = dice.between(1, 20);
        for (std::int64_t batch = 0; batch < batches; ++batch) {
            const Levels before = levels_of(problem, incremental);
            const std::int64_t edits = dice.once_in(4) ? dice.between(2, 30) : 1;
            for (std::int64_t i = 0; i < edits; ++i) edit(dice, sizes, problem, incremental);
            static_cast<void>(incremental.settle());
            ASSERT_EQ(levels_of(problem, incremental), problem.solve()) << "round " << round << ", batch " << batch;
            ASSERT_FALSE(incremental.needs_settling());
        }
    }
}

TEST(IncrementalMaxMin, ReportsWhoseLevelChangedAndOnlyThose) {
    for (int round = 0; round < 1000; ++round) {
        Dice dice(static_cast<std::uint64_t>(round));
        const Sizes& sizes = kSizes[round % 4];
        Problem problem;
        for (int r = 0; r < 6; ++r) problem.capacities.push_back(random_capacity(dice, sizes));
        IncrementalMaxMin incremental(problem.capacities);
        std::map<std::int32_t, std::int64_t> known;  // levels, by index
        for (int batch = 0; batch < 20; ++batch) {
            const Problem before = problem;
            edit(dice, sizes, problem, incremental);
            std::erase_if(known, [&](const auto& entry) { return !problem.activities.contains(entry.first); });
            for (const std::int32_t index : incremental.settle()) {
                ASSERT_NE(known[index], incremental.level(index));
                known[index] = incremental.level(index);
            }
            for (const auto& [index, activity] : problem.activities) {
                ASSERT_EQ(known[index], incremental.level(index));
            }
        }
    }
}

/// What holds of every answer, whoever found it. `full` is the resource's level.
void expect_fair(const Problem& problem, const Levels& levels) {
    std::vector<Wide> load(problem.capacities.size());
    std::vector<Wide> units(problem.capacities.size());
    Levels highest(problem.capacities.size());
    std::size_t i = 0;
    for (const auto& [index, activity] : problem.activities) {
        const std::int64_t level = levels[i++];
        ASSERT_LE(level, activity.cap);
        for (const Use& use : activity.uses) {
            const auto r = static_cast<std::size_t>(use.resource);
            load[r] += static_cast<Wide>(use.units) * level;
            units[r] += use.units;
            highest[r] = std::max(highest[r], level);
        }
    }
    for (std::size_t r = 0; r < load.size(); ++r) ASSERT_TRUE(load[r] <= problem.capacities[r]) << "resource " << r;
    i = 0;
    for (const auto& [index, activity] : problem.activities) {
        const std::int64_t level = levels[i++];
        // At its cap, or on a resource that is full, but for rounding, and on which nobody rose higher.
        const bool held =
            level == activity.cap || std::any_of(activity.uses.begin(), activity.uses.end(), [&](const Use& use) {
                const auto r = static_cast<std::size_t>(use.resource);
                return load[r] + units[r] > problem.capacities[r] && highest[r] == level;
            });
        ASSERT_TRUE(held) << "activity " << index;
    }
}

/// All from one problem, without edits.
Levels solve_at_once(const Problem& problem) {
    IncrementalMaxMin incremental(problem.capacities);
    std::vector<std::int32_t> indices;
    for (const auto& [index, activity] : problem.activities) {
        indices.push_back(incremental.add(activity.uses, activity.cap));
    }
    static_cast<void>(incremental.settle());
    Levels levels;
    for (const std::int32_t index : indices) levels.push_back(incremental.level(index));
    return levels;
}

Problem random_problem(int round) {
    Dice dice(static_cast<std::uint64_t>(round) + 1'000'000);
    const Sizes& sizes = kSizes[round % 4];
    Problem problem;
    const std::int64_t resources = dice.between(1, 12);
    for (std::int64_t r = 0; r < resources; ++r) problem.capacities.push_back(random_capacity(dice, sizes));
    const auto activities = static_cast<std::int32_t>(dice.between(1, 25));
    for (std::int32_t a = 0; a < activities; ++a) {
        problem.activities[a] = random_activity(dice, sizes, static_cast<std::int32_t>(resources));
    }
    return problem;
}

TEST(MaxMinProperties, FeasibleAndFair) {
    for (int round = 0; round < 20'000; ++round) {
        const Problem problem = random_problem(round);
        const Levels levels = solve_at_once(problem);
        ASSERT_EQ(levels, problem.solve()) << "round " << round;
        ASSERT_NO_FATAL_FAILURE(expect_fair(problem, levels)) << "round " << round;
    }
}

TEST(MaxMinProperties, NamesAndOrderDoNotMatter) {
    for (int round = 0; round < 5000; ++round) {
        const Problem problem = random_problem(round);
        Dice dice(static_cast<std::uint64_t>(round));
        std::vector<std::int32_t> resource_names(problem.capacities.size());
        std::iota(resource_names.begin(), resource_names.end(), 0);
        std::vector<std::int32_t> activity_names(problem.activities.size());
        std::iota(activity_names.begin(), activity_names.end(), 0);
        const auto shuffle = [&](std::vector<std::int32_t>& names) {
            for (std::size_t i = names.size(); i > 1; --i) {
                std::swap(names[i - 1], names[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(i)))]);
            }
        };
        shuffle(resource_names);
        shuffle(activity_names);
        Problem renamed;
        renamed.capacities.resize(problem.capacities.size());
        for (std::size_t r = 0; r < problem.capacities.size(); ++r) {
            renamed.capacities[static_cast<std::size_t>(resource_names[r])] = problem.capacities[r];
        }
        for (const auto& [index, activity] : problem.activities) {
            Problem::Activity& copy = renamed.activities[activity_names[static_cast<std::size_t>(index)]];
            copy = activity;
            for (Use& use : copy.uses) use.resource = resource_names[static_cast<std::size_t>(use.resource)];
            std::reverse(copy.uses.begin(), copy.uses.end());
        }
        const Levels levels = solve_at_once(problem);
        const Levels of_renamed = solve_at_once(renamed);
        for (std::size_t a = 0; a < levels.size(); ++a) {
            ASSERT_EQ(levels[a], of_renamed[static_cast<std::size_t>(activity_names[a])]) << "round " << round;
        }
    }
}

/// Units and capacities times k leave the levels as they are; so does one activity in place of k equal ones with units
/// times k, which is what a weight is.
TEST(MaxMinProperties, ScaleAndWeights) {
    for (int round = 0; round < 5000; ++round) {
        Problem problem = random_problem(round);
        if (round % 4 == 3) continue;  // the largest have no room for a factor
        const Levels levels = solve_at_once(problem);
        const std::int64_t factor = 1 + round % 7;
        Problem scaled = problem;
        for (Wide& capacity : scaled.capacities) capacity *= factor;
        for (auto& [index, activity] : scaled.activities) {
            for (Use& use : activity.uses) use.units *= factor;
        }
        ASSERT_EQ(solve_at_once(scaled), levels) << "round " << round;

        Problem repeated = problem;
        const auto copies = static_cast<std::int32_t>(factor);
        for (std::int32_t copy = 1; copy < copies; ++copy) repeated.activities[1000 + copy] = problem.activities.at(0);
        Problem weighted = problem;
        for (Use& use : weighted.activities.at(0).uses) use.units *= factor;
        ASSERT_EQ(solve_at_once(weighted)[0], solve_at_once(repeated)[0]) << "round " << round;
    }
}

/// The lowest level never falls when a resource grows. (The total may, so nothing is said of it.)
TEST(MaxMinProperties, MoreCapacityNeverLowersTheLowest) {
    for (int round = 0; round < 10'000; ++round) {
        Problem problem = random_problem(round);
        const Levels before = solve_at_once(problem);
        Dice dice(static_cast<std::uint64_t>(round));
        Wide& grown =
            problem
                .capacities[static_cast<std::size_t>(dice.below(static_cast<std::int64_t>(problem.capacities.size())))];
        grown += grown / 2 + 1;
        const Levels after = solve_at_once(problem);
        ASSERT_GE(*std::min_element(after.begin(), after.end()), *std::min_element(before.begin(), before.end()))
            << "round " << round;
    }
}

TEST(IncrementalMaxMin, WeightsDivideALink) {
    // 12 = 1 * x + 3 * x: levels of 3, so the heavy one moves 9 and the light one 3.
    IncrementalMaxMin incremental({12});
    const std::int32_t light = incremental.add(std::vector<Use>{{0, 1}}, kUnlimited);
    const std::int32_t heavy = incremental.add(std::vector<Use>{{0, 3}}, kUnlimited);
    static_cast<void>(incremental.settle());
    EXPECT_EQ(incremental.level(light), 3);
    EXPECT_EQ(incremental.level(heavy), 3);
    EXPECT_EQ(incremental.full_at(0), 3);
}

TEST(IncrementalMaxMin, AChangeStopsWhereNothingIsFull) {
    // 0: a, b; 1: b, c with room to spare. Ending a lets b rise, which c does not notice.
    IncrementalMaxMin incremental({10, 100});
    const std::int32_t a = incremental.add(std::vector<Use>{{0, 1}}, kUnlimited);
    const std::int32_t b = incremental.add(std::vector<Use>{{0, 1}, {1, 1}}, kUnlimited);
    const std::int32_t c = incremental.add(std::vector<Use>{{1, 1}}, 50);
    EXPECT_EQ(incremental.settle().size(), 3U);
    incremental.remove(a);
    EXPECT_EQ(incremental.settle(), (std::vector<std::int32_t>{b}));
    EXPECT_EQ(incremental.level(b), 10);
    EXPECT_EQ(incremental.level(c), 50);
}

TEST(IncrementalMaxMin, AResourceWithNothingToGiveStopsItsActivities) {
    IncrementalMaxMin incremental({10, 10});
    const std::int32_t a = incremental.add(std::vector<Use>{{0, 1}, {1, 1}}, kUnlimited);
    const std::int32_t b = incremental.add(std::vector<Use>{{1, 1}}, kUnlimited);
    static_cast<void>(incremental.settle());
    EXPECT_EQ(incremental.level(b), 5);
    incremental.set_capacity(0, 0);
    static_cast<void>(incremental.settle());
    EXPECT_EQ(incremental.level(a), 0);
    EXPECT_EQ(incremental.level(b), 10);
    incremental.set_capacity(0, 3);
    static_cast<void>(incremental.settle());
    EXPECT_EQ(incremental.level(a), 3);
    EXPECT_EQ(incremental.level(b), 7);
}

}  // namespace
}  // namespace orrery::sim
