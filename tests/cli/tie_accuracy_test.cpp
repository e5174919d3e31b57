// Whether the interval of the ratio of two steps, on which ties rest, holds for published runs of one job under
// several layouts.
#include <gtest/gtest.h>

#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "sim/planner/timing.h"
#include "sim/program/step_ratio.h"
#include "sim/published/plan_of.h"
#include "sim/published/published_run.h"

namespace orrery::test {
namespace {

struct PredictedRun {
    program::PlanResult predicted;
    double measured_s = 0;
};

struct Measured {
    program::Plan plan;
    double step_time_s = 0;
};

/// Runs by the job that they share, as `orrery calibrate` groups them for its ranking of layouts.
std::map<std::string, std::vector<Measured>> measured_jobs() {
    std::map<std::string, std::vector<Measured>> jobs;
    for (const published::PublishedRow& row :
         published::read_published_rows({std::string(ORRERY_SOURCE_DIR) + "/sim/published/data"})) {
        if (!row.refused.empty() || !row.run.scored || !row.measured.step_time_s) continue;
        published::PlanOfRun translated = published::plan_of(row.run);
        if (!translated.plan) continue;
        const published::PublishedRun& run = row.run;
        const std::string job = run.source + "|" + run.model.name + "|" +
                                std::to_string(run.model.sequence_length.value_or(0)) + "|" + run.hardware.gpu + "|" +
                                std::to_string(run.hardware.gpus.value_or(0)) + "|" +
                                std::to_string(run.global_batch.value_or(0));
        jobs[job].push_back({std::move(*translated.plan), *row.measured.step_time_s});
    }
    return jobs;
}

/// As the planner predicts it.
PredictedRun predicted_run(const Measured& measured) {
    const program::Plan& plan = measured.plan;
    const topologies::Cluster cluster(plan.cluster);
    const sim::RooflineCost cost(plan.cluster, plan.rates);
    PredictedRun run{.predicted = sim::timed(plan, cluster, cost), .measured_s = measured.step_time_s};
    sim::add_derivatives(cluster, cost, run.predicted);
    return run;
}

TEST(TieAccuracy, IntervalsOfRatiosHoldForPublishedRuns) {
    double held_pairs = 0, pairs = 0, share_of_jobs = 0;
    std::size_t counted = 0;
    for (const auto& [name, job] : measured_jobs()) {
        if (job.size() < 2) continue;  // no ratio
        std::vector<PredictedRun> runs;
        for (const Measured& one : job) runs.push_back(predicted_run(one));
        double held = 0, all = 0;
        for (std::size_t i = 0; i < runs.size(); ++i) {
            for (std::size_t j = 0; j < i; ++j) {
                const auto ratio = program::ratio_to_first(runs[i].predicted, runs[j].predicted);
                if (!ratio.has_value()) continue;
                const double measured = runs[i].measured_s / runs[j].measured_s;
                ++all;
                if (measured >= ratio->low && measured <= ratio->high) ++held;
            }
        }
        if (all == 0) continue;
        ++counted;
        held_pairs += held;
        pairs += all;
        share_of_jobs += held / all;
    }
    ASSERT_GT(counted, 100U);
    RecordProperty("share of pairs", std::to_string(held_pairs / pairs));
    const double mean_of_jobs = share_of_jobs / static_cast<double>(counted);
    std::cout << held_pairs / pairs << " of " << pairs << " ratios, " << mean_of_jobs << " as the mean of " << counted
              << " jobs\n";
    EXPECT_GT(held_pairs / pairs, 0.8);
    // Nearer to 90% than to 80% or 100%: neither too narrow nor so wide that everything is a tie.
    EXPECT_GT(mean_of_jobs, 0.85);
    EXPECT_LT(mean_of_jobs, 0.97);
}

}  // namespace
}  // namespace orrery::test
