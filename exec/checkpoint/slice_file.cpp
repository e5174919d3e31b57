#include "exec/checkpoint/slice_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "core/crc32c.h"
#include "core/error.h"

namespace orrery::exec {
SliceWriter::SliceWriter(std::string path, std::int64_t chunk_bytes)
    : path_(std::move(path)),
      file_(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666)),
      chunk_(static_cast<std::size_t>(chunk_bytes)) {
    if (file_.get() < 0) fail(errno);
}

void SliceWriter::fail(int error) const {
    throw JobError(path_ + ": cannot be written: " + reason(error));
}

void SliceWriter::append(const std::byte* bytes, std::int64_t size) {
    bytes_ += size;
    while (size > 0) {
        const auto room = static_cast<std::int64_t>(chunk_.size() - filled_);
        const std::int64_t part = std::min(size, room);
        std::memcpy(chunk_.data() + filled_, bytes, static_cast<std::size_t>(part));
        filled_ += static_cast<std::size_t>(part);
        bytes += part;
        size -= part;
        if (filled_ == chunk_.size()) write_chunk();
    }
}

void SliceWriter::write_chunk() {
    checksums_.push_back(crc32c(chunk_.data(), filled_));
    if (const int error = write_all(file_.get(), chunk_.data(), filled_); error != 0) fail(error);
    filled_ = 0;
}

std::vector<std::uint32_t> SliceWriter::finish() {
    if (filled_ > 0) write_chunk();
    if (::fsync(file_.get()) != 0) fail(errno);
    if (!file_.close_now()) fail(errno);
    return std::move(checksums_);
}

SliceReader::SliceReader(std::string path, const StoredFile& stored, std::int64_t chunk_bytes)
    : path_(std::move(path)),
      stored_(stored),
      chunk_bytes_(chunk_bytes),
      file_(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)),  // do not block if the path is a named pipe
      chunk_(static_cast<std::size_t>(std::min(chunk_bytes, stored.bytes))) {
    struct stat status {};
    if (file_.get() < 0 || ::fstat(file_.get(), &status) != 0) fail(errno);
    if (!S_ISREG(status.st_mode)) throw InputError(path_ + ": cannot be read: it is not a regular file");
    if (status.st_size != stored.bytes) {
        throw InputError(path_, "size", std::to_string(status.st_size) + " bytes", std::to_string(stored.bytes));
    }
}

void SliceReader::fail(int error) const {
    throw InputError(path_ + ": cannot be read: " + reason(error));
}

std::int64_t SliceReader::size_of_chunk(std::int64_t chunk) const {
    return std::min(chunk_bytes_, stored_.bytes - chunk * chunk_bytes_);
}

void SliceReader::read(std::int64_t at, std::int64_t bytes, std::byte* to) {
    while (bytes > 0) {
        const std::int64_t chunk = at / chunk_bytes_;
        if (chunk != loaded_) load(chunk);
        const std::int64_t offset = at - chunk * chunk_bytes_;
        const std::int64_t count = std::min(bytes, size_of_chunk(chunk) - offset);
        std::memcpy(to, chunk_.data() + offset, static_cast<std::size_t>(count));
        at += count;
        to += count;
        bytes -= count;
    }
}

void SliceReader::load(std::int64_t chunk) {
    loaded_ = -1;
    const std::int64_t size = size_of_chunk(chunk);
    for (std::int64_t done = 0; done < size;) {
        const ssize_t count = ::pread(file_.get(), chunk_.data() + done, static_cast<std::size_t>(size - done),
                                      chunk * chunk_bytes_ + done);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) fail(errno);
        if (count == 0) throw InputError(path_ + ": cannot be read: it became shorter while it was read");
        done += count;
    }
    if (crc32c(chunk_.data(), static_cast<std::size_t>(size)) != stored_.checksums[static_cast<std::size_t>(chunk)]) {
        throw InputError(path_, "bytes from " + std::to_string(chunk * chunk_bytes_), "another checksum",
                         "the checksum in the manifest");
    }
    loaded_ = chunk;
}

}  // namespace orrery::exec
