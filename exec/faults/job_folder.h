// The folder of a job's shared memory and temporary files.
#pragma once

#include <string>

namespace orrery::exec {

/// A folder for the shared memory segments and temporary files of Open MPI. It is removed however the job ends; folders
/// that killed launchers left behind are removed, too.
class JobFolder {
  public:
    /// Creates the folder in /dev/shm, or else in the system's temporary folder. Throws JobError if both fail.
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
