#include "sim/planner/audit.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

void run_backwards(std::size_t count, const std::function<void(std::size_t)>& work) {
    for (std::size_t i = count; i > 0; --i) work(i - 1);
}

/// Checks that nothing that the search excluded is better than what it found. Returns the ways of being excluded.
std::set<std::string> expect_sound(const PlanRequest& request) {
    std::set<std::string> ways;
    const topologies::Cluster cluster(request.cluster);
    const Audit audit = audit_search(request, cluster, 3, 120, 7, run_backwards);
    std::int64_t sampled = 0;
    for (const AuditStratum& one : audit.strata) {
        SCOPED_TRACE(request.implementation.name + ": " + one.excluded_by);
        ways.insert(one.excluded_by);
        sampled += one.sampled;
        EXPECT_GT(one.sampled, 0);
        EXPECT_LE(one.sampled, one.candidates);
        EXPECT_EQ(one.sampled, one.too_large + one.simulated);
        EXPECT_TRUE(one.faster.empty());
        EXPECT_TRUE(one.below_bound.empty()) << one.below_bound.front();
        EXPECT_GE(one.least_ratio, 1 - kStepTolerance);  // infinite if none was simulated
        EXPECT_TRUE(one.excluded_by != "memory" || one.simulated == 0);
    }
    EXPECT_GT(sampled, 60);
    EXPECT_LE(sampled, 120);
    return ways;
}

TEST(Audit, FindsNoExcludedPlanThatIsFasterAndNoneThatFitsAmongTheTooLarge) {
    std::set<std::string> ways;
    for (const char* implementation : {"megatron-core", "torch-fsdp2", "orrery"}) {
        PlanRequest request = request_for("llama3-8b", 16, 64, 4096, implementation);
        request.cluster.device.memory_capacity_gib.value = 40;
        ways.merge(expect_sound(request));
    }
    EXPECT_GE(ways.size(), 6U);
}

TEST(Audit, FindsNoneInTheFullSpaceEither) {
    for (const char* model : {"llama3-8b", "mixtral-8x7b"}) {
        PlanRequest request = request_for(model, 16, 64, 4096, "megatron-core");
        request.cluster.device.memory_capacity_gib.value = 40;
        allow_full_space(request);
        expect_sound(request);
    }
    // Split backward passes may not offload activations, so that a sharding that has to is no candidate with them.
    PlanRequest request = request_for("llama3-8b", 16, 64, 4096, "orrery");
    request.cluster.device.memory_capacity_gib.value = 30;
    allow_full_space(request);
    request.schedules = {program::Schedule::one_f_one_b, program::Schedule::zb_v};
    request.offload = {Offload::activations, Offload::optimizer};
    expect_sound(request);
}

TEST(Audit, EqualArgumentsGiveEqualResultsWhateverTheOrder) {
    const PlanRequest request = request_for("gpt2-medium", 8, 16, 1024, "megatron-core");
    const topologies::Cluster cluster(request.cluster);
    const auto run_forwards = [](std::size_t count, const std::function<void(std::size_t)>& work) {
        for (std::size_t i = 0; i < count; ++i) work(i);
    };
    const Audit a = audit_search(request, cluster, 1, 40, 3, run_backwards);
    const Audit b = audit_search(request, cluster, 1, 40, 3, run_forwards);
    ASSERT_EQ(a.strata.size(), b.strata.size());
    for (std::size_t i = 0; i < a.strata.size(); ++i) {
        EXPECT_EQ(a.strata[i].excluded_by, b.strata[i].excluded_by);
        EXPECT_EQ(a.strata[i].too_large, b.strata[i].too_large);
        EXPECT_EQ(a.strata[i].least_ratio, b.strata[i].least_ratio);
    }
}

}  // namespace
}  // namespace orrery::sim
