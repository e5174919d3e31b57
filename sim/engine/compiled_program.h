// A Program in the form that the engine walks: flat arrays, dependencies as (counter, count), durations looked up.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/cost/cost_model.h"
#include "sim/engine/communication_cost.h"
#include "sim/engine/seats.h"
#include "sim/program/program.h"
#include "sim/sharing/tangents.h"

namespace orrery::sim {

/// What a rank counts: completed instructions of each stream and, where an axis is used from several streams of a rank,
/// completed operations of that axis, since a communicator runs one at a time in issue order. Counters of streams that
/// the Program uses come first, in the order of program::Stream, compute always among them; so local streams stand
/// before the others.
struct Counters {
    std::vector<program::Stream> streams;                      // by counter
    program::PerStream<std::int8_t> of_stream;  // -1: the Program does not use it
    program::PerAxis<std::int8_t> of_axis;      // -1: no counter of its own
    std::int32_t local_streams = 0;
    std::int32_t count = 0;

    [[nodiscard]] std::int32_t operator[](program::Stream stream) const {
        return of_stream[static_cast<std::size_t>(stream)];
    }
    [[nodiscard]] std::int32_t stream_count() const { return static_cast<std::int32_t>(streams.size()); }
};
inline constexpr std::int32_t kComputeCounter = 0;

/// A counter that must have reached `count`, counted from the call's start.
struct Need {
    std::int32_t counter = 0;
    std::int32_t count = 0;
};

/// What the host does to issue instructions: launches, and passes of blocks, each of which costs it something besides.
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
/// What each of these takes.
struct HostTimes {
    std::int64_t launch_ps = 0;
    std::int64_t layer_ps = 0, tp_layer_ps = 0;  // of a block's pass
    [[nodiscard]] std::int64_t of(const HostWork& work) const {
        return work.launches * launch_ps + work.block_passes * (layer_ps + tp_layer_ps);
    }
    [[nodiscard]] bool is_free() const { return launch_ps == 0 && layer_ps == 0 && tp_layer_ps == 0; }
};

/// The host's own instructions are those that its thread executes or waits in (program::runs_on_host). Whatever stands
/// behind one is issued only after it.
struct CompiledInstruction {
    std::int32_t index = 0;       // in the body
    std::int32_t first_need = 0;  // needs[first, first + count)
    std::int32_t need_count = 0;
    std::int32_t operation = -1;   // communication: index among the axis's operations
    std::int32_t host_before = 0;  // host's own instructions before it in the body
    HostWork issues;               // since the last of those, its own included
    std::int8_t seat = -1;         // communication: Seat
    std::int8_t counter = -1;      // counts here too when it has completed
    bool after_call_start =
        true;  // none of the host's own before it in the body: `issues` counts from the call's start
};

/// Instructions of one body by stream.
struct CompiledBody {
    std::vector<std::int32_t> first;  // by stream counter: CompiledProgram::instructions[first, first + count)
    std::vector<std::int32_t> count;
    std::vector<std::int32_t> totals;  // by counter
    std::int32_t instructions = 0;
    std::int32_t host_instructions = 0;
    HostWork trailing_issues;  // after the last of the host's own; all of them if there is none
};

/// One segment of a segment list; everything counts from the start of the list.
struct CompiledCall {
    std::int32_t body = 0;
    program::SegmentIndex segment = 0;
    std::int32_t first_duration = 0;  // durations[action's first + first + index in the body]
    std::int32_t host_before = 0;     // host's own instructions before this call
    HostWork issues_since_host;       // since the last of them
    std::int32_t first_need = 0;      // needs[first, first + count) of its first instruction on each stream: the
    std::int32_t need_count = 0;      //   segment's waits, relative to the call as other needs are
};

/// A segment list, however many actions run it.
struct CompiledList {
    std::int32_t first_call = 0;  // calls[first, first + count)
    std::int32_t call_count = 0;
    std::int32_t first_stream = 0;  // stream_calls[first + stream]: where the stream's calls are
    std::int32_t instructions = 0;
    std::int32_t host_instructions = 0;
    HostWork trailing_issues;  // after the last of the host's own; all of them if there is none
};

/// A call with work on a stream.
struct StreamCall {
    std::int32_t call = 0;
    std::int32_t first_instruction = 0;  // CompiledProgram::instructions[first, first + count)
    std::int32_t count = 0;
};

/// Calls of a list that have work on one stream: call_order[first, first + count).
struct StreamCalls {
    std::int32_t first = 0;
    std::int32_t count = 0;
};

struct CompiledWait {
    std::int32_t counter = 0;
    std::int32_t count = 0;  // in the step
    std::int32_t steps_back = 0;
    std::uint32_t held_streams = ~0U;  // stream counters that the wait holds, one bit each
};

struct CompiledAction {
    std::int32_t list = 0;
    std::int32_t first_duration = 0;  // 0 where durations do not depend on the action
    std::int32_t host_before = 0;     // host's own instructions of the step before this action
    HostWork issues_since_host;       // of the step, since the last of them
    std::int32_t first_wait = 0;      // waits[first, first + count) of its first instruction on each stream
    std::int32_t wait_count = 0;
};

/// `bases` are by counter: what was counted before, in the list or in the step.
struct CompiledClass {
    std::vector<CompiledCall> calls;
    std::vector<std::int32_t> call_bases;
    std::vector<StreamCalls> stream_calls;
    std::vector<StreamCall> call_order;
    std::vector<CompiledList> lists;  // by SegmentListId
    std::vector<CompiledAction> actions;
    std::vector<std::int32_t> action_bases;
    std::vector<std::vector<std::int32_t>> stream_actions;  // by stream counter: those with work there
    std::vector<CompiledWait> waits;
    std::vector<std::int32_t> totals;    // by counter: of one step
    std::int64_t instructions = 0;       // of one step
    std::int32_t host_instructions = 0;  // host's own, of one step
    HostWork trailing_issues;            // after the step's last of them

