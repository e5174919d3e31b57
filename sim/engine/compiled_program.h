// A Program compiled for the engine: flat arrays, dependencies as (counter, count), durations from the cost model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/cost/cost_model.h"
#include "sim/engine/communication_cost.h"
#include "sim/engine/endpoints.h"
#include "sim/program/program.h"
#include "sim/sharing/tangents.h"

namespace orrery::sim {

using CounterIndex = Index<struct CounterTag, std::int8_t>;  // of a rank

/// The counters of a rank: completed instructions of each stream and, for each axis used from several streams,
/// completed operations on that axis, because a communicator runs one operation at a time in issue order. The streams
/// that the Program uses, and always compute, come first in the order of program::Stream, so local streams precede the
/// other streams.
struct Counters {
    IndexedVector<CounterIndex, program::Stream> streams;
    program::PerStream<CounterIndex> of_stream;  // -1: the Program does not use the stream
    program::PerAxis<CounterIndex> of_axis;      // -1: the axis has no counter
    std::int32_t local_streams = 0;
    CounterIndex end = 0;

    [[nodiscard]] CounterIndex operator[](program::Stream stream) const { return of_stream[stream]; }
    [[nodiscard]] IndexRange<CounterIndex> local() const { return {0, CounterIndex::of(local_streams)}; }
};
inline constexpr CounterIndex kComputeCounter = 0;
template <typename T>
using PerCounter = IndexedVector<CounterIndex, T>;
/// Non-owning view of one element per counter.
template <typename T>
struct CounterView {
    T* first = nullptr;
    [[nodiscard]] T& operator[](CounterIndex counter) const { return first[counter.position()]; }
};

/// A dependency: `counter` must have reached `count`, counted in issue order from the start of the call.
struct Need {
    CounterIndex counter = 0;
    std::int32_t count = 0;
};
using NeedIndex = Index<struct NeedTag>;

/// Work of the host to issue instructions: launches, and passes over blocks, each of which costs additional host time.
struct HostWork {
    std::int32_t launches = 0;
    std::int32_t block_passes = 0;
    HostWork& operator+=(const HostWork& more) {
        launches += more.launches;
        block_passes += more.block_passes;
        return *this;
    }
    friend HostWork operator+(HostWork a, const HostWork& b) { return a += b; }
};
/// A stretch of what a rank's host does in issue order: how many instructions of its own, and what it issues after the
/// last of these, or in all if there are none. The host's own instructions are those that the host thread executes or
/// blocks in (program::runs_on_host). Instructions after one of these are issued only when it has completed.
struct HostStretch {
    std::int32_t own = 0;
    HostWork issues;
    HostStretch& operator+=(const HostStretch& next) {
        issues = next.own > 0 ? next.issues : issues + next.issues;
        own += next.own;
        return *this;
    }
    friend HostStretch operator+(HostStretch a, const HostStretch& b) { return a += b; }
};
/// Host time of each launch and each pass over a block.
struct HostTimes {
    std::int64_t launch_ps = 0;
    std::int64_t layer_ps = 0, tp_layer_ps = 0;  // their sum is the time of a pass (program::HostTime)
    [[nodiscard]] std::int64_t of(const HostWork& work) const {
        return work.launches * launch_ps + work.block_passes * (layer_ps + tp_layer_ps);
    }
    [[nodiscard]] bool is_free() const { return launch_ps == 0 && layer_ps == 0 && tp_layer_ps == 0; }
};

using InstructionPlace = Index<struct InstructionPlaceTag>;  // in CompiledProgram::instructions
using DurationPlace = Index<struct DurationPlaceTag>;        // in CompiledProgram::durations

/// An instruction of a body.
struct CompiledInstruction {
    program::InstructionIndex index = 0;
    NeedIndex first_need = 0;  // needs[first, first + count)
    std::int32_t need_count = 0;
    OperationIndex operation = -1;     // of a communication
    HostStretch host_before;           // in the body; includes its own launch
    std::optional<Endpoint> endpoint;  // of a communication
    CounterIndex counter = -1;         // incremented at its end in addition to its stream's counter; -1: none
};

/// The instructions of one body, grouped by stream.
struct CompiledBody {
    PerCounter<InstructionPlace> first;  // by stream: CompiledProgram::instructions[first, first + count)
    PerCounter<std::int32_t> count;
    PerCounter<std::int32_t> totals;  // increments of each counter by the body
    std::int32_t instructions = 0;
    HostStretch host;
};

using CallIndex = Index<struct CallTag>;  // in CompiledClass::calls

/// One segment of a segment list. Counts are from the start of the list.
struct CompiledCall {
    program::BodyId body = 0;
    program::SegmentIndex segment = 0;
    std::int32_t first_duration = 0;  // durations[CompiledAction::first_duration + first + index in the body]
    HostStretch host_before;          // in the list
    NeedIndex first_need = 0;         // needs[first, first + count): the segment's waits, which hold its first
    std::int32_t need_count = 0;      //   instruction on each stream
};

using StreamCallsIndex = Index<struct StreamCallsTag>;  // in CompiledClass::stream_calls

/// A segment list, stored once for all actions that run it.
struct CompiledList {
    CallIndex first_call = 0;           // its calls are consecutive
    StreamCallsIndex first_stream = 0;  // stream_calls[first + stream]
    std::int32_t instructions = 0;
    HostStretch host;
};

using StreamCallIndex = Index<struct StreamCallTag>;  // in CompiledClass::call_order

/// A call that has work on a stream.
struct StreamCall {
    CallIndex call = 0;
    InstructionPlace first_instruction = 0;  // CompiledProgram::instructions[first, first + count)
    std::int32_t count = 0;
};

/// The calls of a list that have work on one stream: call_order[first, first + count).
struct StreamCalls {
    StreamCallIndex first = 0;
    std::int32_t count = 0;
};

struct CompiledWait {
    CounterIndex counter = 0;
    std::int32_t count = 0;            // counted from the start of the step
    std::int32_t steps_back = 0;       // 1: of the previous step
    std::uint32_t held_streams = ~0U;  // bit s: the stream with counter s waits
    [[nodiscard]] bool holds(CounterIndex stream) const { return (held_streams >> stream.position() & 1U) != 0; }
};

struct CompiledAction {
    program::SegmentListId list = 0;
    DurationPlace first_duration = 0;  // 0 if durations do not depend on the action
    HostStretch host_before;           // in the step
    std::int32_t first_wait = 0;       // waits[first, first + count): they hold its first instruction on each stream
    std::int32_t wait_count = 0;
};

/// Bases have one element per counter: its value before the call, counted from the start of the list, or before the
/// action, counted from the start of the step.
struct CompiledClass {
    IndexedVector<CallIndex, CompiledCall> calls;
    std::vector<std::int32_t> call_bases;
    IndexedVector<StreamCallsIndex, StreamCalls> stream_calls;
    IndexedVector<StreamCallIndex, StreamCall> call_order;
    IndexedVector<program::SegmentListId, CompiledList> lists;
    IndexedVector<program::ActionIndex, CompiledAction> actions;
    std::vector<std::int32_t> action_bases;
    PerCounter<std::vector<program::ActionIndex>> stream_actions;  // by stream: the actions that have work on it
    std::vector<CompiledWait> waits;
    PerCounter<std::int32_t> totals;  // increments of each counter by one step
    std::int64_t instructions = 0;    // of one step
    HostStretch host;                 // of one step

