// The progress of a training, from its ranks' pages or recorder.
#pragma once

#include <cstdint>
#include <optional>

#include "exec/faults/rank_page.h"
#include "exec/faults/recorder.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// Whether this rank's loss is added to the loss of the step. Every rank with the head has the loss of its own tokens;
/// of the ranks that share a vocabulary and so compute the same loss, only the first counts.
[[nodiscard]] bool speaks_for_loss(const program::Program& program, std::int64_t rank);

/// The mean over a step's tokens.
[[nodiscard]] double mean_loss(const program::Program& program, double sum);

struct TrainingProgress {
    std::int64_t first_step = 0;  // number of the run's first step within the whole training
    std::int64_t steps_done = 0;  // in this run, at least one
    double loss = 0;              // of the last step done
    friend bool operator==(const TrainingProgress&, const TrainingProgress&) = default;
};

/// The progress of a job, from its pages. Empty until all ranks have completed a step, and again once a rank has left
/// the training stage.
[[nodiscard]] std::optional<TrainingProgress> progress_of(const JobPages& pages, const program::Program& program);
/// The progress of a job of one process.
[[nodiscard]] std::optional<TrainingProgress> progress_of(const FlightRecorder& recorder,
                                                          const program::Program& program);

}  // namespace orrery::exec
