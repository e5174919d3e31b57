// What waits mean. WaitCounts is the one reading of an action's and a segment's waits; a Trace is one step of a class
// as a list of instructions in the order in which its host issues them, each with the events that it comes after.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program {

/// How many instructions of each stream.
using StreamCounts = std::array<std::int32_t, kStreamCount>;

/// Waits of a class as counts: how many instructions of the stream that is waited for must have completed.
class WaitCounts {
  public:
    WaitCounts(const Program& program, const RankClass& ranks);
    /// Counted from the start of the step that the wait names.
    [[nodiscard]] std::int32_t operator()(const Wait& wait) const {
        return after_action_.at(static_cast<std::size_t>(wait.action))[static_cast<std::size_t>(wait.stream)];
    }
    /// Counted from the start of the action that runs the list.
    [[nodiscard]] std::int32_t operator()(SegmentListId list, const SegmentWait& wait) const {
        return after_segment_.at(static_cast<std::size_t>(list))
            .at(static_cast<std::size_t>(wait.segment))[static_cast<std::size_t>(wait.stream)];
    }
    /// What an action that runs the list puts on each stream.
    [[nodiscard]] StreamCounts total(SegmentListId list) const {
        const std::vector<StreamCounts>& counts = after_segment_.at(static_cast<std::size_t>(list));
        return counts.empty() ? StreamCounts{} : counts.back();
    }

  private:
    std::vector<std::vector<StreamCounts>> after_segment_;  // by list: from the list's start
    std::vector<StreamCounts> after_action_;                // from the step's start
};

/// `count` instructions of `stream` have completed, counted from the start of this step or the previous one.
struct Event {
    Stream stream{};
    std::uint8_t steps_back = 0;
    std::int32_t count = 0;
};

/// One instruction of the step.
struct Call {
    std::int32_t action = 0;
    std::int32_t segment = 0;
    BodyId body = 0;
    std::int32_t instruction = 0;  // in the body
    Stream stream{};
    std::int32_t position = 0;  // 1 for the first on its stream in this step
    std::int32_t first_event = 0;
    std::int32_t event_count = 0;
};

struct Trace {
    std::int32_t rank_class = 0;
    std::vector<Call> calls;
    std::vector<Event> events;                                     // calls[i].first_event …
    std::array<std::vector<std::int32_t>, kStreamCount> calls_on;  // indices of calls, by stream
    [[nodiscard]] std::int32_t count_on(Stream stream) const {
        return static_cast<std::int32_t>(calls_on[static_cast<std::size_t>(stream)].size());
    }
};
[[nodiscard]] Trace trace_of(const Program& program, std::int32_t rank_class);
[[nodiscard]] inline const Instruction& instruction_of(const Program& program, const Call& call) {
    return program.bodies[static_cast<std::size_t>(call.body)].instructions[static_cast<std::size_t>(call.instruction)];
}

}  // namespace orrery::program
