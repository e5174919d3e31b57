// A Program in the form that the engine walks: flat arrays, dependencies as (counter, count), durations looked up.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/cost/cost_model.h"
#include "sim/engine/communication_cost.h"
#include "sim/engine/symmetry.h"
#include "sim/program/program.h"

namespace orrery::sim {

inline constexpr std::size_t kStreams = program::kStreamCount;
/// What a rank counts: completed instructions of each stream and, where an axis is used from several streams of a rank,
/// completed operations of that axis, since a communicator runs one at a time in issue order.
inline constexpr std::size_t kCounters = kStreams + kAxisCount;

/// A counter that must have reached `count`.
struct Need {
    std::int32_t counter = 0;
    std::int32_t count = 0;
};

struct CompiledInstruction {
    std::int32_t index = 0;       // in the body
    std::int32_t first_need = 0;  // needs[first, first + count), relative to the call's base
    std::int32_t need_count = 0;
    std::int32_t operation = -1;      // communication: index among the axis's operations
    std::int32_t compute_before = 0;  // compute instructions before it in the body
    std::int32_t issues = 0;          // instructions issued since the last of those, itself included
    std::int8_t seat = -1;            // communication: Seat
    std::int8_t counter = -1;         // counts here too when it has completed
    bool after_call_start = false;    // no compute before it in the body, so `issues` counts from the call's start
};

/// Instructions of one body by stream.
struct CompiledBody {
    std::array<std::int32_t, kStreams> first{};  // CompiledProgram::instructions[first, first + count)
    std::array<std::int32_t, kStreams> count{};
    std::array<std::int32_t, kCounters> totals{};
    std::int32_t instructions = 0;
    std::int32_t trailing_issues = 0;  // instructions after the last compute one; all of them if there is none
    bool has_compute = false;
};

/// One segment of one action.
struct CompiledCall {
    std::int32_t body = 0;
    std::int32_t action = 0;
    std::int32_t segment = 0;
    std::int32_t issued_before = 0;              // instructions of the step before this call
    std::int32_t issues_since_compute = 0;       // of them, since the last compute one
    bool since_step_start = false;               // there is no compute one before it in the step
    std::int64_t first_duration = 0;             // durations[first + index in the body]
    std::array<std::int32_t, kCounters> base{};  // counters of the step at the call's start
};

struct CompiledWait {
    std::int32_t counter = 0;
    std::int32_t count = 0;  // in the step
    std::int32_t steps_back = 0;
};

/// A call that has work on some stream.
struct StreamCall {
    std::int32_t call = 0;
    std::int32_t first_wait = 0;  // waits[first, first + count): when it is the action's first one on the stream
    std::int32_t wait_count = 0;
};

struct CompiledClass {
    std::vector<CompiledCall> calls;
    std::array<std::vector<StreamCall>, kStreams> stream_calls;
    std::vector<CompiledWait> waits;
    std::array<std::int32_t, kCounters> totals{};  // of one step
    std::int32_t instructions = 0;                 // of one step
    std::int32_t trailing_issues = 0;              // instructions after the step's last compute one
};

struct CompiledProgram {
    std::vector<CompiledInstruction> instructions;
    std::vector<Need> needs;
    std::vector<CompiledBody> bodies;
    std::vector<CompiledClass> classes;
    std::vector<std::int64_t> durations;                        // ps, of compute instructions at full speed
    std::array<std::vector<Operation>, kAxisCount> operations;  // the different ones of each axis
    bool host_runs_compute = false;
};

[[nodiscard]] CompiledProgram compile(const program::Program& program, const CostModel& cost, bool host_runs_compute);

}  // namespace orrery::sim
