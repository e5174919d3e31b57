// The memory in which the ranks of an emulated communicator meet. It is an anonymous file that the first rank makes and
// the others open through /proc, so that nothing is left behind by a rank that is killed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emulated {

/// What a rank of a communicator wants of a collective. All must want the same.
struct Wish {
    std::int32_t kind = 0, type = 0, reduce = 0, root = 0;
    std::uint64_t count = 0;
    friend bool operator==(const Wish&, const Wish&) = default;
};

/// How a process finds a meeting: a file descriptor of the process that made it.
struct Address {
    std::int32_t process = 0, file = -1;
};

/// One rank's part, written by this rank alone. Counters count from the start of the communicator.
struct Seat {
    alignas(64) std::atomic<std::uint64_t> begun;  // collectives
    std::atomic<std::uint64_t> written, read;      // chunks
    /// Of the collective that it has begun, by the number's parity, since one rank may have begun the next collective
    /// when another still compares. Valid with the first chunk.
    Wish wishes[2];
    // Splitting. Each counter is the number of the last split for which the rank has got so far.
    std::atomic<std::uint64_t> chosen, made, left;
    std::int32_t color, key;
    Address part;
};

inline constexpr std::size_t kChunkBytes = std::size_t{256} << 10U;

/// A piece of a message from one rank to another one. The sender writes, and waits until the receiver has read it.
struct Mailbox {
    alignas(64) std::atomic<std::uint64_t> written;  // pieces since the start
    std::atomic<std::uint64_t> read;
    std::uint64_t message_bytes;
    std::byte memory[std::size_t{64} << 10U];
};

class Meeting {
  public:
    /// The file of a new meeting; close it once all ranks have come.
    [[nodiscard]] static Address make(int ranks);
    /// Returns when all ranks have come.
    Meeting(const Address& address, int ranks);
    ~Meeting();
    Meeting(const Meeting&) = delete;
    Meeting& operator=(const Meeting&) = delete;

    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] Seat& seat(int rank) const;
    [[nodiscard]] std::byte* chunk(int rank) const;
    [[nodiscard]] Mailbox& mailbox(int from, int to) const;

  private:
    int ranks_;
    std::size_t bytes_;
    std::byte* memory_ = nullptr;
};

/// Sleeps briefly, between two looks at another rank's part.
void pause_briefly();

}  // namespace emulated
