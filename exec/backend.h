// The interface between the Interpreter and the memory, streams and communication of one rank. The interpreter decides
// the order of operations; a backend executes them as the streams and the dependencies say.
//
// Every stream is a FIFO. run() and post() append an operation to a stream. It starts when it is at the head of its
// stream and the operations in `after` have completed. An asynchronous backend returns at once; a backend that works
// in the calling thread returns when the operation is done. All calls come from one thread.
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

/// The operators of one instruction of a local stream. Work on a host stream is complete when run() returns.
struct LocalWork {
    program::Stream stream = program::Stream::compute;
    std::span<const BoundOperator> operators;  // empty: the instruction is only an event
    Dependencies after{};
    OperationTimes* times = nullptr;  // never null; written like Operation::times
};

/// The two blocks of a rank's memory. On a CPU backend both are in host memory, one behind the other.
struct ArenaMemory {
    std::byte* device = nullptr;
    std::byte* host = nullptr;
};

/// The members of this rank's process group on each axis, in order; empty if the Program does not communicate there.
using AxisMembers = program::PerAxis<std::vector<int>>;
using AxisGroups = program::PerAxis<GroupHandle>;

/// The ranks with which this rank communicates.
struct Partners {
    AxisMembers members;
    program::PerStream<int> peers{};  // of each pipeline stream: the rank at its other end; -1: none
    Partners() { peers.fill(-1); }
};

class Backend {
  public:
    Backend() = default;
    virtual ~Backend() = default;
    Backend(const Backend&) = delete;
    Backend& operator=(const Backend&) = delete;

    // ---- memory -----------------------------------------------------------------------------------------------------

    /// Takes the memory that kernels need beside the operands of a rank of this class. Call it once, before reserve().
    /// Throws JobError if too little is free.
    virtual void prepare(const program::Program&, const program::RankClass&) {}
    /// Allocates zeroed memory for all operands; it lives as long as the backend. Call it once. Throws JobError if the
    /// memory does not suffice for all ranks that share it; the message begins with `needs`, which lists this rank's
    /// needs.
    virtual ArenaMemory reserve(std::int64_t device_bytes, std::int64_t host_bytes, const std::string& needs) = 0;
    /// Calls `fill` with uninitialised host memory and copies the result to `device`. Returns when the copy is
    /// complete. No operation in flight may use the memory.
    virtual void write(void* device, std::int64_t bytes, const std::function<void(std::byte*)>& fill) = 0;
    /// Calls `use` with a host copy of device memory. The caller has waited for all operations that write it.
    virtual void read(const void* device, std::int64_t bytes, const std::function<void(const std::byte*)>& use) = 0;
    /// Peak use of the memory that holds this rank's tensors, as the system reports it.
    [[nodiscard]] virtual std::int64_t peak_memory_bytes() const = 0;

    // ---- work -------------------------------------------------------------------------------------------------------

    /// Creates the process groups. Collective over all ranks; call it once, before the first post().
    virtual AxisGroups connect(const Partners& partners) = 0;
    /// Appends to a local stream and returns the sequence number there (1 for the first operation). Everything that
    /// `context` points to is read before the call returns.
    virtual std::int64_t run(const LocalWork& work, const OperatorContext& context) = 0;
    /// True if the work is done when run() returns and the host can read its results.
    [[nodiscard]] virtual bool is_synchronous() const = 0;
    /// Appends to a communication stream and returns the sequence number there.
    virtual std::int64_t post(program::Stream stream, const Operation& operation) = 0;

    // The next three are queued on the compute stream and belong to the instruction before them: they get no sequence
    // number of their own.

    virtual void clear(void* device, std::int64_t bytes) = 0;
    /// Copies `*device` to `*host`.
    virtual void fetch(const double* device, double* host) = 0;
    /// Writes the time at which the stream reaches this point to `*ns`, on the clock of now_ns().
    virtual void stamp(std::int64_t* ns) = 0;

    // ---- completion -------------------------------------------------------------------------------------------------

    /// Blocks the host until operation number `sequence` of the stream has completed; 0 returns at once. The times of
    /// the completed operations, and the results of their clear(), fetch() and stamp(), can then be read.
    virtual void wait(program::Stream stream, std::int64_t sequence) = 0;
    /// Blocks until all operations on all streams have completed.
    virtual void wait_all() = 0;
    /// Bytes sent to other ranks on this stream since the start.
    [[nodiscard]] virtual std::int64_t bytes_sent(program::Stream stream) const = 0;
    /// The part of bytes_sent() that belongs to one kind of communication; 0 if the backend does not count by kind.
    [[nodiscard]] virtual std::int64_t bytes_sent_by(program::Stream, program::CommKind) const { return 0; }
    /// The resident bytes of a part of the reserved memory, as the system reports them; `bytes` if reserved memory is
    /// always resident.
    [[nodiscard]] virtual std::int64_t resident_bytes(const void*, std::int64_t bytes) const { return bytes; }
    /// Describes the rank's processor or GPU for the environment of a RunRecord.
    [[nodiscard]] virtual std::map<std::string, std::string> describe() const = 0;
};

}  // namespace orrery::exec
