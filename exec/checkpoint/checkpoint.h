// Checkpoints of a training run: all ranks write what they own into one folder, and any plan of the same model and
// training goes on from it.
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
    std::string folder;         // where checkpoints are written; "": none are
    std::int64_t every = 0;     // steps, counted from the first of the training; 0: at the end only
    std::int64_t keep = 2;      // newest ones that stay
    std::string resume_folder;  // what the run goes on from; "": it begins
};

/// What can be said before the job starts, by one process alone. Throws InputError when the folders are none, hold
/// what this run may not overwrite, or hold no checkpoint that this plan goes on from.
void check_checkpoints(const program::Program& program, const CheckpointOptions& options);

struct Resumed {
    std::int64_t step = 0;  // steps that are done
    std::string path;
    double seconds = 0;
    std::vector<std::string> skipped;  // newer ones: what is wrong with them
};

/// Collective, between steps. Gives all ranks the state of the newest checkpoint in the folder that is sound; rank 0
/// says on standard error which newer ones are not. Throws InputError when none is, or when the plan's settings are
/// others (check_settings).
[[nodiscard]] Resumed resume(const Interpreter& interpreter, Transport& transport, const CheckpointOptions& options);

/// Writes a run's checkpoints. All members are collective.
class CheckpointWriter {
  public:
    /// Takes the folder (see CheckpointFolder). `resumed_step`: what the run went on from, or -1.
    CheckpointWriter(const Interpreter& interpreter, Transport& transport, const CheckpointOptions& options,
                     std::int64_t resumed_step);

    /// To be called between steps, with no transfer under way. When it returns, the checkpoint is on the disk and older
    /// ones are gone. Throws JobError on all ranks, naming the file and the reason, when one could not write; then
    /// nothing has changed.
    void write(std::int64_t step);

    /// On rank 0: of the last one, its manifest apart.
    [[nodiscard]] std::int64_t bytes() const { return manifest_.bytes(); }
    [[nodiscard]] const std::vector<double>& seconds() const { return seconds_; }

  private:
    [[nodiscard]] StoredFile write_own_file(const std::string& path) const;
    void write_manifest(const std::string& temporary, std::int64_t step, const std::vector<std::string>& files);
    /// Throws on all ranks what was thrown on the first of them.
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

/// What a run does about checkpoints: goes on from one, writes some, and says so in its record.
class TrainingCheckpoints {
  public:
    /// Collective. Throws as resume() and CheckpointWriter do.
    TrainingCheckpoints(Interpreter& interpreter, Transport& transport, const CheckpointOptions& options);
    /// Steps that were done before this run.
    [[nodiscard]] std::int64_t first_step() const { return resumed_ ? resumed_->step : 0; }
    /// Whether a checkpoint is due once this step of the run is done, counted from 0.
    [[nodiscard]] bool is_due(std::int64_t step) const;
    /// Collective, after so many steps of the run. Nothing where that was written, or none are.
    void write(std::int64_t steps_done);
    /// On rank 0.
    void report(program::RunRecord& record) const;

  private:
    Interpreter& interpreter_;
    std::int64_t every_ = 0;
    std::int64_t written_ = 0;  // steps of the run that were done at the last one
    std::optional<Resumed> resumed_;
    std::optional<CheckpointWriter> writer_;
};

}  // namespace orrery::exec
