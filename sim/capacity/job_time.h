// How long a job takes on a number of devices, with what that costs.
#pragma once

#include <cstdint>

#include "sim/program/capacity_answer.h"
#include "sim/program/plan.h"

namespace orrery::sim {

/// Bytes that a checkpoint holds for each parameter: weights as stored, master weights and optimizer states.
[[nodiscard]] double checkpoint_bytes_per_parameter(const program::Training& training);

/// What a job's time depends on beside its plan.
struct JobTerms {
    program::CapacityGoal goal;
    double parameters = 0;
    std::int64_t devices_per_node = 1;
    program::FaultFigures faults;  // all figures are set
    program::CostFigures costs;
    std::int64_t most_devices = 0;     // spare ones included
    double checkpoint_gb_per_s = 0;    // of all nodes together; 0: faults.checkpoint_gb_per_s_per_node of each
    double checkpoint_interval_s = 0;  // 0: best_interval_s
    double weibull_shape = 1;          // FaultModel::shape
    std::uint64_t seed = 1234;
};

/// The probability with which the spare nodes suffice at any moment.
inline constexpr double kSparesSuffice = 0.999;
/// Runs of the job that are simulated, each with a step time of its own from the predicted interval.
inline constexpr std::int64_t kJobRuns = 200;

/// The smallest number of spare devices, in whole nodes, with which a job on `devices` rarely waits for a repair, or as
/// many as are allowed.
[[nodiscard]] std::int64_t spare_devices(const JobTerms& terms, std::int64_t devices, std::int64_t devices_used);

/// The time and the costs of the job on the point's devices and the spare ones. The step times of the runs are spread
/// evenly over the probabilities of the predicted interval (rate_spread.h), so the quantiles cover what is not known
/// about the step and what failures do by chance.
[[nodiscard]] program::CapacitySize job_time(const JobTerms& terms, const program::ScalingPoint& point,
                                             std::int64_t spare_devices, double bytes_per_parameter);

/// The same with the number of spare nodes, up to spare_devices(), with which the job is done in time and takes the
/// fewest device-days; with spare_devices() if none suffices.
[[nodiscard]] program::CapacitySize job_time_with_spares(const JobTerms& terms, const program::ScalingPoint& point,
                                                         double bytes_per_parameter);

}  // namespace orrery::sim
