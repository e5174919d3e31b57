// One communication, and the times that are taken of an instruction.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "core/index.h"
#include "exec/transport/collective.h"
#include "sim/program/program.h"

namespace orrery::exec {

using GroupIndex = Index<struct GroupTag>;

/// A process group of this rank; an index into its Transport, or into its Backend's communicators.
struct GroupHandle {
    GroupIndex index = -1;
    [[nodiscard]] bool valid() const { return index >= 0; }
};

/// after[s]: how many operations of stream s must have completed first; 0: none.
using Dependencies = program::PerStream<std::int64_t>;

/// Nanoseconds of the machine's monotonic clock, as now_ns() reads it.
struct OperationTimes {
    std::int64_t ready_ns = 0;  // at the head of its stream with its dependencies met; not before it was posted
    /// The first message from a peer was complete here (send: the peer had taken one), so all that must have joined by
    /// then had. Equal to ready when none came, as on a broadcast's root.
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
};
[[nodiscard]] std::int64_t now_ns();

/// Of an operation that moves no data but takes its time: its members agree on when the last of them was ready, and it
/// is complete that long after. Moments follow from each other, not from when a thread came to act on them, so what the
/// operating system is late by does not add up.
struct Pace {
    std::int64_t issued_ns = 0;    // when it counts as posted
    std::int64_t duration_ns = 0;  // from the moment at which all members are there
};

/// What to do; its fields mean what they mean in CollectiveArguments (exec/transport/collective.h), which also says
/// what may be in place. Buffers and counts stay valid until the operation has completed.
struct Operation {
    program::CommKind kind{};
    program::ReduceOp reduce = program::ReduceOp::sum;
    DType dtype = DType::fp32;  // reductions: what can_combine() knows; the other kinds: any
    std::int64_t elements = 0;
    const void* in = nullptr;
    void* out = nullptr;
    GroupHandle group;                // collectives
    int peer = -1;                    // send, recv: the other world rank
    int root = 0;                     // broadcast, reduce, scatter, gather: index in the group
    bool accumulates = false;         // reduce-scatter
    bool consumes = false;            // reduce-scatter
    BlockCounts counts;               // all-to-all
    Dependencies after{};             // entry of the own stream: no more than are before it anyway
    OperationTimes* times = nullptr;  // when given, written before the operation counts as completed
    std::optional<Pace> pace;         // in an engine with a Pacing: `group` is used, and nothing else of what is moved
};

}  // namespace orrery::exec
