// The folder that a run keeps its checkpoints in. Each is a folder of its own, step-00000042, which exists whole or not
// at all: it is made under a hidden name, flushed to disk and renamed, and hidden again before it is removed.
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
/// Steps of the checkpoints in the folder, ascending; none when there is no such folder. Throws InputError naming the
/// folder when it cannot be read.
[[nodiscard]] std::vector<std::int64_t> checkpoint_steps(const std::string& folder);

/// The one process that writes into a folder of checkpoints. Throws JobError naming the path and the reason.
class CheckpointFolder {
  public:
    /// Makes the folder when there is none, takes its lock, which is another process's when this fails and says whose,
    /// and removes what runs that died left half-done. The newest checkpoint that this run goes on from, or -1: later
    /// ones which it did not write could not be read.
    CheckpointFolder(std::string folder, std::int64_t resumed_step);

    /// Makes an empty hidden folder for the checkpoint of this step and returns its path.
    [[nodiscard]] std::string begin(std::int64_t step) const;
    /// Gives what begin() made its final name, durably; its files must be on the disk. Then removes all but the newest
    /// `keep`, and later ones that could not be read.
    void commit(std::int64_t step, std::int64_t keep);
    /// Removes what begin() made.
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
