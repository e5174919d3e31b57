#include "sim/engine/compiled_program.h"

#include <algorithm>
#include <limits>
#include <string>

#include "core/error.h"
#include "sim/program/durations.h"
#include "sim/program/issue_trace.h"
#include "sim/program/work_rates.h"

namespace orrery::sim {

namespace {

using program::Body;
using program::Instruction;
using program::Stream;

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}
std::int32_t size32(std::size_t size) {
    ORRERY_CHECK(size <= std::numeric_limits<std::int32_t>::max(), "the Program has too many instructions");
    return static_cast<std::int32_t>(size);
}

bool is_block_pass(const Body& body) {
    const bool is_block =
        body.layer_kind == models::LayerKind::block || body.layer_kind == models::LayerKind::expert_block;
    return is_block && (body.phase == program::Phase::forward || body.phase == program::Phase::backward ||
                        body.phase == program::Phase::backward_input);
}

class Compiler {
  public:
    Compiler(const program::Program& program, const CostModel& cost, bool host_runs_compute, bool with_terms)
        : program_(program), cost_(cost), with_terms_(with_terms) {
        result_.host_runs_compute = host_runs_compute;
        result_.device_draws.emplace_back();
    }

    CompiledProgram run() {
        number_counters();
        for (const Body& body : program_.bodies) add_body(body);
        for (std::size_t c = 0; c < program_.classes.size(); ++c) add_class(size32(c));
        if (with_terms_) result_.first_term.push_back(size32(result_.terms.size()));
        return std::move(result_);
    }

  private:
    void number_counters();
    void add_body(const Body& body);
    void add_needs(const Body& body, const Instruction& instruction, CompiledInstruction& compiled);
    std::int32_t operation_index(const program::Communication& communication);
    void add_class(program::ClassIndex rank_class);
    void add_list(const program::RankClass& source, std::size_t index, const program::WaitCounts& waits,
                  CompiledClass& compiled);
    void add_actions(program::ClassIndex rank_class, CompiledClass& compiled);
    void add_durations(program::ClassIndex rank_class, program::ActionIndex action, CompiledClass& compiled);
    std::int32_t durations_of(InstructionContext where);
    void add_terms(const InstructionContext& where, std::int64_t duration_ps);
    [[nodiscard]] std::uint16_t device_draw_of(const Instruction& instruction, const DeviceShare& share);
    [[nodiscard]] std::int32_t counter_of(Stream awaited) const {
        const std::int32_t counter = result_.counters[awaited];
        ORRERY_CHECK(counter >= 0, "a wait is for a stream without work");
        return counter;
    }
    [[nodiscard]] bool is_host_own(Stream stream) const { return runs_on_host(stream, result_.host_runs_compute); }

