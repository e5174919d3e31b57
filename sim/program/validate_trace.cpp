// What the rules share: where slots lie, what instructions touch, and a class's step as one list of calls.
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
        case Region::optimizer:
            return "optimizer states";
        case Region::activation:
            return "activation frame";
        case Region::input_boundary:
            return "input boundary";
        case Region::forward_boundary:
            return "forward boundary";
        case Region::backward_boundary:
            return "backward boundary";
        case Region::transient:
            return "transients";
        case Region::scalars:
            return "scalars";
    }
    return "?";
}

Range resolve(const RankClass& ranks, const Segment& segment, const Slot& slot) {
    const std::int64_t elements = slot.bytes / size_of(slot.decl.dtype);
    const auto range = [](Region region, std::int64_t begin, std::int64_t length) {
        return Range{region, begin, begin + length};
    };
    switch (slot.space) {
        case Space::parameter:
            return range(Region::parameter, segment.parameter_base + slot.offset, elements);
        case Space::gradient:
            return range(Region::gradient, segment.parameter_base + slot.offset, elements);
        case Space::partial_parameter:
            return range(Region::parameter, segment.partial_base + slot.offset, elements);
        case Space::partial_gradient:
            return range(Region::gradient, segment.partial_base + slot.offset, elements);
        case Space::tied_parameter:
            return range(Region::parameter, ranks.tied_parameter_base + slot.offset, elements);
        case Space::tied_gradient:
            return range(Region::gradient, ranks.tied_parameter_base + slot.offset, elements);
        case Space::hidden_in:
            if (segment.hidden_in_offset < 0) return range(Region::input_boundary, slot.offset, slot.bytes);
            return range(Region::activation, segment.hidden_in_offset + slot.offset, slot.bytes);
        case Space::activation:
            return range(Region::activation, segment.activation_base + slot.offset, slot.bytes);
        case Space::hidden_out:
            if (segment.hidden_out_offset < 0) return range(Region::forward_boundary, slot.offset, slot.bytes);
            return range(Region::activation, segment.hidden_out_offset + slot.offset, slot.bytes);
        case Space::hidden_gradient:
            return range(Region::backward_boundary, slot.offset, slot.bytes);
        case Space::transient:
            return range(Region::transient, slot.offset, slot.bytes);
        case Space::scalars:
            return range(Region::scalars, slot.offset, slot.bytes);
        case Space::optimizer:
            return range(Region::optimizer, slot.offset, slot.bytes);
    }
    throw BugError("a slot lies in no space");
}

std::int32_t instance_of(const Action& action, Region region) {
    switch (region) {
        case Region::activation:
            return action.activation_frame;
        case Region::input_boundary:
            return action.input_boundary;
        case Region::forward_boundary:
            return action.forward_boundary;
        case Region::backward_boundary:
            return action.backward_boundary;
        case Region::parameter:
        case Region::gradient:
        case Region::optimizer:
        case Region::transient:
        case Region::scalars:
            break;
    }
    return 0;
}

std::int64_t extent_of(const RankClass& ranks, Region region) {
    switch (region) {
        case Region::parameter:
        case Region::gradient:
            return ranks.parameter_elements;
        case Region::optimizer:
            return ranks.memory.optimizer_states;
        case Region::activation:
            return ranks.frame_bytes;
        case Region::input_boundary:
        case Region::forward_boundary:
        case Region::backward_boundary:
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
        add(instruction.communication.in, false);
        add(instruction.communication.out, true);
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
    for (std::size_t s = 0; s < list.size(); ++s) {
        const Body& body = program.bodies[static_cast<std::size_t>(list[s].body)];
        const std::size_t body_start = trace.calls.size();
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
                    const StreamCounts& done = counts[static_cast<std::size_t>(wait.action)];
                    trace.events.push_back({wait.stream, wait.steps_back, done[static_cast<std::size_t>(wait.stream)]});
                }
            }
            call.event_count = static_cast<std::int32_t>(trace.events.size()) - call.first_event;
            trace.calls_on[stream].push_back(static_cast<std::int32_t>(trace.calls.size()));
            trace.calls.push_back(call);
        }
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

}  // namespace orrery::program::rules