    [[nodiscard]] const std::int32_t* call_base(std::int32_t call) const {
        return call_bases.data() + static_cast<std::size_t>(call) * totals.size();
    }
    [[nodiscard]] const std::int32_t* action_base(program::ActionIndex action) const {
        return action_bases.data() + static_cast<std::size_t>(action) * totals.size();
    }
    [[nodiscard]] StreamCalls calls_on(const CompiledAction& action, std::int32_t stream) const {
        return stream_calls[static_cast<std::size_t>(lists[static_cast<std::size_t>(action.list)].first_stream +
                                                     stream)];
    }
};

/// DeviceShare in whole steps, of which there are few enough to be kept once each.
struct DeviceDraw {
    static constexpr std::int64_t kSteps = 64;
    std::int64_t compute_units = 0, memory = 0;  // in kSteps of the whole
    bool operator==(const DeviceDraw&) const = default;
};

struct CompiledProgram {
    Counters counters;
    std::vector<CompiledInstruction> instructions;
    std::vector<Need> needs;
    std::vector<CompiledBody> bodies;
    std::vector<CompiledClass> classes;
    std::vector<std::int64_t> durations;  // ps, of local instructions at full speed
    /// By place in `durations`: what the instruction keeps busy of its device, an index in `device_draws`, of which the
    /// first is nothing. Empty where the host computes.
    std::vector<std::uint16_t> device_draw_of;
    std::vector<DeviceDraw> device_draws;
    program::PerAxis<std::vector<Operation>> operations;  // the different ones of each axis
    /// Where derivatives are asked for, by place in `durations`: terms[first, next one's first). Else empty.
    std::vector<std::int32_t> first_term;
    std::vector<Tangents::Term> terms;
    std::vector<program::WorkCell> cells;  // that terms number
    bool host_runs_compute = false;
};

/// What the plan's host takes to issue work to such a device.
[[nodiscard]] HostTimes host_times(const program::Plan& plan, const topologies::DeviceProfile& device);

/// The number of the cell, which is added where it is not known.
[[nodiscard]] std::int32_t cell_index(std::vector<program::WorkCell>& cells, const program::WorkCell& cell);

[[nodiscard]] CompiledProgram compile(const program::Program& program, const CostModel& cost, bool host_runs_compute,
                                      bool with_terms = false);

}  // namespace orrery::sim
