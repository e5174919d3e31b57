// Sweeps: runs of one job under several layouts, where what counts is which of them is best.
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
    std::size_t sweeps = 0;  // with at least kFewestSweepRuns runs
    /// By how much longer than the fastest the run takes that is predicted to be the fastest, as a share.
    double regret_median = 0, regret_p90 = 0;
    double spearman_median = 0;  // of predicted and measured
};
inline constexpr std::size_t kFewestSweepRuns = 4;

[[nodiscard]] SweepSummary sweep_summary(const std::vector<SweepRun>& runs);
/// One line.
[[nodiscard]] std::string sweep_text(const SweepSummary& summary);

}  // namespace orrery::reports
