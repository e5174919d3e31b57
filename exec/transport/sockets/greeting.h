// What two processes say to each other on a new connection before they know that both are ranks of the same job.
#pragma once

#include <cstdint>

namespace orrery::exec {

/// The first message of a rank on each of its connections.
struct Greeting {
    static constexpr std::uint64_t kMagic = 0x4f5252455259'0001;  // "ORRERY" and the version of these messages
    std::uint64_t magic = kMagic;
    std::uint64_t job = 0;      // MeetingPoint::job
    std::uint64_t process = 0;  // chosen at random: tells a rank that tries again from another process with its number
    std::int32_t rank = 0, channel = 0;
};

/// Rank 0's answer. Its magic differs, so that a greeting that is sent back is no answer.
struct Welcome {
    static constexpr std::uint64_t kMagic = 0x7972657272'6f0001;
    std::uint64_t magic = kMagic;
    std::uint64_t job = 0, process = 0;  // those of the greeting
    std::uint64_t is_refused = 0;        // 1: another process has the same rank
};

}  // namespace orrery::exec
