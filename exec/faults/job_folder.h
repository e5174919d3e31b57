// Where a job's shared memory and temporary files lie.
#pragma once

#include <string>

namespace orrery::exec {

/// A folder for what Open MPI puts into shared memory and temporary files, so that nothing stays however the job ends.
/// Folders of launchers that could not remove theirs go as well.
class JobFolder {
  public:
    /// In /dev/shm, or where temporary files go. Throws JobError when there is room in neither.
    JobFolder();
    ~JobFolder();
    JobFolder(const JobFolder&) = delete;
    JobFolder& operator=(const JobFolder&) = delete;
    [[nodiscard]] const std::string& path() const { return path_; }

  private:
    std::string path_;
    int lock_ = -1;  // held while the launcher lives
};

}  // namespace orrery::exec
