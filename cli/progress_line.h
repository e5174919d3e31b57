// One line on the terminal, written over again and again: how far a training is.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "exec/training_progress.h"

namespace orrery::cli {

/// "step 104 (4 of 12), loss 3.214567, 1.23 s a step, 9 s left". Without a loss where nothing is computed; the time is
/// not known before the second step.
[[nodiscard]] std::string progress_words(const exec::TrainingProgress& progress, std::int64_t steps, bool has_loss,
                                         std::optional<double> step_s);

class ProgressLine {
  public:
    /// Of a run of `steps` steps, on standard error.
    ProgressLine(std::int64_t steps, bool has_loss) : steps_(steps), has_loss_(has_loss) {}
    ~ProgressLine() { show({}); }
    ProgressLine(const ProgressLine&) = delete;
    ProgressLine& operator=(const ProgressLine&) = delete;

    /// Writes the line, four times a second at most, or takes it away. Whatever else is written stands in its place.
    void show(const std::optional<exec::TrainingProgress>& progress);

  private:
    using Clock = std::chrono::steady_clock;
    std::int64_t steps_ = 0;
    bool has_loss_ = false;
    bool is_shown_ = false;
    std::int64_t first_done_ = 0;  // steps that were done when progress was first seen
    Clock::time_point first_seen_, shown_;
};

}  // namespace orrery::cli
