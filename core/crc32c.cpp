#include "core/crc32c.h"

#include <array>
#include <cstring>

namespace orrery {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // bits reversed
constexpr std::size_t kStride = 8;                 // bytes processed at once

using Tables = std::array<std::array<std::uint32_t, 256>, kStride>;

/// tables[k][b]: effect of byte b on the checksum if k bytes follow it in the same stride.
constexpr Tables make_tables() {
    Tables tables{};
    for (std::uint32_t byte = 0; byte < 256; ++byte) {
        std::uint32_t crc = byte;
        for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1U) ^ ((crc & 1U) != 0 ? kPolynomial : 0U);
        tables[0][byte] = crc;
    }
    for (std::size_t k = 1; k < kStride; ++k) {
        for (std::size_t byte = 0; byte < 256; ++byte) {
            const std::uint32_t shorter = tables[k - 1][byte];
            tables[k][byte] = (shorter >> 8U) ^ tables[0][shorter & 0xFFU];
        }
    }
    return tables;
}
constexpr Tables kTables = make_tables();

#ifdef __x86_64__
/// The processor has an instruction for this polynomial.
__attribute__((target("sse4.2"))) std::uint32_t crc32c_by_instruction(const void* bytes, std::size_t size,
                                                                      std::uint32_t before) {
    const auto* at = static_cast<const unsigned char*>(bytes);
    std::uint64_t crc = ~before;
    for (; size >= kStride; size -= kStride, at += kStride) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, kStride);
        crc = __builtin_ia32_crc32di(crc, word);
    }
    auto rest = static_cast<std::uint32_t>(crc);
    for (; size > 0; --size, ++at) rest = __builtin_ia32_crc32qi(rest, *at);
    return ~rest;
}
#endif

}  // namespace

std::uint32_t crc32c(const void* bytes, std::size_t size, std::uint32_t before) {
#ifdef __x86_64__
    static const bool has_instruction = __builtin_cpu_supports("sse4.2") != 0;
    if (has_instruction) return crc32c_by_instruction(bytes, size, before);
#endif
    return crc32c_by_tables(bytes, size, before);
}

std::uint32_t crc32c_by_tables(const void* bytes, std::size_t size, std::uint32_t before) {
    const auto* at = static_cast<const unsigned char*>(bytes);
    std::uint32_t crc = ~before;
    for (; size >= kStride; size -= kStride, at += kStride) {
        std::uint64_t word = 0;
        std::memcpy(&word, at, kStride);  // assumes a little-endian machine
        word ^= crc;
        crc = 0;
        for (std::size_t k = 0; k < kStride; ++k) crc ^= kTables[kStride - 1 - k][word >> (8 * k) & 0xFFU];
    }
    for (; size > 0; --size, ++at) crc = (crc >> 8U) ^ kTables[0][(crc ^ *at) & 0xFFU];
    return ~crc;
}

}  // namespace orrery
