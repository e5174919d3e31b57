// Open files of the operating system, and calls on them that either do everything or say why not.
#pragma once

#include <cstddef>
#include <string>

namespace orrery {

/// Closes what it holds. A negative number: nothing is open.
class FileDescriptor {
  public:
    explicit FileDescriptor(int fd) : fd_(fd) {}
    FileDescriptor(const FileDescriptor&) = delete;
    FileDescriptor& operator=(const FileDescriptor&) = delete;
    ~FileDescriptor();
    [[nodiscard]] int get() const { return fd_; }
    /// Some file systems report a full disk only here: false, with errno.
    [[nodiscard]] bool close_now();

  private:
    int fd_;
};

/// What the operating system calls this errno.
[[nodiscard]] std::string reason(int error);

/// 0, or the errno of the write that failed.
[[nodiscard]] int write_all(int fd, const void* bytes, std::size_t size);

/// Makes what was created, renamed or removed in the folder durable. 0, or the errno; a file system that has nothing to
/// flush there has done it.
[[nodiscard]] int flush_folder(const std::string& folder);

}  // namespace orrery
