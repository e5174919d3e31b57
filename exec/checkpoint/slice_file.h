// One rank's file in a checkpoint: blocks of tensors one after the other, with a checksum per chunk, so that a reader
// can verify the part that it needs without reading the whole file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "exec/checkpoint/manifest.h"

namespace orrery::exec {

/// Writes the file chunk by chunk. Throws JobError naming the file and the operating system's reason.
class SliceWriter {
  public:
    /// The file must not exist.
    SliceWriter(std::string path, std::int64_t chunk_bytes);
    void append(const std::byte* bytes, std::int64_t size);
    /// Bytes appended so far.
    [[nodiscard]] std::int64_t bytes() const { return bytes_; }
    /// Flushes everything to disk, closes the file and returns the checksums of its chunks.
    [[nodiscard]] std::vector<std::uint32_t> finish();

  private:
    void write_chunk();
    [[noreturn]] void fail(int error) const;

    std::string path_;
    FileDescriptor file_;
    std::vector<std::byte> chunk_;
    std::size_t filled_ = 0;
    std::int64_t bytes_ = 0;
    std::vector<std::uint32_t> checksums_;
};

/// Reads parts of a file and verifies the chunks that contain them. The last chunk stays cached for the next read.
/// Throws InputError naming the path if the file cannot be read, or if its size or a chunk's checksum differs from the
/// manifest.
class SliceReader {
  public:
    /// `stored` must outlive the reader.
    SliceReader(std::string path, const StoredFile& stored, std::int64_t chunk_bytes);
    void read(std::int64_t at, std::int64_t bytes, std::byte* to);

  private:
    [[noreturn]] void fail(int error) const;
    [[nodiscard]] std::int64_t size_of_chunk(std::int64_t chunk) const;
    void load(std::int64_t chunk);

    std::string path_;
    const StoredFile& stored_;
    std::int64_t chunk_bytes_ = 0;
    FileDescriptor file_;
    std::vector<std::byte> chunk_;
    std::int64_t loaded_ = -1;
};

}  // namespace orrery::exec
