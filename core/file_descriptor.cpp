#include "core/file_descriptor.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace orrery {

FileDescriptor::~FileDescriptor() {
    if (fd_ >= 0) ::close(fd_);
}

bool FileDescriptor::close_now() {
    return ::close(std::exchange(fd_, -1)) == 0;
}

std::string reason(int error) {
    return std::strerror(error);
}

int write_all(int fd, const void* bytes, std::size_t size) {
    const char* at = static_cast<const char*>(bytes);
    while (size > 0) {
        const ssize_t written = ::write(fd, at, size);
        if (written < 0) {
            if (errno == EINTR) continue;
            return errno;
        }
        at += written;
        size -= static_cast<std::size_t>(written);
    }
    return 0;
}

int flush_folder(const std::string& folder) {
    const FileDescriptor directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (directory.get() < 0) return errno;
    return ::fsync(directory.get()) == 0 || errno == EINVAL ? 0 : errno;
}

}  // namespace orrery
