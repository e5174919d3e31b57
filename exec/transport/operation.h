// One communication operation, and the recorded times of an instruction.
#pragma once

#include <cstdint>
#include <optional>

#include "core/dtype.h"
#include "core/index.h"
#include "exec/transport/collective.h"
#include "sim/program/program.h"

namespace orrery::exec {

using GroupIndex = Index<struct GroupTag>;

/// A process group of this rank: an index into its Transport's groups, or its Backend's communicators.
struct GroupHandle {
    GroupIndex index = -1;
    [[nodiscard]] bool valid() const { return index >= 0; }
};

/// after[s]: how many operations of stream s must have completed first; 0: none.
using Dependencies = program::PerStream<std::int64_t>;

/// Nanoseconds of the machine's monotonic clock, as now_ns() reads it.
struct OperationTimes {
    std::int64_t ready_ns = 0;  // posted, at the head of its stream, and its dependencies met
    /// The first message from a peer had arrived (for a send: the peer had taken one). Equal to ready_ns if no message
    /// comes, as on the root of a broadcast.
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
};
[[nodiscard]] std::int64_t now_ns();

/// The timing of a paced operation, which transfers no data: its members agree on the time at which the last of them
/// was ready, and the operation completes `duration_ns` later. Times are computed from each other, so that late
/// wake-ups by the operating system do not add up.
struct Pace {
    std::int64_t issued_ns = 0;    // the computed time of posting
    std::int64_t duration_ns = 0;  // from the time at which all members are ready
};

/// A communication operation. The fields have the meaning of those in CollectiveArguments
/// (exec/transport/collective.h), which also says which operations may be in place. Buffers and counts must stay valid
/// until it has completed.
struct Operation {
    program::CommKind kind{};
    program::ReduceOp reduce = program::ReduceOp::sum;
    DType dtype = DType::fp32;  // reductions: a type that can_combine() accepts; other kinds: any type
    std::int64_t elements = 0;
    const void* in = nullptr;
    void* out = nullptr;
    GroupHandle group;                // collectives
    int peer = -1;                    // send, recv: the other world rank
    int root = 0;                     // broadcast, reduce, scatter, gather: index in the group
    bool accumulates = false;         // reduce-scatter
    bool consumes = false;            // reduce-scatter
    BlockCounts counts;               // all-to-all
    Dependencies after{};             // the entry of its own stream is at most the number of operations before it
    OperationTimes* times = nullptr;  // if given, written before the operation counts as completed
    std::optional<Pace> pace;  // for engines with a Pacing; of the fields above only `group` and `after` are used
};

/// For the member `me` of `members`. `peer`: of a send or recv, as an index among them.
[[nodiscard]] inline CollectiveArguments arguments_of(const Operation& operation, int members, int me, int peer) {
    return {.kind = operation.kind,
            .reduce = operation.reduce,
            .dtype = operation.dtype,
            .elements = operation.elements,
            .in = operation.in,
            .out = operation.out,
            .members = members,
            .me = me,
            .peer = peer,
            .root = operation.root,
            .accumulates = operation.accumulates,
            .consumes = operation.consumes,
            .counts = operation.counts};
}

}  // namespace orrery::exec
