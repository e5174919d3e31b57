#include "sim/program/issue_trace.h"

namespace orrery::program {
namespace {

StreamCounts& operator+=(StreamCounts& counts, const StreamCounts& more) {
    for (const Stream s : kStreams) counts[s] += more[s];
    return counts;
}

void append_action(const Program& program, const RankClass& ranks, ActionIndex index, const WaitCounts& counts,
                   Trace& trace) {
    const Action& action = ranks.actions[index];
    const auto& list = ranks.segment_lists[action.segments];
    StreamCounts before{};
    for (const Stream s : kStreams) before[s] = trace.count_on(s);
    PerStream<bool> started{};
    for (const SegmentIndex s : list.indices()) {
        const Body& body = program.bodies[list[s].body];
        const std::size_t body_start = trace.calls.size();
        PerStream<bool> segment_started{};
        for (const InstructionIndex i : body.instructions.indices()) {
            const Instruction& instruction = body.instructions[i];
            const Stream stream = instruction.stream;
            Call call{.action = index,
                      .segment = s,
                      .body = list[s].body,
                      .instruction = i,
                      .stream = stream,
                      .position = static_cast<std::int32_t>(trace.calls_on[stream].size()) + 1,
                      .first_event = static_cast<std::int32_t>(trace.events.size()),
                      .event_count = 0};
            for (const InstructionIndex earlier : instruction.after) {
                const Call& other = trace.calls[body_start + earlier.position()];
                trace.events.push_back({other.stream, 0, other.position});
            }
            if (!started[stream]) {
                for (const Wait& wait : part(ranks.waits, action.first_wait, action.wait_count)) {
                    if (wait.holds(stream)) trace.events.push_back({wait.stream, wait.steps_back, counts(wait)});
                }
            }
            if (!segment_started[stream]) {
                for (const SegmentWait& wait : part(ranks.segment_waits, list[s].first_wait, list[s].wait_count)) {
                    trace.events.push_back({wait.stream, 0, before[wait.stream] + counts(action.segments, wait)});
                }
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
    for (const auto& list : ranks.segment_lists) {
        StreamCounts counts{};
        auto& of_list = after_segment_.emplace_back();
        for (const Segment& segment : list) {
            of_list.push_back(counts += program.bodies.at(segment.body).stream_counts);
        }
    }
    StreamCounts counts{};
    for (const Action& action : ranks.actions) after_action_.push_back(counts += total(action.segments));
}

Trace trace_of(const Program& program, ClassIndex rank_class) {
    const RankClass& ranks = program.classes.at(rank_class);
    Trace trace{.rank_class = rank_class};
    const WaitCounts counts(program, ranks);
    for (const ActionIndex action : ranks.actions.indices()) append_action(program, ranks, action, counts, trace);
    return trace;
}

}  // namespace orrery::program
