// What the rules share: where slots lie, what instructions touch, and a class's step as one list of calls.
#include <algorithm>
#include <limits>

#include "core/error.h"
#include "sim/program/validate_rules.h"

namespace orrery::program::rules {

std::string_view name_of(Region region) {
    switch (region) {
        case Region::parameter:
            return "parameters";
        case Region::gradient:
            return "gradients";
        case Region::parameter_shard:
            return "parameter shards";
        case Region::gradient_shard:
            return "gradient shards";
        case Region::reduction:
            return "staging buffers";
        case Region::weight_copy:
            return "weight copies";
        case Region::offload_window:
            return "offload window";
        case Region::optimizer:
            return "optimizer states";
        case Region::host:
            return "host memory";
        case Region::transient:
            return "transients";
        case Region::scalars:
            return "scalars";
        case Region::activation:
            return "activation frame";
        case Region::host_frame:
            return "host frame";
        case Region::input_boundary:
            return "input boundary";
        case Region::forward_boundary:
            return "forward boundary";
        case Region::backward_boundary:
            return "backward boundary";
        case Region::gradient_out:
            return "backward boundary of the gradient that leaves";
    }
    return "?";
}

Range resolve(const RankClass& ranks, const Body& body, const Segment& segment, const Slot& slot) {
    // In elements of a slot's own type: an fp32 shard or an fp8 one holds the same parameters.
    const auto elements_at = [&](Region region, std::int64_t base) {
        const std::int64_t begin = base + slot.offset;
        return Range{region, begin, begin + slot.bytes / size_of(slot.decl.dtype)};
    };
    const auto bytes_at = [&](Region region, std::int64_t base) {
        const std::int64_t begin = base + slot.offset;
        return Range{region, begin, begin + slot.bytes};
    };
    const auto handed = [&](std::int64_t offset, Region boundary) {
        return offset < 0 ? bytes_at(boundary, 0) : bytes_at(Region::activation, offset);
    };
    const auto r = static_cast<std::size_t>(slot.range);
    switch (slot.space) {
        case Space::parameter:
            return elements_at(Region::parameter, segment.parameter_base[r]);
        case Space::gradient:
            return elements_at(Region::gradient, segment.gradient_base[r]);
        case Space::parameter_shard:
            return elements_at(Region::parameter_shard, segment.shard_base[r]);
        case Space::gradient_shard:
            return elements_at(Region::gradient_shard, segment.shard_base[r]);
        case Space::reduction:
            return bytes_at(Region::reduction, segment.reduction_base);
        case Space::weight_copy:
            return bytes_at(Region::weight_copy, segment.weight_copy_base);
        case Space::tied_parameter:
            return elements_at(Region::parameter, ranks.tied_parameter_base);
        case Space::tied_gradient:
            return elements_at(Region::gradient, ranks.tied_gradient_base);
        case Space::hidden_in:
            return handed(segment.hidden_in_offset, Region::input_boundary);
        case Space::activation:
            return bytes_at(segment.in_offload_window ? Region::offload_window : Region::activation,
                            segment.activation_base);
        case Space::hidden_out:
            return handed(segment.hidden_out_offset, Region::forward_boundary);
        case Space::hidden_gradient:
            return handed(segment.gradient_in_offset, Region::backward_boundary);
        case Space::hidden_gradient_out:
            return handed(segment.gradient_out_offset, Region::gradient_out);
        case Space::transient:
            return bytes_at(Region::transient, 0);
        case Space::scalars:
            return bytes_at(Region::scalars, 0);
        case Space::optimizer:
            return bytes_at(Region::optimizer, 0);
        case Space::host:
            return bytes_at(body.phase == Phase::offload ? Region::host_frame : Region::host, segment.host_base);
    }
    throw BugError("a slot lies in no space");
}

std::int32_t instance_of(const Action& action, Region region) {
    switch (region) {
        case Region::activation:
        case Region::host_frame:
            return action.activation_frame;
        case Region::input_boundary:
            return action.input_boundary;
        case Region::forward_boundary:
            return action.forward_boundary;
        case Region::backward_boundary:
            return action.backward_boundary;
        case Region::gradient_out:
            return action.gradient_out;
        case Region::parameter:
        case Region::gradient:
        case Region::parameter_shard:
        case Region::gradient_shard:
        case Region::reduction:
        case Region::weight_copy:
        case Region::offload_window:
        case Region::optimizer:
        case Region::host:
        case Region::transient:
        case Region::scalars:
            break;
    }
    return 0;
}

std::int64_t extent_of(const RankClass& ranks, const Chunk& chunk, Region region) {
    switch (region) {
        case Region::parameter:
            return ranks.parameter_buffer_elements;
        case Region::gradient:
            return ranks.gradient_buffer_elements;
        case Region::parameter_shard:
        case Region::gradient_shard:
            return ranks.shard_elements;
        case Region::reduction:
            return ranks.reduction_bytes;
        case Region::weight_copy:
            return ranks.weight_copy_bytes;
        case Region::offload_window:
            return ranks.offload_window_bytes;
        case Region::optimizer:
            return ranks.memory.optimizer_states;
        case Region::host: {  // frames apart
            std::int64_t bytes = ranks.host_bytes;
            for (const Chunk& each : ranks.chunks) bytes -= each.host_frame_bytes * each.frame_count;
            return bytes;
        }
        case Region::activation:
            return chunk.frame_bytes;
        case Region::host_frame:
            return chunk.host_frame_bytes;
        case Region::input_boundary:
        case Region::forward_boundary:
        case Region::backward_boundary:
        case Region::gradient_out:
            return ranks.boundary_bytes;
        case Region::transient:
            return ranks.transient_bytes;
        case Region::scalars:
            break;
    }
    return std::numeric_limits<std::int64_t>::max();
}

std::vector<Access> accesses_of(const Body& body, const Instruction& instruction) {
    std::vector<Access> result;
    const auto add = [&](models::SlotIndex slot, bool write) {
        if (slot != models::kNoSlot) result.push_back({slot, write});
    };
    if (instruction.is_communication) {
        for (const models::SlotIndex slot : instruction.communication.slots_read()) add(slot, false);
        if (instruction.communication.accumulates) add(instruction.communication.out, false);
        add(instruction.communication.out, true);
        if (instruction.communication.consumes) add(instruction.communication.in, true);
        return result;
    }
    for (std::int32_t i = 0; i < instruction.operator_count; ++i) {
        const models::Operator& op = body.operators[static_cast<std::size_t>(instruction.first_operator + i)];
        for (models::SlotIndex slot : op.in) add(slot, false);
        add(op.scratch, true);
        for (models::SlotIndex slot : op.out) add(slot, true);
    }
    return result;
}

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
