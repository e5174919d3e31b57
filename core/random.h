// Counter-based random numbers: element i of a named stream is a pure function of (seed, name, i). So any rank can
// generate any shard of a tensor without communication, and adding a stream does not change another.
#pragma once

#include <cstdint>
#include <string_view>

namespace orrery {

/// The finaliser of SplitMix64 (Steele, Lea, Flood 2014): a bijection on 64 bits with good avalanche.
[[nodiscard]] constexpr std::uint64_t mix64(std::uint64_t x) {
    x += 0x9e3779b97f4a7c15ULL;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}

/// FNV-1a, 64 bits.
[[nodiscard]] constexpr std::uint64_t hash_name(std::string_view name) {
    std::uint64_t hash = 0xcbf29ce484222325ULL;
    for (char c : name) {
        hash ^= static_cast<unsigned char>(c);
        hash *= 0x100000001b3ULL;
    }
    return hash;
}

class RandomStream {
  public:
    constexpr RandomStream(std::uint64_t seed, std::string_view name) : key_(mix64(mix64(seed) ^ hash_name(name))) {}
    [[nodiscard]] constexpr std::uint64_t bits(std::uint64_t index) const { return mix64(key_ ^ mix64(index)); }
    /// For code that derives bits() by itself.
    [[nodiscard]] constexpr std::uint64_t key() const { return key_; }
    /// Uniform in [0, 1), a multiple of 2^-53.
    [[nodiscard]] constexpr double uniform(std::uint64_t index) const {
        return static_cast<double>(bits(index) >> 11) * 0x1.0p-53;
    }
    /// Uniform in [0, bound); bound > 0. The bias is below bound / 2^64.
    [[nodiscard]] constexpr std::uint64_t below(std::uint64_t index, std::uint64_t bound) const {
        __extension__ using wide = unsigned __int128;
        return static_cast<std::uint64_t>((static_cast<wide>(bits(index)) * bound) >> 64);
    }

  private:
    std::uint64_t key_;
};

}  // namespace orrery
