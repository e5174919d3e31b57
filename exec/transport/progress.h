// The progress thread of a rank, which drives all communication streams, so that communication overlaps computation.
//
// Each stream is a FIFO. An operation starts when it is at the head of its stream and the operations in `after` have
// completed. Then the members exchange messages as described in exec/transport/collective.h. A stream's operations
// complete in order, so an event is a pair (stream, number of completed operations).
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "exec/transport/operation.h"
#include "exec/transport/pacing.h"
#include "exec/transport/transport.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// When the progress thread polls, yields and sleeps. The defaults were the fastest in transport_bench on two cores
/// with 2 and with 8 ranks.
struct ProgressTuning {
    /// Number of polls without progress before sleeping, while the compute thread computes. A message that has already
    /// arrived takes two or three polls; polling for later ones would take CPU time from the compute thread.
    int polls_before_sleep = 4;
    /// First sleep while the compute thread computes; it doubles up to the longest sleep while nothing happens. On a
    /// virtual machine a wake-up takes some 30 us of CPU time (timer interrupt, two context switches), so sleeps of
    /// 20 us would take more than half of the core. The longest sleep bounds the latency added to a message. post() and
    /// wait() end a sleep at once.
    int shortest_sleep_us = 50;
    int longest_sleep_us = 200;
    /// Polls between two yields while the compute thread is blocked in wait() and every rank has a core.
    int polls_per_yield = 64;
    /// With more ranks than cores and the compute thread blocked in wait(): the number of polls, each followed by a
    /// yield, before a sleep, and the length of the sleep. So the rank that the others wait for gets a core. Fewer
    /// yields quadruple the latency of small messages.
    int crowded_yields_before_sleep = 16;
    int crowded_sleep_us = 50;
    /// How long wait() spins before it blocks, if there are two cores per rank. With fewer cores it blocks at once.
    int wait_spin_us = 5;
};

class ProgressEngine {
  public:
    /// All groups that operations will use must exist. The Transport must outlive the engine and may have one engine at
    /// a time.
    explicit ProgressEngine(Transport& transport, const ProgressTuning& tuning = {},
                            const std::optional<Pacing>& pacing = std::nullopt);
    /// Completes all posted operations, then stops. If the stack is unwinding and operations are in flight, it stops at
    /// once and marks the Transport, which then ends the whole job.
    ~ProgressEngine();
    ProgressEngine(const ProgressEngine&) = delete;
    ProgressEngine& operator=(const ProgressEngine&) = delete;

    /// Appends an operation to a communication stream, or, if it has a Pace, to any stream; returns its sequence number
    /// there (1 for the first). All calls come from one thread. Throws BugError on an invalid operation: a local stream
    /// without a Pace, a Pace in an engine without Pacing or vice versa, an unknown group, a peer out of range,
    /// dependencies on operations not yet posted, or arguments that Collective rejects. Invalid counts are detected
    /// when the operation starts, and end the job.
    std::int64_t post(program::Stream stream, const Operation& operation);

    [[nodiscard]] std::int64_t posted(program::Stream stream) const;
    /// How many of the stream's operations have completed; never decreases. Their results are visible to the caller.
    [[nodiscard]] std::int64_t completed(program::Stream stream) const;
    /// Blocks until completed(stream) >= sequence. Called by the thread that posts. Throws BugError if `sequence` has
    /// not been posted.
    void wait(program::Stream stream, std::int64_t sequence);
    /// The same with a timeout: returns false if it expires, and the operations continue. A timeout of 0 only checks.
    [[nodiscard]] bool wait(program::Stream stream, std::int64_t sequence, std::chrono::nanoseconds timeout);
    /// Blocks until all posted operations have completed.
    void wait_all();
    /// The end of a completed paced operation, which must be among the last Pacing::kept_moments of its stream.
    [[nodiscard]] Moment moment_of(program::Stream stream, std::int64_t sequence) const;

    /// Describes the pending operations, for the error message of a stuck job: a line for each stream with work, with
    /// its first operation, the operation's sequence number, peer or group, and what it waits for (operations of other
    /// streams, or messages of certain world ranks). "" if nothing is pending. Any thread may call it, even while
    /// another is in wait().
    [[nodiscard]] std::string describe_pending() const;

    /// Bytes sent and received through MPI since the start.
    [[nodiscard]] std::int64_t bytes_sent(program::Stream stream) const;
    [[nodiscard]] std::int64_t bytes_sent(program::Stream stream, program::CommKind kind) const;
    [[nodiscard]] std::int64_t bytes_received(program::Stream stream) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::exec
