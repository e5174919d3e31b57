// An emulated communicator, and the operations on it.
#pragma once

#include <nccl.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/emulator/device.h"
#include "tests/emulator/meeting.h"

struct ncclComm {
    /// `of_family`: the communicator whose resources it shares; null: it has resources of its own.
    ncclComm(const emulated::Address& address, int ranks, int of_rank, std::int64_t bytes, const ncclComm* of_family)
        : meeting(address, ranks),
          rank(of_rank),
          device_bytes(bytes),
          family(of_family == nullptr ? this : of_family->family) {
        emulated::Device::instance().reserve(device_bytes);
    }
    ~ncclComm() { emulated::Device::instance().reserve(-device_bytes); }
    ncclComm(const ncclComm&) = delete;
    ncclComm& operator=(const ncclComm&) = delete;

    emulated::Meeting meeting;
    int rank;
    std::int64_t device_bytes;
    const void* family;        // the same for communicators that share resources
    std::uint64_t queued = 0;  // operations
    std::uint64_t chunks = 0;  // of the collectives that are done
    std::uint64_t splits = 0;
    std::atomic<ncclResult_t> error = ncclSuccess;

    [[nodiscard]] std::uint64_t wanted() const {
        std::uint64_t most = 0;
        for (int other = 0; other < meeting.ranks(); ++other) {
            if (other != rank) most = std::max(most, meeting.seat(other).begun.load());
        }
        return most;
    }
    template <typename Counter>
    [[nodiscard]] bool all(Counter emulated::Seat::*counter, std::uint64_t at_least) const {
        for (int other = 0; other < meeting.ranks(); ++other) {
            if ((meeting.seat(other).*counter).load() < at_least) return false;
        }
        return true;
    }
};

namespace emulated {

enum Kind : std::int32_t {
    all_reduce = 1,
    all_gather,
    reduce_scatter,
    all_to_all,
    broadcast,
    reduce,
    gather,
    scatter,
    messages
};

/// One collective of this rank, while it goes on. Each chunk holds a piece of every block that a rank contributes.
struct Exchange {
    ncclComm* comm;
    Wish wish;
    std::uint64_t number;
    const std::byte* in;
    std::byte* out;
    std::size_t element_bytes;
    std::size_t block_bytes;  // all-reduce, broadcast and reduce: of everything
    std::size_t done = 0;     // bytes of each block
    bool has_begun = false, has_written = false, fails = false;

    Progress step();

  private:
    [[nodiscard]] bool is_root() const { return comm->rank == wish.root; }
    void write(std::size_t bytes) const;
    void check_wishes() const;
    void read(std::size_t bytes) const;
    void copy_blocks(std::size_t bytes) const;
};
/// How many blocks a rank may contribute, and receive: one, or one for each rank.
[[nodiscard]] std::size_t blocks_in(const ncclComm& comm, std::int32_t kind);
[[nodiscard]] std::size_t blocks_out(const ncclComm& comm, std::int32_t kind);

/// A message to or from another rank.
struct Message {
    bool sends = false;
    int peer = 0;
    std::byte* memory = nullptr;
    std::size_t bytes = 0;
    std::size_t done = 0;
};
/// The messages of a group of ncclSend and ncclRecv, while they go on. A message that is sent counts as done when the
/// other rank has taken all of it. Unlike NCCL's, all ranks of the communicator must have as many groups, in the same
/// order among its collectives.
struct MessageGroup {
    ncclComm* comm;
    std::uint64_t number;
    std::vector<Message> list;
    bool has_begun = false, fails = false;

    Progress step();

  private:
    [[nodiscard]] bool advance(Message& message) const;
};

}  // namespace emulated
