#include "exec/checkpoint/folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <string_view>
#include <utility>

#include "core/error.h"

namespace orrery::exec {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kStepPrefix = "step-";
constexpr std::string_view kHiddenPrefix = ".step-";
constexpr const char* kBeingWritten = ".tmp";
constexpr const char* kBeingRemoved = ".old";
constexpr const char* kLockName = ".lock";

[[noreturn]] void fail(const std::string& path, const char* what, int error) {
    throw JobError(path + ": " + what + ": " + reason(error));
}

/// -1 if the name is not that of a checkpoint.
std::int64_t step_of(const std::string& name) {
    std::int64_t step = -1;
    if (!name.starts_with(kStepPrefix)) return -1;
    const auto [end, failed] = std::from_chars(name.data() + kStepPrefix.size(), name.data() + name.size(), step);
    return failed == std::errc{} && checkpoint_name(step) == name ? step : -1;
}

std::string this_process() {
    std::array<char, 256> host{};
    (void)::gethostname(host.data(), host.size() - 1);
    return "process " + std::to_string(::getpid()) + " on " + host.data();
}

/// Treats a folder that does not exist as empty. Throws InputError if the folder cannot be read.
template <typename Visit>
void for_each_name(const std::string& folder, const Visit& visit) {
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
        visit(entry->path().filename().string());
    }
    if (error && error != std::errc::no_such_file_or_directory) {
        throw InputError(folder + ": cannot be read: " + error.message() + "; allowed: a folder of checkpoints");
    }
}

/// Returns the file descriptor of the lock, which is held until the descriptor is closed or the process ends.
int make_and_lock(const std::string& folder) {
    if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) fail(folder, "cannot be made", errno);
    const std::string path = folder + "/" + kLockName;
    const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0) fail(path, "cannot be written", errno);
    if (::flock(file, LOCK_EX | LOCK_NB) != 0) {
        const int error = errno;
        std::array<char, 512> text{};
        const ssize_t count = ::pread(file, text.data(), text.size() - 1, 0);
        ::close(file);
        if (error != EWOULDBLOCK) fail(path, "cannot be locked", error);
        const std::string owner = count > 0 ? text.data() : "another process";
        throw JobError(folder + ": " + owner + " writes its checkpoints there (" + path + ")");
    }
    // Only for the error message of the next process; the lock does not need it, so errors are ignored.
    const std::string owner = this_process();
    if (::ftruncate(file, 0) == 0) (void)write_all(file, owner.data(), owner.size());
    return file;
}

void remove_all(const std::string& path) {
    std::error_code error;
    fs::remove_all(path, error);
    if (error) fail(path, "cannot be removed", error.value());
}

void rename_folder(const std::string& from, const std::string& to) {
    if (::rename(from.c_str(), to.c_str()) != 0) fail(from, "cannot be renamed", errno);
}

}  // namespace

std::string checkpoint_name(std::int64_t step) {
    std::array<char, 32> text{};
    std::snprintf(text.data(), text.size(), "step-%08lld", static_cast<long long>(step));
    return text.data();
}

std::vector<std::int64_t> checkpoint_steps(const std::string& folder) {
    std::vector<std::int64_t> steps;
    for_each_name(folder, [&](const std::string& name) {
        if (const std::int64_t step = step_of(name); step >= 0) steps.push_back(step);
    });
    std::sort(steps.begin(), steps.end());
    return steps;
}

CheckpointFolder::CheckpointFolder(std::string folder, std::int64_t resumed_step)
    : folder_(std::move(folder)), lock_(make_and_lock(folder_)), resumed_step_(resumed_step) {
    std::vector<std::string> left;
    for_each_name(folder_, [&](const std::string& name) {
        if (name.starts_with(kHiddenPrefix)) left.push_back(folder_ + "/" + name);
    });
    for (const std::string& path : left) remove_all(path);
}

std::string CheckpointFolder::hidden(std::int64_t step, const char* why) const {
    return folder_ + "/." + checkpoint_name(step) + why;
}

std::string CheckpointFolder::begin(std::int64_t step) const {
    std::string path = hidden(step, kBeingWritten);
    if (::mkdir(path.c_str(), 0777) != 0) fail(path, "cannot be made", errno);
    return path;
}

void CheckpointFolder::abandon(std::int64_t step) const noexcept {
    std::error_code ignored;  // the run is already failing for another reason; the next run removes leftovers
    fs::remove_all(hidden(step, kBeingWritten), ignored);
}

void CheckpointFolder::commit(std::int64_t step, std::int64_t keep) {
    const std::string temporary = hidden(step, kBeingWritten);
    const std::string path = folder_ + "/" + checkpoint_name(step);
    if (const int error = flush_folder(temporary); error != 0) fail(temporary, "cannot be flushed", error);
    // A checkpoint of this step is damaged: the run resumed from an earlier one.
    if (::access(path.c_str(), F_OK) == 0) discard(step);
    rename_folder(temporary, path);
    if (const int error = flush_folder(folder_); error != 0) fail(folder_, "cannot be flushed", error);
    written_.insert(step);
    prune(keep);
}

/// Renames the checkpoint before removing it, so that a partial checkpoint never has a valid name.
void CheckpointFolder::discard(std::int64_t step) const {
    const std::string going = hidden(step, kBeingRemoved);
    rename_folder(folder_ + "/" + checkpoint_name(step), going);
    if (const int error = flush_folder(folder_); error != 0) fail(folder_, "cannot be flushed", error);
    remove_all(going);
}

void CheckpointFolder::prune(std::int64_t keep) const {
    std::vector<std::int64_t> sound;
    for (const std::int64_t step : checkpoint_steps(folder_)) {
        if (step <= resumed_step_ || written_.contains(step)) {
            sound.push_back(step);
        } else {
            discard(step);
        }
    }
    for (std::size_t i = 0; i + static_cast<std::size_t>(keep) < sound.size(); ++i) discard(sound[i]);
}

}  // namespace orrery::exec
