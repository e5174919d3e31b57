// What an Interpreter drives: the memory, the streams and the communication of one rank. The interpreter alone knows
// the order of things; a backend does what it is told, as the streams and the dependencies have it.
//
// Every stream is a FIFO. run() and post() append to one; what they append starts when it is at the head of its stream
// and what `after` names has completed. A backend whose streams work by themselves returns at once; one that works in
// the calling thread returns when it is done. One thread calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "exec/operator_call.h"
#include "exec/transport/operation.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// The operators of one instruction of a local stream. A stream of the host is worked off before run() returns.
struct LocalWork {
    program::Stream stream = program::Stream::compute;
    std::span<const BoundOperator> operators;  // none: only an event
    Dependencies after{};
    OperationTimes* times = nullptr;  // always given; written as Operation::times are
};

/// The two blocks of a rank's memory, where one machine has one memory for both: neighbours.
struct ArenaMemory {
    std::byte* device = nullptr;
    std::byte* host = nullptr;
};

/// Members of this rank's group on each axis, in order; empty where the Program has no communication on the axis.
using AxisMembers = program::PerAxis<std::vector<int>>;
using AxisGroups = program::PerAxis<GroupHandle>;

class Backend {
  public:
    Backend() = default;
    virtual ~Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    // ---- memory -----------------------------------------------------------------------------------------------------

    /// Zeroed memory for all that operators touch, there until the backend goes; to be called once. Throws JobError
    /// when there is not so much for every rank that shares it: `needs` says who needs how much for what, and begins
    /// the message.
    virtual ArenaMemory reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& needs) = 0;
    /// Has in device memory what `fill` leaves in the host memory that it is called with, which holds nothing of use.
    /// Returns when it is there. Nothing that is under way may use the memory.
    virtual void write(void* device, std::int64_t bytes, const std::function<void(std::byte*)>& fill) = 0;
    /// Calls `use` with host memory that holds what device memory does. Whatever writes it has been waited for.
    virtual void read(const void* device, std::int64_t bytes, const std::function<void(const std::byte*)>& use) = 0;
    /// The most memory that this rank ever had in use where its tensors lie, as the system counts it.
    [[nodiscard]] virtual std::int64_t peak_memory_bytes() const = 0;

    // ---- work -------------------------------------------------------------------------------------------------------

    /// Makes the process groups; collective over all ranks, to be called once and before the first post().
    virtual AxisGroups connect(const AxisMembers& members) = 0;
    /// Appends to a local stream; returns its sequence number there: 1 for the first. What `context` points to is read
    /// before the call returns.
    virtual std::int64_t run(const LocalWork& work, const OperatorContext& context) = 0;
    /// True when run() returns with the work done, in memory that the host may read.
    [[nodiscard]] virtual bool is_synchronous() const = 0;
    /// Appends to a communication stream; likewise.
    virtual std::int64_t post(program::Stream stream, const Operation& operation) = 0;

    // What follows takes its turn on the compute stream and counts as part of the instruction before it there.

    virtual void clear(void* device, std::int64_t bytes) = 0;
    /// Leaves a copy of `*device` in `*host`.
    virtual void fetch(const double* device, double* host) = 0;
    /// Leaves the time at which the stream gets there in `*ns`, on the clock of now_ns().
    virtual void stamp(std::int64_t* ns) = 0;

    // ---- completion -------------------------------------------------------------------------------------------------

    /// Blocks the host until so many of the stream's operations have completed; 0: none. Their times, and what clear(),
    /// fetch() and stamp() did with them, are then there.
    virtual void wait(program::Stream stream, std::int64_t sequence) = 0;
    /// Blocks until everything is complete.
    virtual void wait_all() = 0;
    /// Bytes handed to the other ranks on this stream since the start.
    [[nodiscard]] virtual std::int64_t bytes_sent(program::Stream stream) const = 0;
    /// Of these, those of one kind of communication; 0 where kinds are not told apart.
    [[nodiscard]] virtual std::int64_t bytes_sent_by(program::Stream, program::CommKind) const { return 0; }
    /// How much of a part of the memory that was reserved is there, as the system counts it; all of it where that
    /// cannot be less.
    [[nodiscard]] virtual std::int64_t resident_bytes(const void*, std::int64_t bytes) const { return bytes; }
    /// For the environment of a RunRecord: what the rank computed on.
    [[nodiscard]] virtual std::map<std::string, std::string> describe() const = 0;
};

}  // namespace orrery::exec
