// What the rules share: a class's step as one list of calls, and what the plan says of its pipeline.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {

const Instruction& instruction_of(const Program& program, const Trace& trace, const Call& call) {
    const RankClass& ranks = program.classes[static_cast<std::size_t>(trace.rank_class)];
    const Action& action = ranks.actions[static_cast<std::size_t>(call.action)];
    const Segment& segment =
        ranks.segment_lists[static_cast<std::size_t>(action.segments)][static_cast<std::size_t>(call.segment)];
    return program.bodies[static_cast<std::size_t>(segment.body)]
        .instructions[static_cast<std::size_t>(call.instruction)];
}

namespace {

using StreamCounts = std::array<std::int32_t, kStreamCount>;

/// How many instructions each stream holds once an action has been issued, action by action.
std::vector<StreamCounts> counts_after_actions(const Program& program, const RankClass& ranks) {
    std::vector<StreamCounts> result;
    StreamCounts counts{};
    for (const Action& action : ranks.actions) {
        for (const Segment& segment : ranks.segment_lists[static_cast<std::size_t>(action.segments)]) {
            const Body& body = program.bodies[static_cast<std::size_t>(segment.body)];
            for (std::size_t s = 0; s < counts.size(); ++s) counts[s] += body.stream_counts[s];
        }
        result.push_back(counts);
    }
    return result;
}

void append_action(const Program& program, const RankClass& ranks, std::int32_t index,
                   const std::vector<StreamCounts>& counts, Trace& trace) {
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
        for (std::size_t stream = 0; stream < issued.size(); ++stream) issued[stream] += body.stream_counts[stream];
        after_segment.push_back(issued);
    }
}

}  // namespace

std::vector<Trace> traces_of(const Program& program) {
    std::vector<Trace> traces(program.classes.size());
    for (std::size_t c = 0; c < program.classes.size(); ++c) {
        const RankClass& ranks = program.classes[c];
        traces[c].rank_class = static_cast<std::int32_t>(c);
        const std::vector<StreamCounts> counts = counts_after_actions(program, ranks);
        for (std::size_t a = 0; a < ranks.actions.size(); ++a) {
            append_action(program, ranks, static_cast<std::int32_t>(a), counts, traces[c]);
        }
    }
    return traces;
}

bool is_replicated(const Program& program) {
    return program.plan->parallelism.data_parallel == DataParallel::dp;
}

std::int64_t representative(const Program& program, std::int32_t rank_class) {
    if (is_replicated(program)) return rank_class;
    return program.mesh->rank_at({.pp = rank_class});
}

std::vector<std::int32_t> classes_of_group(const Program& program, GroupAxis axis, std::int32_t rank_class) {
    const Parallelism& p = program.plan->parallelism;
    const auto count = static_cast<std::int32_t>(program.classes.size());
    const auto all = [&] {
        std::vector<std::int32_t> classes(static_cast<std::size_t>(count));
        for (std::int32_t c = 0; c < count; ++c) classes[static_cast<std::size_t>(c)] = c;
        return classes;
    };
    const bool spans_stages = axis == GroupAxis::world || axis == GroupAxis::model || axis == GroupAxis::pipeline;
    if (spans_stages || is_replicated(program)) return all();
    // Groups of gradients reach into a second stage only where that one holds the same layers.
    const std::int32_t mirror = count - 1 - rank_class;
    const bool gradients = axis == GroupAxis::dp || axis == GroupAxis::edp;
    if (gradients && p.schedule == Schedule::dualpipe && mirror != rank_class) {
        return {std::min(rank_class, mirror), std::max(rank_class, mirror)};
    }
    if (axis != GroupAxis::embedding) return {rank_class};
    std::vector<std::int32_t> classes;
    for (const std::int64_t member : program.group_of(axis, representative(program, rank_class))) {
        classes.push_back(program.class_of(member));
    }
    std::sort(classes.begin(), classes.end());
    return classes;
}

Stream opposite(Stream stream) {
    switch (stream) {
        case Stream::pp_recv_forward:
            return Stream::pp_send_forward;
        case Stream::pp_send_forward:
            return Stream::pp_recv_forward;
        case Stream::pp_recv_backward:
            return Stream::pp_send_backward;
        case Stream::pp_send_backward:
            return Stream::pp_recv_backward;
        case Stream::pp_up_recv_forward:
            return Stream::pp_up_send_forward;
        case Stream::pp_up_send_forward:
            return Stream::pp_up_recv_forward;
        case Stream::pp_up_recv_backward:
            return Stream::pp_up_send_backward;
        case Stream::pp_up_send_backward:
            return Stream::pp_up_recv_backward;
        case Stream::compute:
        case Stream::host:
        case Stream::copy_out:
        case Stream::copy_in:
        case Stream::side:
        case Stream::tp:
        case Stream::cp:
        case Stream::ep:
        case Stream::dp:
        case Stream::dp_gather:
        case Stream::dp_replicate:
            break;
    }
    throw BugError("the stream " + std::string(program::name_of(stream)) + " is not one of the pipeline's");
}

ScheduleShape shape_of(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    return {.schedule = p.schedule, .ranks = p.pp, .chunks = p.chunks, .micro_batches = plan.micro_batches()};
}

MicroBatches micro_batches_of(const Plan& plan, const Chunk& chunk) {
    const auto all = static_cast<std::int32_t>(plan.micro_batches());
    if (plan.parallelism.schedule != Schedule::dualpipe) return {0, all};
    return chunk.direction == 0 ? MicroBatches{0, all / 2} : MicroBatches{all / 2, all};
}

}  // namespace orrery::program::rules
