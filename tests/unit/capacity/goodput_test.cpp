#include "sim/capacity/goodput.h"

#include <gtest/gtest.h>

#include <cmath>

namespace orrery::sim {
namespace {

constexpr double kHour = 3600, kDay = 24 * kHour;

/// Work over elapsed time, over many runs.
double simulated_goodput(const FaultModel& faults, double work_s, std::uint64_t runs = 40) {
    double elapsed = 0;
    for (std::uint64_t run = 0; run < runs; ++run) elapsed += simulate_job(faults, work_s, 7, run).elapsed_s;
    return work_s * static_cast<double>(runs) / elapsed;
}

TEST(Goodput, OfTheEventSimulationIsTheExactOne) {
    // From rare failures to several an hour; 0.5 points.
    for (const double mean : {20 * kHour, 3.1 * kHour, 0.5 * kHour}) {
        for (const double checkpoint : {5.0, 60.0, 300.0}) {
            for (const double recovery : {60.0, 600.0, 1800.0}) {
                for (const double interval : {300.0, best_interval_s(mean, checkpoint), 3600.0}) {
                    const FaultModel faults{.mean_between_s = mean,
                                            .checkpoint_s = checkpoint,
                                            .recovery_s = recovery,
                                            .interval_s = interval};
                    EXPECT_NEAR(simulated_goodput(faults, 60 * kDay), exact_goodput(faults), 0.005)
                        << mean << " " << checkpoint << " " << recovery << " " << interval;
                }
            }
        }
    }
}

TEST(Goodput, TheFirstOrderFigureIsNoOracleAtScale) {
    // 131,072 devices with an interruption each 50,700 device-hours: every 23 minutes.
    const double mean = 50700 * kHour / 131072;
    FaultModel faults{.mean_between_s = mean, .checkpoint_s = 60, .recovery_s = 900};
    faults.interval_s = best_interval_s(mean, 60);
    const double tau = std::sqrt(2 * 60 * mean);  // Young
    const double first_order = 1 - 60 / (tau + 60) - (tau / 2 + 900) / mean;
    const double exact = exact_goodput(faults);
    EXPECT_GT(std::abs(first_order - exact), 0.1);
    EXPECT_NEAR(simulated_goodput(faults, 60 * kDay), exact, 0.005);
}

TEST(Goodput, TheBestIntervalIsTheBest) {
    for (const double mean : {20 * kHour, 3.09 * kHour, 0.2 * kHour}) {
        for (const double checkpoint : {1.0, 10.0, 60.0, 300.0}) {
            FaultModel faults{.mean_between_s = mean, .checkpoint_s = checkpoint, .recovery_s = 100};
            faults.interval_s = best_interval_s(mean, checkpoint);
            const double best = exact_goodput(faults);
            for (const double factor : {0.5, 0.9, 0.99, 1.01, 1.1, 2.0}) {
                FaultModel other = faults;
                other.interval_s *= factor;
                EXPECT_LE(exact_goodput(other), best) << mean << " " << checkpoint << " " << factor;
            }
        }
    }
    // Close to Young's where the checkpoint is short beside the mean time between failures.
    EXPECT_NEAR(best_interval_s(3.09 * kHour, 10), std::sqrt(2 * 10 * 3.09 * kHour), 10);
    EXPECT_EQ(best_interval_s(kHour, 0), kLeastIntervalS);
}

TEST(Goodput, PublishedInterruptionsAreReproduced) {
    // Llama 3 405B: 16,384 H100 for 54 days had 419 unexpected interruptions, which is one each 50,700 device-hours.
    const double mean = 50700 * kHour / 16384;
    EXPECT_NEAR(mean / kHour, 3.09, 0.01);
    FaultModel faults{.mean_between_s = mean, .checkpoint_s = 10, .recovery_s = 600};
    faults.interval_s = best_interval_s(mean, 10);
    double interruptions = 0;
    constexpr int kRuns = 50;
    for (int run = 0; run < kRuns; ++run) {
        // So much work that the job lasts 54 days.
        const JobRun one = simulate_job(faults, 54 * kDay * exact_goodput(faults), 7, static_cast<std::uint64_t>(run));
        interruptions += static_cast<double>(one.interruptions);
        EXPECT_NEAR(one.elapsed_s, 54 * kDay, 2 * kDay);
    }
    EXPECT_NEAR(interruptions / kRuns, 419, 10);
}

TEST(Goodput, ARunsTimeIsTheSumOfItsParts) {
    const FaultModel faults{.mean_between_s = 2 * kHour,
                            .checkpoint_s = 30,
                            .recovery_s = 300,
                            .interval_s = 1200,
                            .replaced_share = 0.6,
                            .repair_s = 12 * kHour,
                            .spare_nodes = 2};
    const double work = 10 * kDay;
    for (std::uint64_t run = 0; run < 20; ++run) {
        const JobRun one = simulate_job(faults, work, 3, run);
        EXPECT_GT(one.interruptions, 0);
        EXPECT_NEAR(one.elapsed_s, work + one.lost_s + one.checkpoint_s + one.recovery_s + one.waiting_s, 1e-3);
        EXPECT_EQ(simulate_job(faults, work, 3, run).elapsed_s, one.elapsed_s);
    }
}

TEST(Goodput, AJobWithoutFailuresOnlySaves) {
    const FaultModel faults{.mean_between_s = 1e15, .checkpoint_s = 10, .recovery_s = 300, .interval_s = 1000};
    const JobRun one = simulate_job(faults, 9500, 1, 0);
    EXPECT_EQ(one.interruptions, 0);
    EXPECT_DOUBLE_EQ(one.elapsed_s, 9500 + 10 * 10);  // nine whole intervals and the rest
    EXPECT_DOUBLE_EQ(one.lost_s, 0);
}

TEST(Goodput, EnoughSparesAreNeverWaitedFor) {
    FaultModel faults{.mean_between_s = 3.1 * kHour,
                      .checkpoint_s = 10,
                      .recovery_s = 600,
                      .interval_s = 600,
                      .replaced_share = 0.6,
                      .repair_s = kDay};
    // On average 4.6 nodes are in repair.
    const std::int64_t spares = spares_for(faults, 0.999);
    EXPECT_GT(spares, 8);
    EXPECT_LT(spares, 20);
    const auto waiting = [&](std::int64_t nodes) {
        faults.spare_nodes = nodes;
        double total = 0;
        for (std::uint64_t run = 0; run < 20; ++run) total += simulate_job(faults, 30 * kDay, 5, run).waiting_s;
        return total / (20 * 30 * kDay);
    };
    EXPECT_LT(waiting(spares), 1e-3);
    EXPECT_GT(waiting(1), 0.2);  // one node at a time is repaired
    EXPECT_GT(waiting(2), waiting(5));
    faults.replaced_share = 0;
    EXPECT_EQ(spares_for(faults, 0.999), 0);
    EXPECT_EQ(waiting(0), 0);
}

TEST(Goodput, BurstsOfFailuresCostLess) {
    // With the same mean, failures in bursts leave longer stretches without any.
    FaultModel faults{.mean_between_s = 2 * kHour, .checkpoint_s = 30, .recovery_s = 60, .interval_s = 1800};
    const double steady = simulated_goodput(faults, 60 * kDay);
    faults.shape = 0.6;
    EXPECT_GT(simulated_goodput(faults, 60 * kDay), steady + 0.005);
}

}  // namespace
}  // namespace orrery::sim
