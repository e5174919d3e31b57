// A single terminal line with the progress of a training run or of a search for a plan.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "exec/training_progress.h"
#include "sim/planner/planner.h"

namespace orrery::cli {

/// "step 104 (4 of 12), loss 3.214567, 1.23 s a step, 9 s left". Paced runs have no loss; times are known from the
/// second step on.
[[nodiscard]] std::string progress_words(const exec::TrainingProgress& progress, std::int64_t steps, bool has_loss,
                                         std::optional<double> step_s);

class ProgressLine {
  public:
    /// Progress of a run of `steps` steps, on standard error.
    ProgressLine(std::int64_t steps, bool has_loss) : steps_(steps), has_loss_(has_loss) {}
    ~ProgressLine() { show({}); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// Writes the line, at most four times a second, or erases it (nullopt). Other output overwrites the line.
    void show(const std::optional<exec::TrainingProgress>& progress);

  private:
    using Clock = std::chrono::steady_clock;
    std::int64_t steps_ = 0;
    bool has_loss_ = false;
    bool is_shown_ = false;
    std::int64_t first_done_ = 0;  // completed steps at the first call
    Clock::time_point first_seen_, shown_;
};

/// Shows a text in place of the one before it on standard error, and erases it if the text is empty. Empty unless
/// standard error is a terminal.
[[nodiscard]] std::function<void(const std::string&)> status_line();

/// "megatron-core: 7,012,345 of 7,638,174 plans decided, 3,210,000 a second; best 38.6 s, the rest at least 37.9 s".
[[nodiscard]] std::string search_words(const sim::SearchProgress& progress);

/// Shows how far a search has come, and erases the line at its end. For PlanRequest::observer; empty unless standard
/// error is a terminal.
[[nodiscard]] std::function<void(const sim::SearchProgress&)> search_line();

}  // namespace orrery::cli
