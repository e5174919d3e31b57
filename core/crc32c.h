// CRC-32C (Castagnoli, RFC 3720), the checksum of files on disk.
#pragma once

#include <cstddef>
#include <cstdint>

namespace orrery {

/// Extends the checksum `before` by `size` bytes. The checksum of no bytes is 0.
[[nodiscard]] std::uint32_t crc32c(const void* bytes, std::size_t size, std::uint32_t before = 0);
/// The same with lookup tables, for any processor.
[[nodiscard]] std::uint32_t crc32c_by_tables(const void* bytes, std::size_t size, std::uint32_t before = 0);

}  // namespace orrery
