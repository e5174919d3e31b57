// Plans that others ran and measured: jobs under several layouts each. A search ranks them as their full simulation
// does, and excludes none that it should not.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "sim/planner/lowered_bounds.h"
#include "sim/planner/planner.h"
#include "sim/planner/timing.h"
#include "sim/program/program.h"
#include "sim/published/plan_of.h"
#include "sim/published/run_groups.h"

namespace orrery::sim {
namespace {

using program::Plan;

constexpr std::size_t kFewestPlans = 4;  // of a sweep
constexpr std::size_t kEvery = 12;       // the sweeps that are looked at, in the order of their names

std::map<std::string, std::vector<Plan>> plans_by_sweep(const std::string& file) {
    std::map<std::string, std::vector<Plan>> sweeps;
    for (const published::PublishedRow& row : published::read_published_rows({file})) {
        if (!row.refused.empty()) continue;
        const std::optional<Plan> plan = published::plan_of(row.run).plan;
        if (plan.has_value()) sweeps[published::sweep_of(row.run)].push_back(*plan);
    }
    std::erase_if(sweeps, [](const auto& sweep) { return sweep.second.size() < kFewestPlans; });
    return sweeps;
}

struct Times {
    std::string plan;
    double searched_s = 0, simulated_s = 0;
};

Times times_of(const Plan& plan) {
    const topologies::Cluster cluster(plan.cluster);
    const RooflineCost cost(plan.cluster, plan.rates);
    const Times times{plan.name, timed(plan, cluster, cost).step_time_s,
                      evaluate(program::lower(plan), cluster).result.step_time_s};
    EXPECT_NEAR(times.searched_s / times.simulated_s, 1, kStepTolerance) << plan.name;
    EXPECT_LE((1 - kStepTolerance) * lowered_bounds(plan, cluster, cost).least_step_s, times.simulated_s) << plan.name;
    if (has_brief(plan)) {
        EXPECT_LE((1 - kStepTolerance) * brief_step_s(plan, cluster, cost), times.simulated_s) << plan.name;
    }
    return times;
}

TEST(PublishedSweeps, AreRankedAsTheirFullSimulationRanksThem) {
    const char* shared = std::getenv("ORRERY_SHARED");
    const std::string folder = shared != nullptr ? shared : std::string(ORRERY_SOURCE_DIR) + "/../shared";
    const std::string file = folder + "/validation/training.json";
    if (!std::filesystem::exists(file)) GTEST_SKIP() << file << " is not there; set ORRERY_SHARED";
    std::size_t index = 0, pairs = 0;
    for (const auto& [name, sweep] : plans_by_sweep(file)) {
        if (index++ % kEvery != 0) continue;
        SCOPED_TRACE(name);
        std::vector<Times> times;
        for (const Plan& plan : sweep) times.push_back(times_of(plan));
        for (const Times& a : times) {
            for (const Times& b : times) {
                // What differs by less than the error of a step is a tie.
                if (a.simulated_s >= (1 - 2 * kStepTolerance) * b.simulated_s) continue;
                EXPECT_LT(a.searched_s, b.searched_s) << a.plan << ", " << b.plan;
                ++pairs;
            }
        }
    }
    EXPECT_GT(pairs, 100U);
}

}  // namespace
}  // namespace orrery::sim
