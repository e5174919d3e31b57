// One accelerator as the DeviceBackend drives it: memory, streams that work by themselves, events, communication.
// What is queued on a stream is done in order; calls that queue return at once. One thread calls.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "core/index.h"
#include "exec/backend.h"

namespace orrery::exec {

class Device {
  public:
    /// A point in a stream: complete once all that was queued there before is done. Events are used again after
    /// release(); what waits for one keeps the point that it had when the wait was queued.
    using Event = Index<struct EventTag>;

    Device() = default;
    virtual ~Device() = default;
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    // ---- memory -----------------------------------------------------------------------------------------------------

    /// Zeroed, there until the device goes; null when there is not so much.
    virtual std::byte* allocate(std::int64_t bytes) = 0;
    /// Host memory that copies may read and write while the host goes on.
    virtual std::byte* allocate_host(std::int64_t bytes) = 0;
    [[nodiscard]] virtual std::int64_t free_bytes() const = 0;
    /// In use on the device, the runtime's own included.
    [[nodiscard]] virtual std::int64_t used_bytes() const = 0;

    // ---- what is queued on a stream ---------------------------------------------------------------------------------

    /// Between any two of device and host memory. Host memory that is not of allocate_host() may stop the host until
    /// the copy is made.
    virtual void copy(program::Stream stream, void* to, const void* from, std::int64_t bytes) = 0;
    virtual void clear(program::Stream stream, void* memory, std::int64_t bytes) = 0;
    /// Every kind but load_tokens, load_targets and host_wait. What `context` points to is read before the call
    /// returns.
    virtual void run(program::Stream stream, const BoundOperator& one, const OperatorContext& context) = 0;
    /// Returns the bytes that this rank hands to the others.
    virtual std::int64_t communicate(program::Stream stream, const Operation& operation) = 0;

    // ---- events -----------------------------------------------------------------------------------------------------

    virtual Event record(program::Stream stream) = 0;
    /// What is queued from now on starts after the event.
    virtual void hold(program::Stream stream, Event event) = 0;
    [[nodiscard]] virtual bool is_complete(Event event) = 0;
    /// Blocks the host until the event is complete. Throws JobError when the work before it failed.
    virtual void synchronize(Event event) = 0;
    /// When a complete event came about, on the clock of now_ns().
    [[nodiscard]] virtual std::int64_t time_ns(Event event) = 0;
    virtual void release(Event event) = 0;

    // ---- others -----------------------------------------------------------------------------------------------------

    /// Collective over all ranks.
    virtual AxisGroups connect(const AxisMembers& members) = 0;
    [[nodiscard]] virtual std::map<std::string, std::string> describe() const = 0;
};

}  // namespace orrery::exec
