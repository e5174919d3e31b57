// One thread a rank that drives all communication streams, so that communication goes on while the compute thread
// computes.
//
// Each stream is a FIFO. An operation starts when it is at the head of its stream and the operations of other streams
// that it names have completed; then the members exchange messages as exec/transport/collective.h says. A stream's
// operations complete in order, so an event is (stream, how many operations of it have completed).
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

/// When the progress thread polls, yields and sleeps. The defaults are what transport_bench measures as best on two
/// cores with 2 and with 8 ranks.
struct ProgressTuning {
    /// Polls without news while the compute thread computes, before sleeping: messages that are already there cost two
    /// or three polls, anything later would steal the compute thread's core.
    int polls_before_sleep = 4;
    /// First sleep while the compute thread computes; doubles up to the longest while nothing happens. On a virtual
    /// machine a wake-up takes some 30 us of the core (timer interrupt, two switches), so steps of 20 us would steal
    /// more than half of it; the longest bounds the latency that a message can meet. posting and waiting end a sleep at
    /// once.
    int shortest_sleep_us = 50;
    int longest_sleep_us = 200;
    /// Polls between two yields while the compute thread is blocked in wait() and every rank has a core.
    int polls_per_yield = 64;
    /// More ranks than cores and the compute thread blocked: polls, each followed by a yield, before sleeping, and how
    /// long. The rank that everyone waits for then finds a free core. Fewer yields quadruple the latency of small
    /// messages.
    int crowded_yields_before_sleep = 16;
    int crowded_sleep_us = 50;
    /// How long wait() looks before it blocks, when there are two cores a rank. With fewer it blocks at once.
    int wait_spin_us = 5;
};

class ProgressEngine {
  public:
    /// All groups that operations will use exist already. One engine at a time for a Transport, which outlives it.
    explicit ProgressEngine(Transport& transport, const ProgressTuning& tuning = {},
                            const std::optional<Pacing>& pacing = std::nullopt);
    /// Completes what was posted, then stops. When the stack is unwinding it stops at once and marks the Transport,
    /// which will end the whole job, if operations were under way.
    ~ProgressEngine();
    ProgressEngine(const ProgressEngine&) = delete;
    ProgressEngine& operator=(const ProgressEngine&) = delete;

    /// Appends to a communication stream, or with a Pace to any, of which local ones have nobody to meet; returns the
    /// operation's sequence number there: 1 for the first. Called by one thread. Throws BugError on an operation that
    /// cannot be: a stream of the own rank without a Pace, a Pace without a Pacing or the other way, a group that this
    /// rank did not make, a peer out of range, dependencies on operations not yet posted, or what Collective refuses.
    /// Counts that cannot be show only when the operation starts, and end the job.
    std::int64_t post(program::Stream stream, const Operation& operation);

    [[nodiscard]] std::int64_t posted(program::Stream stream) const;
    /// How many of the stream's operations have completed; never decreases. What they wrote is visible to the caller.
    [[nodiscard]] std::int64_t completed(program::Stream stream) const;
    /// Blocks until completed(stream) >= sequence. Called by the thread that posts. Throws BugError when the sequence
    /// was never posted.
    void wait(program::Stream stream, std::int64_t sequence);
    /// The same, but gives up after the timeout: false, and the operations go on. A timeout of 0 only looks.
    [[nodiscard]] bool wait(program::Stream stream, std::int64_t sequence, std::chrono::nanoseconds timeout);
    /// Blocks until everything posted has completed.
    void wait_all();
    /// When a paced operation ended that has completed and is among the kept.
    [[nodiscard]] Moment moment_of(program::Stream stream, std::int64_t sequence) const;

    /// What is not completed, for the message of a job that is stuck: a line for each stream that has work, with its
    /// first operation, its place in the stream, its peer or group, and what it waits for: operations of other streams,
    /// or messages of certain world ranks. Empty when there is nothing. Any thread may call, also while another waits.
    [[nodiscard]] std::string describe_pending() const;

    /// Bytes handed to MPI for sending, and received through it, since the start.
    [[nodiscard]] std::int64_t bytes_sent(program::Stream stream) const;
    [[nodiscard]] std::int64_t bytes_sent(program::Stream stream, program::CommKind kind) const;
    [[nodiscard]] std::int64_t bytes_received(program::Stream stream) const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace orrery::exec
