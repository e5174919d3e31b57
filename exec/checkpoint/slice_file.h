// A checkpoint's file of one rank: blocks of tensors one after the other, with a checksum for each chunk, so that who
// needs a part of the file need not read all of it to know that it is sound.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "exec/checkpoint/manifest.h"

namespace orrery::exec {

/// Writes in whole chunks. Throws JobError naming the file and the operating system's reason.
class SliceWriter {
  public:
    /// The file must not exist.
    SliceWriter(std::string path, std::int64_t chunk_bytes);
    void append(const std::byte* bytes, std::int64_t size);
    /// So far.
    [[nodiscard]] std::int64_t bytes() const { return bytes_; }
    /// Everything is on the disk when this returns the checksums.
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

/// Reads parts of a file and checks the chunks they lie in; the last chunk is kept for the next part. Throws InputError
/// naming the path when the file cannot be read, has another size than the manifest says, or a chunk another checksum.
class SliceReader {
  public:
    /// `stored` outlives the reader.
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
