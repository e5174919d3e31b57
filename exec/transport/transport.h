// The job's processes and their groups. A rank is an MPI process, or in builds without MPI a process that is connected
// to the others over TCP (transport/sockets); no MPI type appears in this header.
//
// Threads: MPI is initialised with MPI_THREAD_SERIALIZED. The main thread (start, groups, the small host exchanges
// below), the progress thread of a ProgressEngine and the threads of Heartbeat and EarlyStop take turns under an
// internal lock. The exchanges below wait without holding the lock, so they may be called while the engine has
// operations in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "exec/faults/recorder.h"
#include "exec/transport/operation.h"

namespace orrery::exec {

class Transport {
  public:
    /// Starts MPI; collective over all ranks. A process may create only one Transport in its lifetime. Without a
    /// launcher the world is this one process. Throws JobError if MPI cannot start or has too little thread support.
    Transport();
    /// Finalizes MPI, which waits for the other ranks. If the stack is unwinding, or a ProgressEngine was left with
    /// operations in flight, it ends the whole job instead, because the other ranks would wait forever.
    ~Transport();
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    [[nodiscard]] int rank() const;
    [[nodiscard]] int world_size() const;
    /// Ranks of the job on this machine.
    [[nodiscard]] int ranks_on_host() const;
    /// Cores of this machine that its ranks may use together.
    [[nodiscard]] int cores() const;

    /// Creates a process group. `ranks` are distinct and include this rank. Their order, which must be the same on all
    /// members, is the order of the blocks of an all-gather or a reduce-scatter. Only the members call it. If ranks
    /// share several groups, they must create them in the same order (for instance by axis, then by lowest member).
    /// Messages of different groups, and of different streams in one group, are never confused. Throws BugError if
    /// `ranks` violates this.
    [[nodiscard]] GroupHandle create_group(const std::vector<int>& ranks);
    [[nodiscard]] const std::vector<int>& members(GroupHandle group) const;

    /// Returns when all ranks have called it.
    void barrier();
    /// On rank 0 the bytes of all ranks, by rank; empty on the other ranks. The sizes may differ; the total is at most
    /// 2^31-1.
    [[nodiscard]] std::vector<std::string> gather(const std::string& mine);
    /// Rank 0's bytes, on all ranks.
    [[nodiscard]] std::string broadcast(const std::string& from_rank_0);
    /// On all ranks the text of the lowest rank whose text is not empty; "" if all are empty.
    [[nodiscard]] std::string first_of(const std::string& mine);

    /// A non-blocking maximum over all ranks: each rank offers a number and continues. A rank may have one offer at a
    /// time. offer() and greatest_offer() may be called from any one thread.
    void offer(std::int64_t value);
    /// The greatest number offered; none until all ranks have offered theirs.
    [[nodiscard]] std::optional<std::int64_t> greatest_offer();

    /// Ends the whole job with this exit code. The first rank of the machine that calls it prints `message` and its
    /// place in the Program (FlightRecorder::place); the others print nothing. "": another rank has printed the
    /// message.
    [[noreturn]] void abort(int exit_code, const std::string& message);

    /// Records what this rank does, from before MPI starts until MPI has ended.
    [[nodiscard]] FlightRecorder& recorder() { return recorder_; }

    struct Impl;
    [[nodiscard]] Impl& impl() { return *impl_; }

  private:
    FlightRecorder recorder_;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::exec
