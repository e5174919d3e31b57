// How long a job takes on devices that fail: checkpoints, restarts and spare nodes.
//
// The job saves a checkpoint after each `interval_s` of work. When a node fails, the work since the last checkpoint is
// lost; after `recovery_s` (detection, restart, reload), in which nodes may fail again, the job goes on. With a share
// of the failures a node has to be replaced by a spare one until it has been repaired; without a spare the job waits
// for the next repair.
#pragma once

#include <cstdint>

namespace orrery::sim {

struct FaultModel {
    double mean_between_s = 0;  // mean time between interruptions of the job, > 0
    /// Of the Weibull distribution of these times: 1 for failures at a constant rate; below 1 for failures that come
    /// in bursts, or mostly soon after a restart.
    double shape = 1;
    double checkpoint_s = 0;    // for which a checkpoint keeps the job from working
    double recovery_s = 0;      // from a failure until the job works again
    double interval_s = 0;      // work between checkpoints, > 0
    double replaced_share = 0;  // of the interruptions: those after which a node has to be replaced
    double repair_s = 0;        // until a replaced node can be used again
    std::int64_t spare_nodes = 0;
};

/// The share of a long job's time in which it does work that lasts: interval / (M e^(R/M) (e^((interval + C)/M) - 1)),
/// with the mean time M between failures, the checkpoint time C and the recovery time R. Exact for failures at a
/// constant rate at any time, also during checkpoints and recovery (Daly, A higher order estimate of the optimum
/// checkpoint interval for restart dumps, 2006), and as many spare nodes as are needed. Only the times are read.
[[nodiscard]] double exact_goodput(const FaultModel& faults);

/// The interval with the highest exact_goodput, which does not depend on the recovery time: the root of
/// e^(-(interval + C)/M) = 1 - interval / M. To first order sqrt(2 C M) (Young). At least kLeastIntervalS: without
/// checkpoint time any interval is too long.
[[nodiscard]] double best_interval_s(double mean_between_s, double checkpoint_s);
inline constexpr double kLeastIntervalS = 1;

/// The smallest number of spare nodes that suffice at any moment with this probability, in the long run: the nodes in
/// repair follow a Poisson distribution with the mean replaced_share x repair_s / mean_between_s.
[[nodiscard]] std::int64_t spares_for(const FaultModel& faults, double probability);

struct JobRun {
    double elapsed_s = 0;  // from the start to the end of the work
    std::int64_t interruptions = 0;
    double lost_s = 0;        // work done again
    double checkpoint_s = 0;  // in checkpoints that were kept
    double recovery_s = 0;
    double waiting_s = 0;  // for a repaired node
};
/// One run of a job with `work_s` of work, event by event. Runs with different numbers are independent.
[[nodiscard]] JobRun simulate_job(const FaultModel& faults, double work_s, std::uint64_t seed, std::uint64_t run);

}  // namespace orrery::sim
