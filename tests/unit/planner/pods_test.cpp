// Steps on clusters of several pods with less bandwidth between pods than inside them.
#include <gtest/gtest.h>

#include "tests/unit/planner/planner_cases.h"

namespace orrery::sim {
namespace {

/// 8 nodes in two pods of 4 leaves; each of a pod's 8 spines has this many links to cores for its 4 to leaves.
topologies::ClusterSpec two_pods(std::int64_t uplinks_per_spine) {
    topologies::ClusterSpec cluster = topologies::load_cluster("dgx-h100", 64);
    cluster.fabric = topologies::FabricKind::fat_tree;
    cluster.nodes_per_scalable_unit = 0;
    cluster.fabric_shape = {.levels = 3,
                            .nodes_per_leaf = 1,
                            .uplinks_per_leaf = 8,
                            .leaves_per_pod = 4,
                            .uplinks_per_spine = uplinks_per_spine};
    return cluster;
}

/// Two stages of four replicas, each on one node: stages in different pods, or (pp_before_dp) in the same.
double step_s(std::int64_t uplinks_per_spine, bool pp_before_dp) {
    PlanRequest request = request_for("llama3-8b", 64, 8, 1024, "megatron-core");
    request.model.layers = 8;
    request.cluster = two_pods(uplinks_per_spine);
    const program::Plan plan = plan_of(
        request, {.dp = 4, .tp = 8, .pp = 2, .sequence_parallel = true, .sharding = {.pp_before_dp = pp_before_dp}});
    return evaluate(program::lower(plan), topologies::Cluster(plan.cluster)).result.step_time_s;
}

TEST(Pods, ReductionsAcrossThemWaitForTheCores) {
    const double wide = step_s(4, true), narrow = step_s(1, true);
    EXPECT_GT(narrow, 1.05 * wide);
}

TEST(Pods, TheOrderOfRanksDecidesWhatCrossesThem) {
    const double wide = step_s(4, false), narrow = step_s(1, false);
    EXPECT_LT(narrow, 1.01 * wide) << "only activations cross";
    EXPECT_LT(1.05 * narrow, step_s(1, true));
}

}  // namespace
}  // namespace orrery::sim
