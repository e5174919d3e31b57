#include "sim/engine/compiled_program.h"

#include <algorithm>
#include <string>

#include "core/error.h"

namespace orrery::sim {

namespace {

using program::Body;
using program::Instruction;

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}
std::size_t stream_index(program::Stream stream) {
    return static_cast<std::size_t>(stream);
}
std::int32_t size32(std::size_t size) {
    return static_cast<std::int32_t>(size);
}

class Compiler {
  public:
    Compiler(const program::Program& program, const CostModel& cost, bool host_runs_compute)
        : program_(program), cost_(cost) {
        result_.host_runs_compute = host_runs_compute;
    }

    CompiledProgram run() {
        find_axes_on_several_streams();
        for (const Body& body : program_.bodies) add_body(body);
        for (std::size_t c = 0; c < program_.classes.size(); ++c) add_class(size32(c));
        return std::move(result_);
    }

  private:
    void find_axes_on_several_streams();
    void add_body(const Body& body);
    void add_needs(const Body& body, const Instruction& instruction, const std::vector<std::int32_t>& place,
                   const std::array<std::int32_t, kCounters>& counts, CompiledInstruction& compiled);
    std::int32_t operation_index(const program::Communication& communication);
    void add_class(std::int32_t rank_class);
    void add_calls(std::int32_t rank_class, CompiledClass& compiled,
                   std::vector<std::array<std::int32_t, kStreams>>& action_ends);
    std::int64_t durations_of(std::int32_t rank_class, std::int32_t action, std::int32_t segment);
    void add_waits(const program::RankClass& source, CompiledClass& compiled,
                   const std::vector<std::array<std::int32_t, kStreams>>& action_ends);

