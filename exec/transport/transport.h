// The job's processes and their groups. A rank is an MPI process; no MPI type appears here.
//
// Threads. MPI is initialised at MPI_THREAD_SERIALIZED: the main thread (init, groups, the small host exchanges below)
// and the one progress thread of a ProgressEngine take turns, held by a lock inside. The exchanges below wait without
// holding the lock, so they may be called while the engine has operations under way.
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
    /// Starts MPI; collective over all ranks. At most one Transport may ever be made in a process. Without a launcher
    /// the world is this one process. Throws JobError when MPI cannot start or offers too little thread support.
    Transport();
    /// Ends MPI, waiting for the other ranks to do the same. When the stack is unwinding, or a ProgressEngine was left
    /// with operations under way, it ends the whole job instead, because the other ranks would wait forever.
    ~Transport();
    Transport(const Transport&) = delete;
    Transport& operator=(const Transport&) = delete;

    [[nodiscard]] int rank() const;
    [[nodiscard]] int world_size() const;
    /// Ranks of the job on this machine.
    [[nodiscard]] int ranks_on_host() const;
    /// Cores of this machine that its ranks together may use.
    [[nodiscard]] int cores() const;

    /// Makes a process group. `ranks` are distinct, contain this rank and have the same order on every member: it is
    /// the order of the blocks of an all-gather or a reduce-scatter. Only the members call; a rank in several groups
    /// makes them in an order that does not contradict any other member's (for instance by axis, then by lowest
    /// member). Messages of different groups never meet, nor do those of different streams in one group.
    /// Throws BugError when `ranks` is not as said.
    [[nodiscard]] GroupHandle create_group(const std::vector<int>& ranks);
    [[nodiscard]] const std::vector<int>& members(GroupHandle group) const;

    /// Returns when all ranks have called it.
    void barrier();
    /// All ranks' bytes, by rank, on rank 0; empty on the others. Each rank's part may have another size, up to 2^31-1
    /// in all.
    [[nodiscard]] std::vector<std::string> gather(const std::string& mine);
    /// Rank 0's bytes on all ranks.
    [[nodiscard]] std::string broadcast(const std::string& from_rank_0);
    /// The first text by rank that is not empty, on all ranks; "" when all are.
    [[nodiscard]] std::string first_of(const std::string& mine);

    /// Each rank offers a number, once at a time, and goes on with its work. Both from one thread, of any.
    void offer(std::int64_t value);
    /// The greatest number that was offered; none while a rank has not offered its own.
    [[nodiscard]] std::optional<std::int64_t> greatest_offer();

    /// Ends the whole job with this exit code. The first rank on the machine to call it prints `message` and where it
    /// is (FlightRecorder::place), the others are silent.
    [[noreturn]] void abort(int exit_code, const std::string& message);

    /// Where this rank writes down what it does, from before MPI starts until it has ended.
    [[nodiscard]] FlightRecorder& recorder() { return recorder_; }

    struct Impl;
    [[nodiscard]] Impl& impl() { return *impl_; }

  private:
    FlightRecorder recorder_;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::exec
