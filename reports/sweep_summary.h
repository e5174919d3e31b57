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
    double regret_median = 0, regret_p90 = 0;
    double spearman_median = 0;  // rank correlation of predicted and measured times
};
inline constexpr std::size_t kFewestSweepRuns = 4;

[[nodiscard]] SweepSummary sweep_summary(const std::vector<SweepRun>& runs);
/// One line.
[[nodiscard]] std::string sweep_text(const SweepSummary& summary);

}  // namespace orrery::reports
