#include "sim/refine/refine.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "sim/cost/roofline_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/refine/factors.h"
#include "tests/unit/topologies/made_up_cluster.h"

namespace orrery::sim {
namespace {

using program::Plan;
using program::Program;
using topologies::ClusterSpec;

TEST(FitFactors, SeparatesOperatorsOfOneInstruction) {
    // Two kinds that always occur together, and one that never occurs.
    std::vector<Observation> observations;
    for (int i = 1; i <= 200; ++i) {
        const double a = 1e-3 * i, b = 1e-1 / i;
        observations.push_back({1.25 * a + 0.8 * b, {{0, a}, {1, b}}});
    }
    const std::vector<double> factors = fit_factors(3, observations);
    EXPECT_NEAR(factors[0], 1.25, 0.02);  // the prior keeps it slightly below
    EXPECT_NEAR(factors[1], 0.8, 0.05);
    EXPECT_EQ(factors[2], 1.0);
}

TEST(FitFactors, StaysWithinBoundsAndSplitsIndistinguishableOperatorsEvenly) {
    EXPECT_EQ(fit_factors(1, std::vector<Observation>{{100.0, {{0, 1.0}}}}), std::vector<double>{kLargestFactor});
    EXPECT_EQ(fit_factors(1, std::vector<Observation>{{1e-3, {{0, 1.0}}}}).front(), kSmallestFactor);
    // Two operators that always occur together cannot be distinguished; both get half of the excess.
    const std::vector<double> alike = fit_factors(2, std::vector<Observation>{{3.0, {{0, 1.0}, {1, 1.0}}}});
    EXPECT_NEAR(alike[0], alike[1], 1e-6);
    EXPECT_NEAR(alike[0] + alike[1], 3.0, 0.1);
}

/// A cluster with timings of GEMMs and of one other operator.
ClusterSpec two_cores() {
    ClusterSpec cluster = test::made_up_local_cluster();
    for (const std::int64_t size : {64, 128, 256, 1024}) {
        const double seconds = 2.0 * static_cast<double>(size * size * size) / 5e10;
        for (const char* op : {"linear_forward", "linear_backward_input", "linear_backward_weight"}) {
            cluster.device.matmul_samples.push_back({op, size, size, size, seconds});
        }
        cluster.device.operator_samples.push_back({.op = "gelu_forward",
                                                   .bytes = static_cast<double>(size) * 1024,
                                                   .seconds = static_cast<double>(size) * 1e-6});
    }
    return cluster;
}

struct Job {
    const char* name;
    const char* model;
    std::int64_t dp, tp, pp;
};

MeasuredRun run_on(const ClusterSpec& truth, const ClusterSpec& believed, const Job& job) {
    Plan plan;
    plan.name = job.name;
    plan.model = models::load_model(job.model);
    plan.implementation = models::load_implementation("orrery");
    plan.parallelism.dp = job.dp;
    plan.parallelism.tp = job.tp;
    plan.parallelism.pp = job.pp;
    plan.training.global_batch_size = 8;
    plan.training.sequence_length = 32;
    plan.training.precision = program::precision_named("fp32");
    plan.cluster = believed;
    plan.parallelism.stage_layers.assign(static_cast<std::size_t>(job.pp), plan.model.layers / job.pp);
    program::check_plan(plan, plan.name);
    MeasuredRun run{job.name, program::lower(plan), {}};
    const topologies::Cluster cluster(truth);
    run.record = simulate(run.program, cluster, RooflineCost(truth), NetworkCommunication(cluster),
                          {.full = true, .record_spans = true});
    run.record.maker = program::Maker::executed;
    return run;
}

std::vector<MeasuredRun> runs_on(const ClusterSpec& truth, const ClusterSpec& believed) {
    std::vector<MeasuredRun> runs;
    for (const Job& job :
         {Job{"one", "tiny-gpt", 1, 1, 1}, Job{"dp2", "tiny-gpt", 2, 1, 1}, Job{"tp2", "tiny-gpt", 1, 2, 1},
          Job{"pp2", "tiny-gpt", 1, 1, 2}, Job{"tp2 again", "tiny-gpt", 1, 2, 1}, Job{"dp2 again", "tiny-gpt", 2, 1, 1},
          Job{"four", "tiny-gpt", 2, 2, 1}}) {
        runs.push_back(run_on(truth, believed, job));
    }
    return runs;
}

double factor_of(const Refinement& refinement, const std::string& op) {
    for (const TimingFactor& one : refinement.factors) {
        if (one.op == op) return one.factor;
    }
    return 0;
}

/// Runs are simulated on a machine that differs from the profile; refining finds that machine's timings.
TEST(Refine, FindsTheTimingsOfTheMachineThatRan) {
    const ClusterSpec believed = two_cores();
    ClusterSpec truth = believed;
    for (auto& sample : truth.device.matmul_samples) sample.seconds *= 1.5;
    for (auto& sample : truth.device.operator_samples) sample.seconds *= 0.5;
    for (auto& sample : truth.transport_samples) sample.seconds *= sample.op == "all_reduce" ? 2.0 : 1.0;
    truth.device.memory_bandwidth_gb_per_s.value /= 2;  // affects operators without timings
    const Refinement refinement = refine(believed, runs_on(truth, believed));
    EXPECT_NEAR(factor_of(refinement, "linear_forward"), 1.5, 0.2);
    EXPECT_NEAR(factor_of(refinement, "linear_backward_weight"), 1.5, 0.2);
    EXPECT_NEAR(factor_of(refinement, "all_reduce"), 2.0, 0.1);
    EXPECT_NEAR(factor_of(refinement, "adamw"), 2.0, 0.1);
    ASSERT_EQ(refinement.runs.size(), 7U);
    for (const RefinedRun& run : refinement.runs) {
        SCOPED_TRACE(run.name);
        EXPECT_EQ(run.is_fitted, run.name != "four");
        EXPECT_LT(run.before_s, 0.8 * run.measured_s);
        EXPECT_NEAR(run.after_s, run.measured_s, 0.03 * run.measured_s);
    }
    // Operators without timings now have some, at the observed sizes.
    const auto& timed = refinement.cluster.device.operator_samples;
    EXPECT_TRUE(std::any_of(timed.begin(), timed.end(), [](const auto& sample) { return sample.op == "adamw"; }));
    EXPECT_EQ(refinement.cluster.device.matmul_samples.size(), believed.device.matmul_samples.size());
}

TEST(Refine, LeavesACorrectProfileUnchanged) {
    const ClusterSpec cluster = two_cores();
    const Refinement refinement = refine(cluster, runs_on(cluster, cluster));
    for (const TimingFactor& one : refinement.factors) EXPECT_NEAR(one.factor, 1.0, 0.02) << one.op;
    for (const RefinedRun& run : refinement.runs) EXPECT_NEAR(run.after_s, run.measured_s, 1e-3 * run.measured_s);
}

TEST(Refine, RefusesTooFewRunsAndRecordsWithoutSpans) {
    const ClusterSpec cluster = two_cores();
    std::vector<MeasuredRun> runs = runs_on(cluster, cluster);
    runs[1].record.ranks[1].spans.clear();
    EXPECT_THROW((void)refine(cluster, runs), InputError);
    std::vector<MeasuredRun> few;
    few.push_back(std::move(runs[0]));
    few.push_back(std::move(runs[6]));
    EXPECT_THROW((void)refine(cluster, few), InputError);
}

}  // namespace
}  // namespace orrery::sim