    [[nodiscard]] CounterView<const std::int32_t> call_base(CallIndex call) const {
        return {call_bases.data() + call.position() * totals.size()};
    }
    [[nodiscard]] CounterView<const std::int32_t> action_base(program::ActionIndex action) const {
        return {action_bases.data() + action.position() * totals.size()};
    }
    [[nodiscard]] StreamCalls calls_on(const CompiledAction& action, CounterIndex stream) const {
        return stream_calls[lists[action.list].first_stream + stream.value()];
    }
    [[nodiscard]] std::span<const CompiledWait> waits_of(const CompiledAction& action) const {
        return {waits.data() + action.first_wait, static_cast<std::size_t>(action.wait_count)};
    }
};

/// A DeviceShare rounded up to multiples of 1 / kSteps, so that there are only few different ones.
struct DeviceDraw {
    static constexpr std::int64_t kSteps = 64;
    std::int64_t compute_units = 0, memory = 0;  // in units of 1 / kSteps of the device
    bool operator==(const DeviceDraw&) const = default;
};
using DeviceDrawIndex = Index<struct DeviceDrawTag, std::int16_t>;

using CellIndex = Index<struct CellTag>;
using Cells = IndexedVector<CellIndex, program::WorkCell>;
using TermIndex = Index<struct TermTag>;

struct CompiledProgram {
    Counters counters;
    IndexedVector<InstructionPlace, CompiledInstruction> instructions;
    IndexedVector<NeedIndex, Need> needs;
    IndexedVector<program::BodyId, CompiledBody> bodies;
    IndexedVector<program::ClassIndex, CompiledClass> classes;
    IndexedVector<DurationPlace, std::int64_t> durations;  // ps, of local instructions at full speed
    /// What the instruction uses of its device; draw 0 is empty. No elements if the host runs the computation.
    IndexedVector<DurationPlace, DeviceDrawIndex> device_draw_of;
    IndexedVector<DeviceDrawIndex, DeviceDraw> device_draws;
    program::PerAxis<IndexedVector<OperationIndex, Operation>> operations;  // without duplicates
    /// With terms: those of duration i are terms[first_term[i], first_term[i + 1]). Otherwise empty.
    IndexedVector<DurationPlace, TermIndex> first_term;
    IndexedVector<TermIndex, Tangents::Term> terms;
    Cells cells;  // Tangents::Term::cell is an index in this list
    bool host_runs_compute = false;

    /// `holder`: an instruction or a call.
    template <typename Holder>
    [[nodiscard]] std::span<const Need> needs_of(const Holder& holder) const {
        return {needs.data() + holder.first_need.position(), static_cast<std::size_t>(holder.need_count)};
    }
};

/// Host time to issue work to a device of this profile, with the implementation that the plan names.
[[nodiscard]] HostTimes host_times(const program::Plan& plan, const topologies::DeviceProfile& device);

/// The index of the cell, which is added if it is new.
[[nodiscard]] CellIndex cell_index(Cells& cells, const program::WorkCell& cell);

/// `with_terms`: also compile the terms of durations, which derivatives need.
[[nodiscard]] CompiledProgram compile(const program::Program& program, const CostModel& cost, bool host_runs_compute,
                                      bool with_terms = false);

}  // namespace orrery::sim
