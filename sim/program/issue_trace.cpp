#include "sim/program/issue_trace.h"

namespace orrery::program {
namespace {

using StreamCounts = std::array<std::int32_t, kStreamCount>;

/// By body: how many instructions it puts on each stream.
std::vector<StreamCounts> counts_of_bodies(const Program& program) {
    std::vector<StreamCounts> counts(program.bodies.size());
    for (std::size_t b = 0; b < counts.size(); ++b) {
        for (const Instruction& instruction : program.bodies[b].instructions) {
            ++counts[b][static_cast<std::size_t>(instruction.stream)];
        }
    }
    return counts;
}

/// How many instructions each stream holds once an action has been issued, action by action.
std::vector<StreamCounts> counts_after_actions(const RankClass& ranks, const std::vector<StreamCounts>& of_body) {
    std::vector<StreamCounts> result;
    StreamCounts counts{};
    for (const Action& action : ranks.actions) {
        for (const Segment& segment : ranks.segment_lists[static_cast<std::size_t>(action.segments)]) {
            const StreamCounts& own = of_body[static_cast<std::size_t>(segment.body)];
            for (std::size_t s = 0; s < counts.size(); ++s) counts[s] += own[s];
        }
        result.push_back(counts);
    }
    return result;
}

void append_action(const Program& program, const RankClass& ranks, std::int32_t index,
                   const std::vector<StreamCounts>& counts, const std::vector<StreamCounts>& of_body, Trace& trace) {
    const Action& action = ranks.actions[static_cast<std::size_t>(index)];
    std::array<bool, kStreamCount> started{};
    const auto& list = ranks.segment_lists[static_cast<std::size_t>(action.segments)];
    std::vector<StreamCounts> after_segment;  // what each stream holds once the segment has been issued
    StreamCounts issued{};
    for (std::size_t s = 0; s < kStreamCount; ++s) issued[s] = trace.count_on(static_cast<Stream>(s));
    for (std::size_t s = 0; s < list.size(); ++s) {
        const Body& body = program.bodies[static_cast<std::size_t>(list[s].body)];
        const std::size_t body_start = trace.calls.size();
        std::array<bool, kStreamCount> segment_started{};
        for (std::size_t i = 0; i < body.instructions.size(); ++i) {
            const Instruction& instruction = body.instructions[i];
            const auto stream = static_cast<std::size_t>(instruction.stream);
            Call call{.action = index,
                      .segment = static_cast<std::int32_t>(s),
                      .body = list[s].body,
                      .instruction = static_cast<std::int32_t>(i),
                      .stream = instruction.stream,
                      .position = static_cast<std::int32_t>(trace.calls_on[stream].size()) + 1,
                      .first_event = static_cast<std::int32_t>(trace.events.size()),
                      .event_count = 0};
            for (const InstructionIndex earlier : instruction.after) {
                const Call& other = trace.calls[body_start + static_cast<std::size_t>(earlier)];
                trace.events.push_back({other.stream, 0, other.position});
            }
            if (!started[stream]) {
                started[stream] = true;
                for (std::int32_t w = 0; w < action.wait_count; ++w) {
                    const Wait& wait = ranks.waits[static_cast<std::size_t>(action.first_wait + w)];
                    if (!wait.holds(instruction.stream)) continue;
                    const StreamCounts& done = counts[static_cast<std::size_t>(wait.action)];
                    trace.events.push_back({wait.stream, wait.steps_back, done[static_cast<std::size_t>(wait.stream)]});
                }
            }
            if (!segment_started[stream]) {
                segment_started[stream] = true;
                for (std::int32_t w = 0; w < list[s].wait_count; ++w) {
                    const SegmentWait& wait = ranks.segment_waits[static_cast<std::size_t>(list[s].first_wait + w)];
                    const StreamCounts& done = after_segment[static_cast<std::size_t>(wait.segment)];
                    trace.events.push_back({wait.stream, 0, done[static_cast<std::size_t>(wait.stream)]});
                }
            }
            call.event_count = static_cast<std::int32_t>(trace.events.size()) - call.first_event;
            trace.calls_on[stream].push_back(static_cast<std::int32_t>(trace.calls.size()));
            trace.calls.push_back(call);
        }
        const StreamCounts& own = of_body[static_cast<std::size_t>(list[s].body)];
        for (std::size_t stream = 0; stream < issued.size(); ++stream) issued[stream] += own[stream];
        after_segment.push_back(issued);
    }
}

}  // namespace

Trace trace_of(const Program& program, std::int32_t rank_class) {
    const RankClass& ranks = program.classes.at(static_cast<std::size_t>(rank_class));
    Trace trace{.rank_class = rank_class};
    const std::vector<StreamCounts> of_body = counts_of_bodies(program);
    const std::vector<StreamCounts> counts = counts_after_actions(ranks, of_body);
    for (std::size_t a = 0; a < ranks.actions.size(); ++a) {
        append_action(program, ranks, static_cast<std::int32_t>(a), counts, of_body, trace);
    }
    return trace;
}

}  // namespace orrery::program
