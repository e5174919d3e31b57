// File descriptors, and complete writes and flushes on them with the errno of a failure.
#pragma once

#include <cstddef>
#include <string>
#include <utility>

namespace orrery {

/// Owns a file descriptor and closes it. A negative number means that nothing is open.
class FileDescriptor {
  public:
    FileDescriptor() = default;
    explicit FileDescriptor(int fd) : fd_(fd) {}
    FileDescriptor(FileDescriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    FileDescriptor& operator=(FileDescriptor&& other) noexcept {
        std::swap(fd_, other.fd_);
        return *this;
    }
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    ~FileDescriptor();
    [[nodiscard]] int get() const { return fd_; }
    /// Closes the descriptor; returns false, with errno, on failure. Some file systems report a full disk only here.
    [[nodiscard]] bool close_now();

  private:
    int fd_ = -1;
};

/// The operating system's text for this errno.
[[nodiscard]] std::string reason(int error);

/// 0, or the errno of the write that failed.
[[nodiscard]] int write_all(int fd, const void* bytes, std::size_t size);

/// Makes creations, renames and removals in the folder durable. Returns 0 or the errno. EINVAL counts as success: the
/// file system does not support flushing folders.
[[nodiscard]] int flush_folder(const std::string& folder);

}  // namespace orrery
