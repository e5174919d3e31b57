// A library for LD_PRELOAD that intercepts the process's calls that change something under a folder. The n-th such call
// fails, or the process is killed before it.
//   FAIL_IO_UNDER   the folder's real path
//   FAIL_IO_AT      n, from 1
//   FAIL_IO_ERRNO   the errno of the failure; 0: kill the process
//   FAIL_IO_LOG     file to which the name of each such call is appended
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

int calls = 0;

template <typename Function>
Function next(const char* name) {
    return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

bool is_under(const char* path) {
    const char* folder = std::getenv("FAIL_IO_UNDER");
    if (folder == nullptr || std::strncmp(path, folder, std::strlen(folder)) != 0) return false;
    return true;
}

bool is_under(int fd) {
    char link[64], path[PATH_MAX] = {};
    std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    return readlink(link, path, sizeof path - 1) > 0 && is_under(path);
}

int number(const char* variable) {
    const char* text = std::getenv(variable);
    return text == nullptr ? -1 : std::atoi(text);
}

/// Counts the call. Returns whether it must fail, and then sets errno.
bool fails(const char* name) {
    ++calls;
    if (const char* path = std::getenv("FAIL_IO_LOG"); path != nullptr) {
        if (std::FILE* log = std::fopen(path, "a"); log != nullptr) {
            std::fprintf(log, "%s\n", name);
            std::fclose(log);
        }
    }
    if (calls != number("FAIL_IO_AT")) return false;
    const int error = number("FAIL_IO_ERRNO");
    if (error == 0) kill(getpid(), SIGKILL);
    errno = error;
    return true;
}

}  // namespace

extern "C" {

int open(const char* path, int flags, ...) {
    std::va_list arguments;
    va_start(arguments, flags);
    const mode_t mode = (flags & O_CREAT) != 0 ? va_arg(arguments, mode_t) : 0;
    va_end(arguments);
    if ((flags & O_CREAT) != 0 && is_under(path) && fails("open")) return -1;
    return next<int (*)(const char*, int, ...)>("open")(path, flags, mode);
}

ssize_t write(int fd, const void* bytes, size_t size) {
    if (is_under(fd) && fails("write")) return -1;
    return next<ssize_t (*)(int, const void*, size_t)>("write")(fd, bytes, size);
}

int fsync(int fd) {
    if (is_under(fd) && fails("fsync")) return -1;
    return next<int (*)(int)>("fsync")(fd);
}

int rename(const char* from, const char* to) noexcept {
    if (is_under(from) && fails("rename")) return -1;
    return next<int (*)(const char*, const char*)>("rename")(from, to);
}

int mkdir(const char* path, mode_t mode) noexcept {
    if (is_under(path) && fails("mkdir")) return -1;
    return next<int (*)(const char*, mode_t)>("mkdir")(path, mode);
}

int unlinkat(int folder, const char* path, int flags) noexcept {
    if ((folder == AT_FDCWD ? is_under(path) : is_under(folder)) && fails("unlinkat")) return -1;
    return next<int (*)(int, const char*, int)>("unlinkat")(folder, path, flags);
}

int unlink(const char* path) noexcept {
    if (is_under(path) && fails("unlink")) return -1;
    return next<int (*)(const char*)>("unlink")(path);
}
}