    const program::Program& program_;
    const CostModel& cost_;
    std::array<bool, kAxisCount> ordered_axis_{};
    std::vector<std::int64_t> body_durations_;  // of the class being compiled; -1: not asked yet
    CompiledProgram result_;
};

void Compiler::find_axes_on_several_streams() {
    // Both ends of a pair count: a rank sends and receives on one pipeline axis, but with different peers, so only
    // collectives need an order.
    std::array<std::int32_t, kAxisCount> stream_of;
    stream_of.fill(-1);
    for (const Body& body : program_.bodies) {
        for (const Instruction& instruction : body.instructions) {
            if (!instruction.is_communication || program::is_pipeline(instruction.stream)) continue;
            const auto axis = static_cast<std::size_t>(instruction.communication.axis);
            const auto stream = static_cast<std::int32_t>(instruction.stream);
            if (stream_of[axis] < 0) stream_of[axis] = stream;
            if (stream_of[axis] != stream) ordered_axis_[axis] = true;
        }
    }
}

std::int32_t Compiler::operation_index(const program::Communication& communication) {
    // A receive is the other end of a send.
    const bool pair = communication.kind == program::CommKind::recv;
    const Operation operation{pair ? program::CommKind::send : communication.kind, communication.bytes()};
    std::vector<Operation>& known = result_.operations[static_cast<std::size_t>(communication.axis)];
    const auto found = std::find(known.begin(), known.end(), operation);
    if (found != known.end()) return size32(static_cast<std::size_t>(found - known.begin()));
    known.push_back(operation);
    return size32(known.size()) - 1;
}

/// `place`: for each earlier instruction its number on its stream; `counts`: of the instructions before this one.
void Compiler::add_needs(const Body& body, const Instruction& instruction, const std::vector<std::int32_t>& place,
                         const std::array<std::int32_t, kCounters>& counts, CompiledInstruction& compiled) {
    std::array<std::int32_t, kCounters> needed;
    needed.fill(-1);
    for (const program::InstructionIndex earlier : instruction.after) {
        ORRERY_CHECK(earlier >= 0 && at(earlier) < place.size(),
                     "instruction '" + instruction.name + "' comes after one that is not before it");
        std::int32_t& count = needed[stream_index(body.instructions[at(earlier)].stream)];
        count = std::max(count, place[at(earlier)] + 1);
    }
    if (result_.host_runs_compute && instruction.is_communication) needed[0] = std::max(needed[0], counts[0]);
    if (compiled.counter >= 0) needed[at(compiled.counter)] = counts[at(compiled.counter)];
    needed[stream_index(instruction.stream)] = -1;  // a stream is a FIFO anyway
    compiled.first_need = size32(result_.needs.size());
    for (std::size_t counter = 0; counter < kCounters; ++counter) {
        if (needed[counter] >= 0) result_.needs.push_back({size32(counter), needed[counter]});
    }
    compiled.need_count = size32(result_.needs.size()) - compiled.first_need;
}

void Compiler::add_body(const Body& body) {
    CompiledBody compiled_body;
    std::array<std::vector<CompiledInstruction>, kStreams> by_stream;
    std::vector<std::int32_t> place;  // per instruction: its number on its stream
    std::array<std::int32_t, kCounters>& counts = compiled_body.totals;
    std::int32_t issues = 0;
    for (const Instruction& instruction : body.instructions) {
        const std::size_t stream = stream_index(instruction.stream);
        ORRERY_CHECK(instruction.is_communication == (instruction.stream != program::Stream::compute),
                     "instruction '" + instruction.name + "' is on the wrong stream");
        CompiledInstruction compiled;
        compiled.index = compiled_body.instructions++;
        compiled.compute_before = counts[0];
        compiled.issues = ++issues;
        compiled.after_call_start = !compiled_body.has_compute;
        if (instruction.is_communication) {
            const program::Communication& communication = instruction.communication;
            const auto axis = static_cast<std::size_t>(communication.axis);
            compiled.seat = static_cast<std::int8_t>(seat_of(communication.axis, communication.kind));
            compiled.operation = operation_index(communication);
            if (ordered_axis_[axis]) compiled.counter = static_cast<std::int8_t>(kStreams + axis);
        } else {
            issues = 0;
            compiled_body.has_compute = true;
        }
        add_needs(body, instruction, place, counts, compiled);
        place.push_back(counts[stream]);
        ++counts[stream];
        if (compiled.counter >= 0) ++counts[at(compiled.counter)];
        by_stream[stream].push_back(compiled);
    }
    compiled_body.trailing_issues = issues;
    for (std::size_t stream = 0; stream < kStreams; ++stream) {
        compiled_body.first[stream] = size32(result_.instructions.size());
        compiled_body.count[stream] = size32(by_stream[stream].size());
        result_.instructions.insert(result_.instructions.end(), by_stream[stream].begin(), by_stream[stream].end());
    }
    result_.bodies.push_back(compiled_body);
}

std::int64_t Compiler::durations_of(std::int32_t rank_class, std::int32_t action, std::int32_t segment) {
    InstructionContext where{program_, rank_class, action, segment, 0};
    const std::int32_t body = where.segments_here()[at(segment)].body;
    std::int64_t& known = body_durations_[at(body)];
    if (known >= 0 && !cost_.depends_on_action()) return known;
    known = static_cast<std::int64_t>(result_.durations.size());
    for (const Instruction& instruction : where.body_here().instructions) {
        result_.durations.push_back(instruction.is_communication ? 0 : cost_.instruction_time(where).value());
        ++where.instruction;
    }
    return known;
}

void Compiler::add_calls(std::int32_t rank_class, CompiledClass& compiled,
                         std::vector<std::array<std::int32_t, kStreams>>& action_ends) {
    const program::RankClass& source = program_.classes[at(rank_class)];
    std::array<std::int32_t, kCounters> counts{};
    std::int32_t since_compute = 0;
    bool any_compute = false;
    for (std::size_t action = 0; action < source.actions.size(); ++action) {
        const std::vector<program::Segment>& segments = source.segment_lists[at(source.actions[action].segments)];
        for (std::size_t segment = 0; segment < segments.size(); ++segment) {
            CompiledCall call;
            call.body = segments[segment].body;
            call.action = size32(action);
            call.segment = size32(segment);
            call.issued_before = compiled.instructions;
            call.issues_since_compute = since_compute;
            call.since_step_start = !any_compute;
            call.first_duration = durations_of(rank_class, call.action, call.segment);
            call.base = counts;
            compiled.calls.push_back(call);
            const CompiledBody& body = result_.bodies[at(call.body)];
            for (std::size_t counter = 0; counter < kCounters; ++counter) counts[counter] += body.totals[counter];
            compiled.instructions += body.instructions;
            since_compute = body.has_compute ? body.trailing_issues : since_compute + body.trailing_issues;
            any_compute = any_compute || body.has_compute;
        }
        std::copy_n(counts.begin(), kStreams, action_ends[action].begin());
    }
    compiled.totals = counts;
    compiled.trailing_issues = since_compute;
}

void Compiler::add_waits(const program::RankClass& source, CompiledClass& compiled,
                         const std::vector<std::array<std::int32_t, kStreams>>& action_ends) {
    for (const program::Wait& wait : source.waits) {
        const std::size_t stream = stream_index(wait.stream);
        ORRERY_CHECK(wait.action >= 0 && at(wait.action) < action_ends.size(),
                     source.name + ": a wait names an action that does not exist");
        const std::int32_t end = action_ends[at(wait.action)][stream];
        const std::int32_t begin = wait.action == 0 ? 0 : action_ends[at(wait.action) - 1][stream];
        // An action that put nothing on the stream keeps nobody waiting.
        compiled.waits.push_back({size32(stream), end > begin ? end : 0, end > begin ? wait.steps_back : 0});
    }
    std::array<std::int32_t, kStreams> waited_for;  // per stream: the action whose waits were attached last
    waited_for.fill(-1);
    for (std::size_t c = 0; c < compiled.calls.size(); ++c) {
        const CompiledCall& call = compiled.calls[c];
        const program::Action& action = source.actions[at(call.action)];
        for (std::size_t stream = 0; stream < kStreams; ++stream) {
            if (result_.bodies[at(call.body)].count[stream] == 0) continue;
            StreamCall added{size32(c), action.first_wait, 0};
            if (waited_for[stream] != call.action) added.wait_count = action.wait_count;
            waited_for[stream] = call.action;
            compiled.stream_calls[stream].push_back(added);
        }
    }
}

void Compiler::add_class(std::int32_t rank_class) {
    const program::RankClass& source = program_.classes[at(rank_class)];
    CompiledClass compiled;
    body_durations_.assign(program_.bodies.size(), -1);
    std::vector<std::array<std::int32_t, kStreams>> action_ends(source.actions.size());
    add_calls(rank_class, compiled, action_ends);
    add_waits(source, compiled, action_ends);
    result_.classes.push_back(std::move(compiled));
}

}  // namespace

CompiledProgram compile(const program::Program& program, const CostModel& cost, bool host_runs_compute) {
    return Compiler(program, cost, host_runs_compute).run();
}

}  // namespace orrery::sim
