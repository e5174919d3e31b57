// The interface of an accelerator to the DeviceBackend: memory, asynchronous streams, events and communication. A
// stream runs its operations in order; calls that queue an operation return at once. All calls come from one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "core/index.h"
#include "exec/backend.h"
#include "sim/program/kernel_memory.h"

namespace orrery::exec {

class Device {
  public:
    /// A point in a stream, complete when everything queued there before it is done. Events are reused after release();
    /// a queued wait keeps referring to the point that the event had when the wait was queued.
    using Event = Index<struct EventTag>;

    Device() = default;
    virtual ~Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    // ---- memory -----------------------------------------------------------------------------------------------------

    /// Zeroed device memory that lives as long as the device; null if too little is free.
    virtual std::byte* allocate(std::int64_t bytes) = 0;
    /// Pinned host memory, for asynchronous copies; null if too little is free.
    virtual std::byte* allocate_host(std::int64_t bytes) = 0;
    /// Takes the memory of the kernels of a Program, before the first operation. Throws JobError if too little is free.
    virtual void prepare(const program::KernelMemory&, const models::ModelSpec&) {}
    [[nodiscard]] virtual std::int64_t free_bytes() const = 0;
    /// Memory in use on the device, including that of the runtime.
    [[nodiscard]] virtual std::int64_t used_bytes() const = 0;

    // ---- operations queued on a stream ------------------------------------------------------------------------------

    /// Copies between any two of device and host memory. With host memory that is not from allocate_host() the call may
    /// block until the copy is complete.
    virtual void copy(program::Stream stream, void* to, const void* from, std::int64_t bytes) = 0;
    virtual void clear(program::Stream stream, void* memory, std::int64_t bytes) = 0;
    /// Runs an operator of any kind except load_tokens, load_targets and host_wait. Everything that `context` points to
    /// is read before the call returns.
    virtual void run(program::Stream stream, const BoundOperator& one, const OperatorContext& context) = 0;
    /// Returns the bytes that this rank sends to the others. Counts are in host memory and are read before the call
    /// returns.
    virtual std::int64_t communicate(program::Stream stream, const Operation& operation) = 0;

    // ---- events -----------------------------------------------------------------------------------------------------

    virtual Event record(program::Stream stream) = 0;
    /// Makes all operations queued on the stream from now on wait for the event.
    virtual void hold(program::Stream stream, Event event) = 0;
    [[nodiscard]] virtual bool is_complete(Event event) = 0;
    /// Throws JobError if communication has failed, for which the work that waits for it cannot become complete.
    virtual void check_health() {}
    /// Blocks the host until the event is complete; calls `meanwhile`, if given, again and again. Throws JobError if
    /// the work before it failed.
    virtual void synchronize(Event event, const std::function<void()>& meanwhile = {});
    /// The time at which a complete event was reached, on the clock of now_ns().
    [[nodiscard]] virtual std::int64_t time_ns(Event event) = 0;
    virtual void release(Event event) = 0;

    // ---- others -----------------------------------------------------------------------------------------------------

    /// Collective over all ranks.
    virtual AxisGroups connect(const Partners& partners) = 0;
    [[nodiscard]] virtual std::map<std::string, std::string> describe() const = 0;
};

}  // namespace orrery::exec
