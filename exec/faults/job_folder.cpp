#include "exec/faults/job_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "core/error.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

constexpr const char* kJobPrefix = "orrery-job-";

int open_locked(const std::string& folder) {
    const int file = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0) return file;
    if (file >= 0) close(file);
    return -1;
}

/// Removes this user's folders whose launcher is gone; a living launcher holds the lock of its folder.
void remove_abandoned(const fs::path& parent) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(parent, ignored)) {
        if (!entry.path().filename().string().starts_with(kJobPrefix)) continue;
        struct stat status {};
        if (lstat(entry.path().c_str(), &status) != 0 || status.st_uid != geteuid()) continue;
        const int lock = open_locked(entry.path());
        if (lock < 0) continue;
        fs::remove_all(entry.path(), ignored);
        close(lock);
    }
}

/// "" if the folder cannot be created.
std::string make_folder(const fs::path& parent) {
    std::string path = (parent / (std::string(kJobPrefix) + "XXXXXX")).string();
    return mkdtemp(path.data()) == nullptr ? "" : path;
}

}  // namespace

JobFolder::JobFolder() {
    std::error_code ignored;
    for (const fs::path& parent : std::array<fs::path, 2>{"/dev/shm", fs::temp_directory_path(ignored)}) {
        remove_abandoned(parent);
        path_ = make_folder(parent);
        if (path_.empty()) continue;
        lock_ = open_locked(path_);
        return;
    }
    throw JobError("cannot make a temporary folder: " + std::string(std::strerror(errno)));
}

JobFolder::~JobFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
    if (lock_ >= 0) close(lock_);
}

}  // namespace orrery::exec
