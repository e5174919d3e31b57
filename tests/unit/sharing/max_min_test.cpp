// The incremental solver against a reference solver after every edit, and general properties of its results.
#include "sim/sharing/max_min.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "core/random.h"
#include "tests/unit/sharing/reference_max_min.h"

namespace orrery::sim {
namespace {

using Draw = MaxMin::Draw;
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

/// The complete problem, which a test keeps in step with the solver.
struct Problem {
    std::vector<Wide> capacities;
    std::map<std::int32_t, ReferenceActivity> activities;  // the running ones

    /// The levels by the reference solver, in the order of the activities.
    [[nodiscard]] Levels solve() const {
        std::vector<ReferenceActivity> list;
        for (const auto& [index, activity] : activities) list.push_back(activity);
        return reference_max_min(capacities, list);
    }
};

/// Uses the solver in one of two ways: permissions to draw are given at each start and revoked at each stop, or, with
/// `fixed` activities, they are given once for all resources.
class Solver {
  public:
    explicit Solver(const std::vector<Wide>& capacities, std::int32_t fixed = 0) : is_fixed_(fixed > 0) {
        std::vector<Draw> all;
        for (const Wide capacity : capacities) all.push_back({sharing_.add_resource(capacity), 1});
        for (std::int32_t i = 0; i < fixed; ++i) {
            free_.push_back(sharing_.add_activities(1));
            sharing_.may_draw(free_.back(), all);
        }
    }
    std::int32_t start(const ReferenceActivity& activity) {
        if (free_.empty()) free_.push_back(sharing_.add_activities(1));
        const std::int32_t index = free_.back();
        free_.pop_back();
        const MaxMin::Draws draws = sharing_.add_draws(activity.draws);
        if (!is_fixed_) sharing_.may_draw(index, draws);
        sharing_.start(index, draws, activity.cap, activity.weight);
        return index;
    }
    void stop(std::int32_t index) {
        sharing_.stop(index);
        if (!is_fixed_) sharing_.may_draw_no_more(index);
        free_.push_back(index);
    }
    [[nodiscard]] bool is_full() const { return is_fixed_ && free_.empty(); }
    MaxMin& sharing() { return sharing_; }
    [[nodiscard]] std::int64_t level(std::int32_t index) const { return sharing_.level(index); }

