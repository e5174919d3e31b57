// One step of a class as a list of instructions in the order in which its host issues them, with the events that each
// comes after: the one reading of `after`, of segments' waits and of actions' waits, for all who follow them one by
// one.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "sim/program/program.h"

namespace orrery::program {

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
