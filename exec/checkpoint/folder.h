// The folder of a run's checkpoints. Each checkpoint is a subfolder, step-00000042, that is either complete or absent:
// it is written under a hidden name, flushed to disk and renamed, and it is renamed to a hidden name before it is
// removed.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/file_descriptor.h"

namespace orrery::exec {

inline constexpr const char* kManifestName = "manifest.json";

/// "step-00000042"
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
/// The steps of the checkpoints in the folder, ascending; empty if the folder does not exist. Throws InputError naming
/// the folder if it cannot be read.
[[nodiscard]] std::vector<std::int64_t> checkpoint_steps(const std::string& folder);

/// Exclusive write access to a folder of checkpoints. Throws JobError naming the path and the reason.
class CheckpointFolder {
  public:
    /// Creates the folder if it does not exist, locks it, and removes unfinished checkpoints of runs that died. If
    /// another process holds the lock, the error names it. `resumed_step` is the step of the checkpoint that this run
    /// resumed from, or -1. Later checkpoints that this run has not written itself are damaged.
    CheckpointFolder(std::string folder, std::int64_t resumed_step);

    /// Creates an empty hidden folder for the checkpoint of this step and returns its path.
    [[nodiscard]] std::string begin(std::int64_t step) const;
    /// Durably renames the folder of begin() to its final name; its files must already be flushed to disk. Then removes
    /// damaged later checkpoints and all but the newest `keep` others.
    void commit(std::int64_t step, std::int64_t keep);
    /// Removes the folder of begin().
    void abandon(std::int64_t step) const noexcept;

  private:
    [[nodiscard]] std::string hidden(std::int64_t step, const char* why) const;
    void discard(std::int64_t step) const;
    void prune(std::int64_t keep) const;

    std::string folder_;
    FileDescriptor lock_;
    std::int64_t resumed_step_ = -1;
    std::set<std::int64_t> written_;
};

}  // namespace orrery::exec