    const program::Program& program_;
    const CostModel& cost_;
    bool with_terms_;
    std::vector<TimeTerm> instruction_terms_;
    std::vector<std::int32_t> host_counters_;  // of the streams that is_host_own()
    // Of the class being compiled.
    std::vector<std::int32_t> body_durations_;  // -1: not asked yet
    std::vector<std::int32_t> list_totals_;     // by list, then counter
    std::vector<std::uint8_t> list_costed_;     // whether its calls know their durations
    // Of the body being compiled.
    std::vector<std::int32_t> counts_;  // by counter: instructions so far
    std::vector<std::int32_t> place_;   // per instruction: its number on its stream
    std::vector<std::int32_t> needed_;  // by counter
    CompiledProgram result_;
};

void Compiler::number_counters() {
    program::PerStream<bool> used{};
    used[0] = true;
    // A rank sends and receives on one pair axis, but with different peers, so only collectives need an order.
    program::PerAxis<int> stream_of;
    stream_of.fill(-1);
    program::PerAxis<bool> ordered{};
    for (const Body& body : program_.bodies) {
        for (const Instruction& instruction : body.instructions) {
            ORRERY_CHECK(instruction.is_communication != program::is_local(instruction.stream),
                         "instruction '" + instruction.name + "' is on the wrong stream");
            const auto stream = static_cast<int>(instruction.stream);
            used[at(stream)] = true;
            if (!instruction.is_communication || program::is_pair(instruction.communication.axis)) continue;
            const auto axis = static_cast<std::size_t>(instruction.communication.axis);
            if (stream_of[axis] < 0) stream_of[axis] = stream;
            if (stream_of[axis] != stream) ordered[axis] = true;
        }
    }
    Counters& counters = result_.counters;
    counters.of_stream.fill(-1);
    counters.of_axis.fill(-1);
    for (int s = 0; s < program::kStreamCount; ++s) {
        if (!used[at(s)]) continue;
        const auto stream = static_cast<Stream>(s);
        counters.of_stream[at(s)] = static_cast<std::int8_t>(counters.count++);
        counters.streams.push_back(stream);
        if (program::is_local(stream)) ++counters.local_streams;
        if (is_host_own(stream)) host_counters_.push_back(counters.count - 1);
    }
    for (std::size_t axis = 0; axis < ordered.size(); ++axis) {
        if (ordered[axis]) counters.of_axis[axis] = static_cast<std::int8_t>(counters.count++);
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

void Compiler::add_needs(const Body& body, const Instruction& instruction, CompiledInstruction& compiled) {
    needed_.assign(at(result_.counters.count), -1);
    for (const program::InstructionIndex earlier : instruction.after) {
        ORRERY_CHECK(earlier >= 0 && at(earlier) < place_.size(),
                     "instruction '" + instruction.name + "' comes after one that is not before it");
        std::int32_t& count = needed_[at(result_.counters[body.instructions[at(earlier)].stream])];
        count = std::max(count, place_[at(earlier)] + 1);
    }
    // The host issues it only when its own instructions before it are done.
    for (const std::int32_t counter : host_counters_) {
        needed_[at(counter)] = std::max(needed_[at(counter)], counts_[at(counter)]);
    }
    if (compiled.counter >= 0) needed_[at(compiled.counter)] = counts_[at(compiled.counter)];
    needed_[at(result_.counters[instruction.stream])] = -1;  // a stream is a FIFO anyway
    compiled.first_need = size32(result_.needs.size());
    for (std::int32_t counter = 0; counter < result_.counters.count; ++counter) {
        if (needed_[at(counter)] >= 0) result_.needs.push_back({counter, needed_[at(counter)]});
    }
    compiled.need_count = size32(result_.needs.size()) - compiled.first_need;
}

void Compiler::add_body(const Body& body) {
    CompiledBody compiled_body;
    std::vector<std::vector<CompiledInstruction>> by_stream(result_.counters.streams.size());
    counts_.assign(at(result_.counters.count), 0);
    place_.clear();
    HostWork issues{.block_passes = is_block_pass(body) ? 1 : 0};
    for (const Instruction& instruction : body.instructions) {
        const std::size_t stream = at(result_.counters[instruction.stream]);
        const bool host_own = is_host_own(instruction.stream);
        if (instruction.stream != Stream::host) ++issues.launches;  // what the host does itself is not launched
        CompiledInstruction compiled;
        compiled.index = compiled_body.instructions++;
        compiled.host_before = compiled_body.host_instructions;
        compiled.issues = issues;
        compiled.after_call_start = compiled_body.host_instructions == 0;
        if (instruction.is_communication) {
            const program::Communication& communication = instruction.communication;
            compiled.seat = static_cast<std::int8_t>(seat_of(communication.axis, communication.kind));
            compiled.operation = operation_index(communication);
            compiled.counter = result_.counters.of_axis[static_cast<std::size_t>(communication.axis)];
        }
        add_needs(body, instruction, compiled);
        if (host_own) {
            issues = {};
            ++compiled_body.host_instructions;
        }
        place_.push_back(counts_[stream]);
        ++counts_[stream];
        if (compiled.counter >= 0) ++counts_[at(compiled.counter)];
        by_stream[stream].push_back(compiled);
    }
    compiled_body.totals = counts_;
    compiled_body.trailing_issues = issues;
    for (const std::vector<CompiledInstruction>& list : by_stream) {
        compiled_body.first.push_back(size32(result_.instructions.size()));
        compiled_body.count.push_back(size32(list.size()));
        result_.instructions.insert(result_.instructions.end(), list.begin(), list.end());
    }
    result_.bodies.push_back(std::move(compiled_body));
}

/// The step above, so that what keeps all of it busy is slowed down by whatever is taken.
std::uint16_t Compiler::device_draw_of(const Instruction& instruction, const DeviceShare& share) {
    if (instruction.is_communication || instruction.stream != Stream::compute) return 0;
    const auto steps = [](double part) {
        return static_cast<std::int64_t>(std::ceil(std::clamp(part, 0.0, 1.0) * DeviceDraw::kSteps));
    };
    const DeviceDraw draw{steps(share.compute_units), steps(share.memory)};
    const auto known = std::find(result_.device_draws.begin(), result_.device_draws.end(), draw);
    const auto index = known - result_.device_draws.begin();
    if (known == result_.device_draws.end()) result_.device_draws.push_back(draw);
    return static_cast<std::uint16_t>(index);
}

/// Of the instruction whose duration is added next. A duration whose model knows no terms has no derivatives.
void Compiler::add_terms(const InstructionContext& where, std::int64_t duration_ps) {
    result_.first_term.push_back(size32(result_.terms.size()));
    if (duration_ps == 0) return;
    instruction_terms_.clear();
    cost_.add_terms(where, instruction_terms_);
    const std::size_t first = result_.terms.size();
    for (const TimeTerm& term : instruction_terms_) {
        const std::int32_t cell = cell_index(result_.cells, term.cell);
        const auto of_cell = [cell](const Tangents::Term& other) { return other.cell == cell; };
        const auto begin = result_.terms.begin() + static_cast<std::ptrdiff_t>(first);
        const auto known = std::find_if(begin, result_.terms.end(), of_cell);
        const double picoseconds = term.seconds * kPicosecondsPerSecond;
        if (known == result_.terms.end()) {
            result_.terms.push_back({cell, picoseconds});
        } else {
            known->picoseconds += picoseconds;
        }
    }
}

/// Durations of all instructions of the segment as the action runs it.
std::int32_t Compiler::durations_of(InstructionContext where) {
    const auto first = size32(result_.durations.size());
    for (const Instruction& instruction : where.body_here().instructions) {
        const InstructionCost cost = instruction.is_communication ? InstructionCost{} : cost_.instruction_cost(where);
        const std::int64_t duration = cost.time.value();
        ORRERY_CHECK(duration >= 0, "instruction '" + instruction.name + "' takes negative time");
        if (with_terms_) add_terms(where, duration);
        result_.durations.push_back(duration);
        if (!result_.host_runs_compute) result_.device_draw_of.push_back(device_draw_of(instruction, cost.share));
        ++where.instruction;
    }
    return first;
}

void Compiler::add_list(const program::RankClass& source, std::size_t index, const program::WaitCounts& waits,
                        CompiledClass& compiled) {
    const std::vector<program::Segment>& segments = source.segment_lists[index];
    CompiledList list;
    list.first_call = size32(compiled.calls.size());
    list.call_count = size32(segments.size());
    std::vector<std::int32_t> counts(at(result_.counters.count));
    for (std::size_t segment = 0; segment < segments.size(); ++segment) {
        const CompiledBody& body = result_.bodies.at(at(segments[segment].body));
        CompiledCall call;
        call.body = segments[segment].body;
        call.segment = size32(segment);
        call.first_duration = list.instructions;
        call.host_before = list.host_instructions;
        call.issues_since_host = list.trailing_issues;
        call.first_need = size32(result_.needs.size());
        call.need_count = segments[segment].wait_count;
        for (std::int32_t w = 0; w < call.need_count; ++w) {
            const program::SegmentWait& wait = source.segment_waits.at(at(segments[segment].first_wait + w));
            const std::int32_t counter = counter_of(wait.stream);
            // Counted from the call's start: nothing, or as far back as what the segments since have put there.
            result_.needs.push_back({counter, waits(size32(index), wait) - counts[at(counter)]});
        }
        compiled.calls.push_back(call);
        compiled.call_bases.insert(compiled.call_bases.end(), counts.begin(), counts.end());
        for (std::size_t counter = 0; counter < counts.size(); ++counter) counts[counter] += body.totals[counter];
        list.instructions += body.instructions;
        list.host_instructions += body.host_instructions;
        list.trailing_issues = (body.host_instructions > 0 ? HostWork() : list.trailing_issues) + body.trailing_issues;
    }
    list_totals_.insert(list_totals_.end(), counts.begin(), counts.end());
    list.first_stream = size32(compiled.stream_calls.size());
    for (std::size_t stream = 0; stream < result_.counters.streams.size(); ++stream) {
        const auto first = size32(compiled.call_order.size());
        for (std::int32_t call = list.first_call; call < list.first_call + list.call_count; ++call) {
            const CompiledBody& body = result_.bodies[at(compiled.calls[at(call)].body)];
            if (body.count[stream] == 0) continue;
            compiled.call_order.push_back({call, body.first[stream], body.count[stream]});
        }
        compiled.stream_calls.push_back({first, size32(compiled.call_order.size()) - first});
    }
    compiled.lists.push_back(list);
}

void Compiler::add_durations(program::ClassIndex rank_class, program::ActionIndex action, CompiledClass& compiled) {
    const CompiledList& list = compiled.lists[at(compiled.actions[at(action)].list)];
    if (cost_.depends_on_action()) {
        compiled.actions[at(action)].first_duration = size32(result_.durations.size());
        for (std::int32_t s = 0; s < list.call_count; ++s) {
            (void)durations_of({program_, rank_class, action, s, 0});
        }
        return;
    }
    for (std::int32_t s = 0; s < list.call_count && list_costed_[at(compiled.actions[at(action)].list)] == 0; ++s) {
        CompiledCall& call = compiled.calls[at(list.first_call + s)];
        std::int32_t& known = body_durations_[at(call.body)];
        if (known < 0) known = durations_of({program_, rank_class, action, s, 0});
        call.first_duration = known;
    }
    list_costed_[at(compiled.actions[at(action)].list)] = 1;
}

void Compiler::add_actions(program::ClassIndex rank_class, CompiledClass& compiled) {
    const program::RankClass& source = program_.classes[at(rank_class)];
    std::vector<std::int32_t> counts(at(result_.counters.count));
    compiled.actions.reserve(source.actions.size());
    compiled.action_bases.reserve(source.actions.size() * counts.size());
    compiled.stream_actions.resize(result_.counters.streams.size());
    for (std::size_t index = 0; index < source.actions.size(); ++index) {
        const program::Action& action = source.actions[index];
        const CompiledList& list = compiled.lists.at(at(action.segments));
        CompiledAction added;
        added.list = action.segments;
        added.host_before = compiled.host_instructions;
        added.issues_since_host = compiled.trailing_issues;
        added.first_wait = action.first_wait;
        added.wait_count = action.wait_count;
        compiled.actions.push_back(added);
        compiled.action_bases.insert(compiled.action_bases.end(), counts.begin(), counts.end());
        add_durations(rank_class, size32(index), compiled);
        const std::int32_t* totals = &list_totals_[at(action.segments) * counts.size()];
        for (std::size_t counter = 0; counter < counts.size(); ++counter) {
            ORRERY_CHECK(!__builtin_add_overflow(counts[counter], totals[counter], &counts[counter]),
                         "a step has too many instructions");
        }
        for (std::size_t stream = 0; stream < compiled.stream_actions.size(); ++stream) {
            if (totals[stream] > 0) compiled.stream_actions[stream].push_back(size32(index));
        }
        compiled.instructions += list.instructions;
        compiled.host_instructions += list.host_instructions;
        compiled.trailing_issues =
            (list.host_instructions > 0 ? HostWork() : compiled.trailing_issues) + list.trailing_issues;
    }
    compiled.totals = std::move(counts);
}

void Compiler::add_class(program::ClassIndex rank_class) {
    const program::RankClass& source = program_.classes[at(rank_class)];
    CompiledClass compiled;
    body_durations_.assign(program_.bodies.size(), -1);
    list_totals_.clear();
    list_costed_.assign(source.segment_lists.size(), 0);
    compiled.lists.reserve(source.segment_lists.size());
    const program::WaitCounts waits(program_, source);
    for (std::size_t list = 0; list < source.segment_lists.size(); ++list) add_list(source, list, waits, compiled);
    add_actions(rank_class, compiled);
    compiled.waits.reserve(source.waits.size());
    for (const program::Wait& wait : source.waits) {
        std::uint32_t held = 0;
        for (std::size_t used = 0; used < result_.counters.streams.size(); ++used) {  // a stream's counter is its place
            if (wait.holds(result_.counters.streams[used])) held |= 1U << used;
        }
        compiled.waits.push_back({counter_of(wait.stream), waits(wait), wait.steps_back, held});
    }
    result_.classes.push_back(std::move(compiled));
}

}  // namespace

HostTimes host_times(const program::Plan& plan, const topologies::DeviceProfile& device) {
    const program::HostTime block = program::host_time(plan);
    return {.launch_ps = program::launch_time(device, plan.implementation.host).value(),
            .layer_ps = picoseconds_from_seconds(block.layer_s).value(),
            .tp_layer_ps = picoseconds_from_seconds(block.tp_layer_s).value()};
}

std::int32_t cell_index(std::vector<program::WorkCell>& cells, const program::WorkCell& cell) {
    const auto known = std::find(cells.begin(), cells.end(), cell);
    if (known != cells.end()) return static_cast<std::int32_t>(known - cells.begin());
    cells.push_back(cell);
    return size32(cells.size()) - 1;
}

CompiledProgram compile(const program::Program& program, const CostModel& cost, bool host_runs_compute,
                        bool with_terms) {
    return Compiler(program, cost, host_runs_compute, with_terms).run();
}

}  // namespace orrery::sim
