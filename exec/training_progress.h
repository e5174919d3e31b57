// How far a training is, from what its ranks tell while they run.
#pragma once

#include <cstdint>
#include <optional>

#include "exec/faults/rank_page.h"
#include "exec/faults/recorder.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// Whether the loss of the rank's tokens counts: ranks over which the vocabulary is cut compute the same loss, and of
/// them one speaks. Each holder of the head has it for its own tokens.
[[nodiscard]] bool speaks_for_loss(const program::Program& program, std::int64_t rank);

/// The mean over a step's tokens.
[[nodiscard]] double mean_loss(const program::Program& program, double sum);

struct TrainingProgress {
    std::int64_t first_step = 0;  // of the run, counted from the first of the training
    std::int64_t steps_done = 0;  // of the run, at least one
    double loss = 0;              // of the last of them
    friend bool operator==(const TrainingProgress&, const TrainingProgress&) = default;
};

/// Of a job by its pages; none before all ranks have done a step, and once one of them has left its last step behind.
[[nodiscard]] std::optional<TrainingProgress> progress_of(const JobPages& pages, const program::Program& program);
/// Of a process that is alone.
[[nodiscard]] std::optional<TrainingProgress> progress_of(const FlightRecorder& recorder,
                                                          const program::Program& program);

}  // namespace orrery::exec
