#include "core/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <string_view>
#include <vector>

#include "core/error.h"
#include "core/file_descriptor.h"

namespace orrery {
namespace {

constexpr int kMaxAttempts = 100;  // names tried for the temporary file

[[noreturn]] void fail_writing(const std::string& path, int error) {
    throw JobError(path + ": cannot be written: " + reason(error));
}

/// The target of a symbolic link, so that the link itself is not replaced; `path` if it is not a link.
std::string resolved(const std::string& path) {
    const std::unique_ptr<char, decltype(&std::free)> real(::realpath(path.c_str(), nullptr), &std::free);
    return real ? std::string(real.get()) : path;
}

/// Pipes and terminals cannot be replaced: they are written to in place.
void write_in_place(const std::string& path, const std::string& content) {
    FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (file.get() < 0) fail_writing(path, errno);
    if (const int error = write_all(file.get(), content.data(), content.size()); error != 0) fail_writing(path, error);
    if (!file.close_now()) fail_writing(path, errno);
}

/// Makes the rename durable. Errors are ignored, since some file systems cannot flush a folder.
void flush_folder_of(const std::string& path) {
    const std::size_t slash = path.rfind('/');
    const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
    (void)flush_folder(folder);
}

/// 0, or the errno of the step that failed.
int fill_and_rename(const std::string& temporary, const std::string& path, const std::string& content, mode_t mode) {
    FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (file.get() < 0) return errno;
    if (const int error = write_all(file.get(), content.data(), content.size()); error != 0) return error;
    if (mode != 0 && ::fchmod(file.get(), mode) != 0) return errno;
    if (::fsync(file.get()) != 0) return errno;
    if (!file.close_now()) return errno;
    return ::rename(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
}

}  // namespace

std::string read_file(const std::string& path, std::int64_t most_bytes) {
    const FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (file.get() < 0) throw InputError(path + ": cannot be read: " + reason(errno));
    struct stat status {};
    if (::fstat(file.get(), &status) != 0) throw InputError(path + ": cannot be read: " + reason(errno));
    if (S_ISDIR(status.st_mode)) throw InputError(path + ": cannot be read: it is a folder; allowed: a file");
    if (S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)) {
        throw InputError(path + ": cannot be read: it is a device; allowed: a file or a pipe");
    }
    const auto check_size = [&](std::int64_t bytes) {
        if (bytes <= most_bytes) return;
        throw InputError(path + ": cannot be read: it is too large; allowed: at most " + std::to_string(most_bytes) +
                         " bytes");
    };
    check_size(status.st_size);
    std::string content;
    if (status.st_size > 0) content.reserve(static_cast<std::size_t>(status.st_size));
    std::array<char, 65536> buffer{};
    while (true) {
        const ssize_t count = ::read(file.get(), buffer.data(), buffer.size());
        if (count == 0) return content;
        if (count < 0) {
            if (errno == EINTR) continue;
            throw InputError(path + ": cannot be read: " + reason(errno));
        }
        content.append(buffer.data(), static_cast<std::size_t>(count));
        check_size(static_cast<std::int64_t>(content.size()));
    }
}

std::string read_text_file(const std::string& path, std::int64_t most_bytes) {
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    std::string content = read_file(path, most_bytes);
    if (content.starts_with(kByteOrderMark)) content.erase(0, kByteOrderMark.size());
    return content;
}

void check_writable(const std::string& path) {
    const std::string target = resolved(path);
    struct stat status {};
    const bool exists = ::stat(target.c_str(), &status) == 0;
    int error = 0;
    if (exists && !S_ISREG(status.st_mode)) {
        if (::access(target.c_str(), W_OK) != 0) error = errno;
    } else {
        const std::string temporary = target + ".tmp-" + std::to_string(::getpid());
        const FileDescriptor file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
        error = file.get() < 0 && errno != EEXIST ? errno : 0;
        if (file.get() >= 0) (void)::unlink(temporary.c_str());
    }
    if (error != 0) throw InputError(path + ": cannot be written: " + reason(error));
}

void write_file_atomically(const std::string& path, const std::string& content) {
    const std::string target = resolved(path);
    struct stat status {};
    mode_t mode = 0;  // 0: a new file, with the mode from the umask
    if (::stat(target.c_str(), &status) == 0) {
        if (S_ISDIR(status.st_mode)) fail_writing(path, EISDIR);
        if (!S_ISREG(status.st_mode)) return write_in_place(target, content);
        mode = status.st_mode & 07777;
    }
    // An existing temporary file is not touched: it belongs to another writer or to a process that was killed.
    int error = EEXIST;
    for (int attempt = 0; error == EEXIST && attempt < kMaxAttempts; ++attempt) {
        const std::string temporary = target + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(attempt);
        error = fill_and_rename(temporary, target, content, mode);
        if (error != 0 && error != EEXIST) (void)::unlink(temporary.c_str());
    }
    if (error != 0) fail_writing(path, error);
    flush_folder_of(target);
}

// Levenshtein distance, with one row of the table at a time.
int edit_distance(const std::string& a, const std::string& b) {
    std::vector<int> row(b.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 1; i <= a.size(); ++i) {
        int diagonal = row[0];
        row[0] = static_cast<int>(i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const int substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
        }
    }
    return row[b.size()];
}

}  // namespace orrery
