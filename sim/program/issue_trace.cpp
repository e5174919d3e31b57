#include "sim/program/issue_trace.h"

namespace orrery::program {
namespace {

StreamCounts& operator+=(StreamCounts& counts, const StreamCounts& more) {
    for (std::size_t s = 0; s < counts.size(); ++s) counts[s] += more[s];
    return counts;
}

void append_action(const Program& program, const RankClass& ranks, std::int32_t index, const WaitCounts& counts,
                   Trace& trace) {
    const Action& action = ranks.actions[static_cast<std::size_t>(index)];
    const auto& list = ranks.segment_lists[static_cast<std::size_t>(action.segments)];
    StreamCounts before{};
    for (std::size_t s = 0; s < before.size(); ++s) before[s] = trace.count_on(static_cast<Stream>(s));
    std::array<bool, kStreamCount> started{};
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
            for (std::int32_t w = 0; w < action.wait_count && !started[stream]; ++w) {
                const Wait& wait = ranks.waits[static_cast<std::size_t>(action.first_wait + w)];
                if (wait.holds(instruction.stream)) {
                    trace.events.push_back({wait.stream, wait.steps_back, counts(wait)});
                }
            }
            for (std::int32_t w = 0; w < list[s].wait_count && !segment_started[stream]; ++w) {
                const SegmentWait& wait = ranks.segment_waits[static_cast<std::size_t>(list[s].first_wait + w)];
                trace.events.push_back(
                    {wait.stream, 0, before[static_cast<std::size_t>(wait.stream)] + counts(action.segments, wait)});
            }
            started[stream] = segment_started[stream] = true;
            call.event_count = static_cast<std::int32_t>(trace.events.size()) - call.first_event;
            trace.calls_on[stream].push_back(static_cast<std::int32_t>(trace.calls.size()));
            trace.calls.push_back(call);
        }
    }
}

}  // namespace

WaitCounts::WaitCounts(const Program& program, const RankClass& ranks) {
    after_segment_.reserve(ranks.segment_lists.size());
    for (const auto& list : ranks.segment_lists) {
        StreamCounts counts{};
        std::vector<StreamCounts>& of_list = after_segment_.emplace_back();
        of_list.reserve(list.size());
        for (const Segment& segment : list) {
            of_list.push_back(counts += program.bodies.at(static_cast<std::size_t>(segment.body)).stream_counts);
        }
    }
    StreamCounts counts{};
    after_action_.reserve(ranks.actions.size());
    for (const Action& action : ranks.actions) after_action_.push_back(counts += total(action.segments));
}

Trace trace_of(const Program& program, std::int32_t rank_class) {
    const RankClass& ranks = program.classes.at(static_cast<std::size_t>(rank_class));
    Trace trace{.rank_class = rank_class};
    const WaitCounts counts(program, ranks);
    for (std::size_t a = 0; a < ranks.actions.size(); ++a) {
        append_action(program, ranks, static_cast<std::int32_t>(a), counts, trace);
    }
    return trace;
}

}  // namespace orrery::program
