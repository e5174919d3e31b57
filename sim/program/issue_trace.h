// The meaning of waits. WaitCounts converts the waits of actions and segments into counts. A Trace is one step of a
// class as a list of instructions in the order in which the host issues them, each with the events that it waits for.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program {

/// list[first, first + count)
template <typename T>
[[nodiscard]] std::span<const T> part(const std::vector<T>& list, std::int32_t first, std::int32_t count) {
    return std::span(list).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count));
}

/// Numbers of instructions, by stream.
using StreamCounts = PerStream<std::int32_t>;

/// The waits of a class as counts: the number of instructions of the awaited stream that must have completed.
class WaitCounts {
  public:
    WaitCounts(const Program& program, const RankClass& ranks);
    /// Counted from the start of the step that Wait::steps_back names.
    [[nodiscard]] std::int32_t operator()(const Wait& wait) const { return after_action_.at(wait.action)[wait.stream]; }
    /// Counted from the start of the action that runs the list.
    [[nodiscard]] std::int32_t operator()(SegmentListId list, const SegmentWait& wait) const {
        return after_segment_.at(list).at(wait.segment)[wait.stream];
    }
    /// The number of instructions that an action with this list puts on each stream.
    [[nodiscard]] StreamCounts total(SegmentListId list) const {
        const auto& counts = after_segment_.at(list);
        return counts.empty() ? StreamCounts{} : counts.back();
    }

  private:
    IndexedVector<SegmentListId, IndexedVector<SegmentIndex, StreamCounts>>
        after_segment_;                                      // by list: from the list's start
    IndexedVector<ActionIndex, StreamCounts> after_action_;  // from the step's start
};

/// `count` instructions of `stream` have completed, counted from the start of this step (`steps_back` 0) or of the
/// previous one (1).
struct Event {
    Stream stream{};
    std::uint8_t steps_back = 0;
    std::int32_t count = 0;
};

/// One instruction of the step.
struct Call {
    ActionIndex action = 0;
    SegmentIndex segment = 0;
    BodyId body = 0;
    InstructionIndex instruction = 0;  // in the body
    Stream stream{};
    std::int32_t position = 0;  // 1 for the first on its stream in this step
    std::int32_t first_event = 0;
    std::int32_t event_count = 0;
};

struct Trace {
    ClassIndex rank_class = 0;
    std::vector<Call> calls;
    std::vector<Event> events;                      // by Call::first_event and Call::event_count
    PerStream<std::vector<std::int32_t>> calls_on;  // indices of calls, by stream
    [[nodiscard]] std::int32_t count_on(Stream stream) const {
        return static_cast<std::int32_t>(calls_on[stream].size());
    }
};
[[nodiscard]] Trace trace_of(const Program& program, ClassIndex rank_class);
[[nodiscard]] inline const Instruction& instruction_of(const Program& program, const Call& call) {
    return program.bodies[call.body].instructions[call.instruction];
}
[[nodiscard]] inline std::span<const Event> events_of(const Trace& trace, const Call& call) {
    return part(trace.events, call.first_event, call.event_count);
}

}  // namespace orrery::program