  private:
    bool is_fixed_;
    MaxMin sharing_;
    std::vector<std::int32_t> free_;
};

/// The magnitude of numbers. With small ones nearly everything ties and is rounded; large ones need 128 bits.
struct Sizes {
    std::int64_t capacity, units, cap;
};
constexpr Sizes kSizes[] = {{12, 2, 8}, {1000, 5, 300}, {kUnit, kUnit, 1 << 20}, {kUnlimited, kUnit, kUnlimited}};

ReferenceActivity random_activity(Dice& dice, const Sizes& sizes, std::int32_t resources) {
    ReferenceActivity activity;
    activity.cap = dice.once_in(3) ? kUnlimited : dice.between(dice.once_in(20) ? 0 : 1, sizes.cap);
    if (dice.once_in(4)) activity.weight = dice.between(1, 3);
    const std::int64_t count = dice.below(5);
    for (std::int64_t i = 0; i < count; ++i) {
        activity.draws.push_back({static_cast<std::int32_t>(dice.below(resources)), dice.between(1, sizes.units)});
    }
    return activity;
}

Wide random_capacity(Dice& dice, const Sizes& sizes) {
    return dice.once_in(15) ? 0 : static_cast<Wide>(dice.between(1, sizes.capacity)) * dice.between(1, 5);
}

/// Makes a random edit to both the problem and the solver. Returns the activity that was started, or -1.
std::int32_t edit(Dice& dice, const Sizes& sizes, Problem& problem, Solver& solver) {
    const auto resources = static_cast<std::int32_t>(problem.capacities.size());
    const std::int64_t what = dice.below(10);
    if (what >= 8) {
        const auto resource = static_cast<std::int32_t>(dice.below(resources));
        problem.capacities[static_cast<std::size_t>(resource)] = random_capacity(dice, sizes);
        solver.sharing().set_capacity(resource, problem.capacities[static_cast<std::size_t>(resource)]);
        return -1;
    }
    if (what >= 4 && !problem.activities.empty()) {
        auto chosen = problem.activities.begin();
        std::advance(chosen, dice.below(static_cast<std::int64_t>(problem.activities.size())));
        solver.stop(chosen->first);
        problem.activities.erase(chosen);
    }
    if ((what >= 4 || solver.is_full()) && what != 7) return -1;
    const ReferenceActivity activity = random_activity(dice, sizes, resources);
    const std::int32_t index = solver.start(activity);
    problem.activities[index] = activity;
    return index;
}

Levels levels_of(const Problem& problem, const Solver& solver) {
    Levels levels;
    for (const auto& [index, activity] : problem.activities) levels.push_back(solver.level(index));
    return levels;
}

TEST(MaxMin, MatchesTheReferenceSolverAfterEveryEdit) {
    for (int round = 0; round < 12'000; ++round) {
        Dice dice(static_cast<std::uint64_t>(round));
        const Sizes& sizes = kSizes[round % 4];
        Problem problem;
        const std::int64_t resources = dice.between(1, round % 10 == 0 ? 40 : 8);
        for (std::int64_t r = 0; r < resources; ++r) problem.capacities.push_back(random_capacity(dice, sizes));
        Solver solver(problem.capacities, round % 3 == 0 ? 8 : 0);
        const std::int64_t batches = dice.between(1, 20);
        for (std::int64_t batch = 0; batch < batches; ++batch) {
            const Levels before = levels_of(problem, solver);
            const std::int64_t edits = dice.once_in(4) ? dice.between(2, 30) : 1;
            for (std::int64_t i = 0; i < edits; ++i) (void)edit(dice, sizes, problem, solver);
            static_cast<void>(solver.sharing().settle());
            ASSERT_EQ(levels_of(problem, solver), problem.solve()) << "round " << round << ", batch " << batch;
            ASSERT_FALSE(solver.sharing().needs_settling());
        }
    }
}

TEST(MaxMin, ReportsTheActivitiesWhoseLevelChanged) {
    for (int round = 0; round < 1000; ++round) {
        Dice dice(static_cast<std::uint64_t>(round));
        const Sizes& sizes = kSizes[round % 4];
        Problem problem;
        for (int r = 0; r < 6; ++r) problem.capacities.push_back(random_capacity(dice, sizes));
        Solver solver(problem.capacities);
        std::map<std::int32_t, std::int64_t> known;  // levels, by index
        for (int batch = 0; batch < 20; ++batch) {
            const Problem before = problem;
            const std::int32_t started = edit(dice, sizes, problem, solver);
            std::erase_if(known, [&](const auto& entry) { return !problem.activities.contains(entry.first); });
            for (const std::int32_t index : solver.sharing().settle()) known[index] = solver.level(index);
            if (started >= 0) known[started] = solver.level(started);
            for (const auto& [index, activity] : problem.activities) {
                ASSERT_EQ(known[index], solver.level(index));
            }
        }
    }
}

/// Checks that the levels are feasible and max-min fair.
void expect_fair(const Problem& problem, const Levels& levels) {
    std::vector<Wide> load(problem.capacities.size());
    std::vector<Wide> units(problem.capacities.size());
    Levels highest(problem.capacities.size());
    std::size_t i = 0;
    for (const auto& [index, activity] : problem.activities) {
        const std::int64_t level = levels[i++];
        ASSERT_LE(level, activity.cap);
        for (const Draw& use : activity.draws) {
            const auto r = static_cast<std::size_t>(use.resource);
            load[r] += static_cast<Wide>(use.units) * activity.weight * level;
            units[r] += static_cast<Wide>(use.units) * activity.weight;
            highest[r] = std::max(highest[r], level);
        }
    }
    for (std::size_t r = 0; r < load.size(); ++r) ASSERT_TRUE(load[r] <= problem.capacities[r]) << "resource " << r;
    i = 0;
    for (const auto& [index, activity] : problem.activities) {
        const std::int64_t level = levels[i++];
        // At its cap, or on a resource that is full except for rounding and on which no activity is higher.
        const bool is_limited =
            level == activity.cap || std::any_of(activity.draws.begin(), activity.draws.end(), [&](const Draw& use) {
                const auto r = static_cast<std::size_t>(use.resource);
                return load[r] + units[r] > problem.capacities[r] && highest[r] == level;
            });
        ASSERT_TRUE(is_limited) << "activity " << index;
    }
}

/// Starts all activities and settles once.
Levels solve_at_once(const Problem& problem) {
    Solver solver(problem.capacities);
    std::vector<std::int32_t> indices;
    for (const auto& [index, activity] : problem.activities) {
        indices.push_back(solver.start(activity));
    }
    static_cast<void>(solver.sharing().settle());
    Levels levels;
    for (const std::int32_t index : indices) levels.push_back(solver.level(index));
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

TEST(MaxMinProperties, LevelsAreFeasibleAndFair) {
    for (int round = 0; round < 20'000; ++round) {
        const Problem problem = random_problem(round);
        const Levels levels = solve_at_once(problem);
        ASSERT_EQ(levels, problem.solve()) << "round " << round;
        ASSERT_NO_FATAL_FAILURE(expect_fair(problem, levels)) << "round " << round;
    }
}

TEST(MaxMinProperties, IndicesAndOrderDoNotMatter) {
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
            ReferenceActivity& copy = renamed.activities[activity_names[static_cast<std::size_t>(index)]];
            copy = activity;
            for (Draw& use : copy.draws) use.resource = resource_names[static_cast<std::size_t>(use.resource)];
            std::reverse(copy.draws.begin(), copy.draws.end());
        }
        const Levels levels = solve_at_once(problem);
        const Levels of_renamed = solve_at_once(renamed);
        for (std::size_t a = 0; a < levels.size(); ++a) {
            ASSERT_EQ(levels[a], of_renamed[static_cast<std::size_t>(activity_names[a])]) << "round " << round;
        }
    }
}

/// Multiplying all units and capacities by k does not change the levels. Neither does replacing k equal activities by
/// one with k times the units.
TEST(MaxMinProperties, ScalingAndMergingKeepTheLevels) {
    for (int round = 0; round < 5000; ++round) {
        Problem problem = random_problem(round);
        if (round % 4 == 3) continue;  // the largest numbers would overflow
        const Levels levels = solve_at_once(problem);
        const std::int64_t factor = 1 + round % 7;
        Problem scaled = problem;
        for (Wide& capacity : scaled.capacities) capacity *= factor;
        for (auto& [index, activity] : scaled.activities) {
            for (Draw& use : activity.draws) use.units *= factor;
        }
        ASSERT_EQ(solve_at_once(scaled), levels) << "round " << round;

        Problem repeated = problem;
        const auto copies = static_cast<std::int32_t>(factor);
        for (std::int32_t copy = 1; copy < copies; ++copy) repeated.activities[1000 + copy] = problem.activities.at(0);
        Problem weighted = problem;
        for (Draw& use : weighted.activities.at(0).draws) use.units *= factor;
        ASSERT_EQ(solve_at_once(weighted)[0], solve_at_once(repeated)[0]) << "round " << round;
    }
}

/// More capacity never lowers the lowest level. (It may lower the sum of levels, which is not checked.)
TEST(MaxMinProperties, MoreCapacityNeverLowersTheLowestLevel) {
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

std::int32_t start(Solver& solver, std::vector<Draw> draws, std::int64_t cap = kUnlimited, std::int64_t weight = 1) {
    return solver.start({.draws = std::move(draws), .cap = cap, .weight = weight});
}

TEST(MaxMin, ActivitiesShareAResourceByWeight) {
    // 12 = 1 * x + 3 * x: both levels are 3, so the heavy activity takes 9 and the light one 3.
    Solver solver({12});
    const std::int32_t light = start(solver, {{0, 1}});
    const std::int32_t heavy = start(solver, {{0, 1}}, kUnlimited, 3);
    static_cast<void>(solver.sharing().settle());
    EXPECT_EQ(solver.level(light), 3);
    EXPECT_EQ(solver.level(heavy), 3);
}

TEST(MaxMin, AChangeDoesNotSpreadAcrossAResourceWithSlack) {
    // Resource 0: a and b; resource 1: b and c, not full. Stopping a raises b, but c is not affected.
    Solver solver({10, 100});
    const std::int32_t a = start(solver, {{0, 1}});
    const std::int32_t b = start(solver, {{0, 1}, {1, 1}});
    const std::int32_t c = start(solver, {{1, 1}}, 50);
    EXPECT_EQ(solver.level(c), 50);  // without settle()
    static_cast<void>(solver.sharing().settle());
    EXPECT_EQ(solver.level(a), 5);
    EXPECT_EQ(solver.level(b), 5);
    solver.stop(a);
    EXPECT_EQ(solver.sharing().settle(), (std::vector<std::int32_t>{b}));
    EXPECT_EQ(solver.level(b), 10);
    EXPECT_EQ(solver.level(c), 50);
}

TEST(MaxMin, AResourceWithoutCapacityStopsItsActivities) {
    Solver solver({10, 10});
    const std::int32_t a = start(solver, {{0, 1}, {1, 1}});
    const std::int32_t b = start(solver, {{1, 1}});
    static_cast<void>(solver.sharing().settle());
    EXPECT_EQ(solver.level(b), 5);
    solver.sharing().set_capacity(0, 0);
    static_cast<void>(solver.sharing().settle());
    EXPECT_EQ(solver.level(a), 0);
    EXPECT_EQ(solver.level(b), 10);
    solver.sharing().set_capacity(0, 3);
    static_cast<void>(solver.sharing().settle());
    EXPECT_EQ(solver.level(a), 3);
    EXPECT_EQ(solver.level(b), 7);
}

/// The levels of activities whose cap is full speed.
Levels rates(const std::vector<std::int64_t>& capacities, const std::vector<std::vector<Draw>>& activities) {
    std::vector<Wide> whole;
    for (const std::int64_t capacity : capacities) whole.push_back(static_cast<Wide>(capacity) * kFullRate);
    Solver solver(whole);
    std::vector<std::int32_t> indices;
    for (const std::vector<Draw>& draws : activities) indices.push_back(start(solver, draws, kFullRate));
    static_cast<void>(solver.sharing().settle());
    Levels result;
    for (const std::int32_t index : indices) result.push_back(solver.level(index));
    return result;
}

TEST(FullSpeed, ActivitiesThatFitRunAtFullSpeed) {
    EXPECT_EQ(rates({kUnit}, {{{0, kUnit / 2}}, {{0, kUnit / 2}}}), (Levels{kFullRate, kFullRate}));
    EXPECT_EQ(rates({}, {{}}), (Levels{kFullRate}));
}

TEST(FullSpeed, FourActivitiesOnTwoCoresRunAtHalfSpeed) {
    EXPECT_EQ(rates({2 * kUnit}, std::vector<std::vector<Draw>>(4, {{0, kUnit}})), (Levels(4, kFullRate / 2)));
}

TEST(FullSpeed, AnActivityLimitedElsewhereLeavesCapacity) {
    // Resource 0 limits activities 0, 1 and 2 to 1/3. Activity 3 shares resource 1 with activity 2 only and takes the
    // rest, 2/3.
    const Levels levels = rates({kUnit, kUnit}, {{{0, kUnit}}, {{0, kUnit}}, {{0, kUnit}, {1, kUnit}}, {{1, kUnit}}});
    EXPECT_EQ(levels, (Levels{kFullRate / 3, kFullRate / 3, kFullRate / 3, kFullRate - kFullRate / 3}));
}

TEST(FullSpeed, UnequalDemandsGetEqualRates) {
    // 0.9 + 0.6 = 1.5 of one link: both run at 1 / 1.5.
    EXPECT_EQ(rates({kUnit}, {{{0, 900'000'000}}, {{0, 600'000'000}}}), (Levels(2, kFullRate * 2 / 3)));
}

}  // namespace
}  // namespace orrery::sim
