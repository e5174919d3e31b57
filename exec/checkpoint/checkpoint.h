// Checkpoints of a training run. All ranks write the state that they own into one folder, and any plan with the same
// model and training settings can resume from it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "exec/checkpoint/folder.h"
#include "exec/checkpoint/state.h"
#include "exec/interpreter.h"
#include "exec/transport/transport.h"

namespace orrery::exec {

struct CheckpointOptions {
    std::string plan_path;      // for messages
    std::string folder;         // where checkpoints are written; "": nowhere
    std::int64_t every = 0;     // steps between checkpoints, counted from the start of the training; 0: at the end only
    std::int64_t keep = 2;      // number of newest checkpoints to keep
    std::string resume_folder;  // the checkpoints to resume from; "": start a new training
};

/// Checks the options in a single process, before the job starts. Throws InputError if a path cannot be a folder, if
/// `folder` holds checkpoints of another run, or if this plan cannot resume from any checkpoint in `resume_folder`.
void check_checkpoints(const program::Program& program, const CheckpointOptions& options);

struct Resumed {
    std::int64_t step = 0;  // steps done when the checkpoint was written
    std::string path;
    double seconds = 0;                // time to read it
    std::vector<std::string> skipped;  // newer checkpoints that are damaged: what is wrong with each
};

/// Collective, between steps. Restores all ranks from the newest undamaged checkpoint in the folder; rank 0 reports
/// newer, damaged ones on standard error. Throws InputError if all checkpoints are damaged or if the plan's settings
/// differ (check_settings).
[[nodiscard]] Resumed resume(const Interpreter& interpreter, Transport& transport, const CheckpointOptions& options);

/// Writes a run's checkpoints. All members are collective.
class CheckpointWriter {
  public:
    /// Locks the folder (see CheckpointFolder). `resumed_step`: step of the checkpoint that the run resumed from, or
    /// -1.
    CheckpointWriter(const Interpreter& interpreter, Transport& transport, const CheckpointOptions& options,
                     std::int64_t resumed_step);

    /// Call it between steps, with no transfer in flight. When it returns, the checkpoint is on disk and older ones
    /// have been removed. If a rank cannot write, it throws JobError on all ranks, naming the file and the reason, and
    /// the existing checkpoints stay as they are.
    void write(std::int64_t step);

    /// On rank 0: the size of the last checkpoint without its manifest.
    [[nodiscard]] std::int64_t bytes() const { return manifest_.bytes(); }
    [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }

  private:
    [[nodiscard]] StoredFile write_own_file(const std::string& path) const;
    void write_manifest(const std::string& temporary, std::int64_t step, const std::vector<std::string>& files);
    /// Runs `action`. If it throws on any rank, abandons the checkpoint and throws JobError on all ranks, with the
    /// message of the first rank that failed.
    template <typename Action>
    void all_or_none(std::int64_t step, const Action& action);

    Backend& backend_;
    Transport& transport_;
    std::int64_t keep_ = 0;
    std::vector<StateBlock> owned_;
    std::optional<CheckpointFolder> folder_;  // on rank 0
    Manifest manifest_;                       // on rank 0
    std::vector<double> seconds_;
};

/// A run's checkpoints: resumes from one, writes new ones, and reports them in the record.
class TrainingCheckpoints {
  public:
    /// Collective. Throws as resume() and CheckpointWriter do.
    TrainingCheckpoints(Interpreter& interpreter, Transport& transport, const CheckpointOptions& options);
    /// Steps of the training that were done before this run.
    [[nodiscard]] std::int64_t first_step() const { return resumed_ ? resumed_->step : 0; }
    /// Whether a checkpoint is due after this step of the run, counted from 0.
    [[nodiscard]] bool is_due(std::int64_t step) const;
    /// Collective. Writes the checkpoint after `steps_done` steps of the run, unless it exists or none are to be
    /// written.
    void write(std::int64_t steps_done);
    /// On rank 0.
    void report(program::RunRecord& record) const;

  private:
    Interpreter& interpreter_;
    std::int64_t every_ = 0;
    std::int64_t written_ = 0;  // steps of the run that were done at the last checkpoint
    std::optional<Resumed> resumed_;
    std::optional<CheckpointWriter> writer_;
};

}  // namespace orrery::exec
