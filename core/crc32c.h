// CRC-32C (Castagnoli, RFC 3720): checksums of what lies on disk.
#pragma once

#include <cstddef>
#include <cstdint>

namespace orrery {

/// The checksum of `size` bytes that follow those of which `before` is the checksum; 0 is that of no bytes.
[[nodiscard]] std::uint32_t crc32c(const void* bytes, std::size_t size, std::uint32_t before = 0);
/// The same on any processor: by tables.
[[nodiscard]] std::uint32_t crc32c_by_tables(const void* bytes, std::size_t size, std::uint32_t before = 0);

}  // namespace orrery
