// Sweeps: runs of one job under several layouts, used to test whether the best layout is predicted.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace orrery::reports {

struct SweepRun {
    std::string sweep;  // equal for runs of one job
    double predicted_s = 0, measured_s = 0;
};

struct SweepSummary {
    std::size_t sweeps = 0;  // sweeps with at least kFewestSweepRuns runs
    /// Measured time of the run predicted to be fastest, relative to the fastest measured run, minus 1.
    double regret_median = 0, regret_p90 = 0, regret_most = 0;
    /// The same for the fastest measured one of the kMeasuredFirst runs predicted to be fastest.
    double measured_regret_median = 0, measured_regret_p90 = 0, measured_regret_most = 0;
    double runs_median = 0;      // runs of a sweep
    double spearman_median = 0;  // rank correlation of predicted and measured times
};
inline constexpr std::size_t kFewestSweepRuns = 4;
inline constexpr std::size_t kMeasuredFirst = 3;

[[nodiscard]] SweepSummary sweep_summary(const std::vector<SweepRun>& runs);
/// One line.
[[nodiscard]] std::string sweep_text(const SweepSummary& summary);
/// One line: what remains of the regret if the first kMeasuredFirst choices are measured.
[[nodiscard]] std::string measured_regret_text(const SweepSummary& summary);

}  // namespace orrery::reports
