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

template <typename I, typename T>
I end_of(const IndexedVector<I, T>& list) {
    ORRERY_CHECK(list.size() <= std::numeric_limits<std::int32_t>::max(), "the Program has too many instructions");
    return list.next_index();
}

bool is_block_pass(const Body& body) {
    return is_block(body.layer_kind) && is_pass(body.phase) && body.phase != program::Phase::backward_weight &&
           body.first_in_whole == 0;
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
        for (const program::ClassIndex ranks : program_.classes.indices()) add_class(ranks);
        if (with_terms_) result_.first_term.push_back(end_of(result_.terms));
        return std::move(result_);
    }

  private:
    void number_counters();
    void add_body(const Body& body);
    void add_needs(const Body& body, const Instruction& instruction, CompiledInstruction& compiled);
    OperationIndex operation_index(const program::Communication& communication);
    void add_class(program::ClassIndex rank_class);
    void add_list(const program::RankClass& source, program::SegmentListId index, const program::WaitCounts& waits,
                  CompiledClass& compiled);
    void add_actions(program::ClassIndex rank_class, CompiledClass& compiled);
    void add_durations(program::ClassIndex rank_class, program::ActionIndex action, CompiledClass& compiled);
    DurationPlace durations_of(InstructionContext where);
    void add_terms(const InstructionContext& where, std::int64_t duration_ps);
    [[nodiscard]] DeviceDrawIndex device_draw_of(const Instruction& instruction, const DeviceShare& share);
    [[nodiscard]] CounterIndex counter_of(Stream awaited) const {
        const CounterIndex counter = result_.counters[awaited];
        ORRERY_CHECK(counter >= 0, "a wait is for a stream without instructions");
        return counter;
    }
    [[nodiscard]] bool is_host_own(Stream stream) const { return runs_on_host(stream, result_.host_runs_compute); }

    const program::Program& program_;
    const CostModel& cost_;
    bool with_terms_;
    std::vector<TimeTerm> instruction_terms_;
    std::vector<CounterIndex> host_counters_;  // of the streams of the host's own instructions
    // For the class being compiled.
    IndexedVector<program::BodyId, std::int32_t> body_durations_;      // -1: not computed yet
    std::vector<std::int32_t> list_totals_;                            // by list, then counter
    IndexedVector<program::SegmentListId, std::uint8_t> list_costed_;  // whether its calls have their durations
    // For the body being compiled.
    PerCounter<std::int32_t> counts_;                               // instructions so far
    IndexedVector<program::InstructionIndex, std::int32_t> place_;  // index on its stream
    PerCounter<std::int32_t> needed_;
    CompiledProgram result_;
};

void Compiler::number_counters() {
    program::PerStream<bool> used{};
    used[Stream::compute] = true;
    // A rank's sends and receives on a pair axis go to different peers, so only collectives need an order.
    program::PerAxis<std::optional<Stream>> stream_of;
    program::PerAxis<bool> ordered{};
    for (const Body& body : program_.bodies) {
        for (const Instruction& instruction : body.instructions) {
            ORRERY_CHECK(instruction.is_communication != program::is_local(instruction.stream),
                         "instruction '" + instruction.name + "' is on the wrong stream");
            used[instruction.stream] = true;
            const program::GroupAxis axis = instruction.communication.axis;
            if (!instruction.is_communication || program::is_pair(axis)) continue;
            if (!stream_of[axis]) stream_of[axis] = instruction.stream;
            if (stream_of[axis] != instruction.stream) ordered[axis] = true;
        }
    }
    Counters& counters = result_.counters;
    counters.of_stream.fill(-1);
    counters.of_axis.fill(-1);
    for (const Stream stream : program::kStreams) {
        if (!used[stream]) continue;
        counters.of_stream[stream] = counters.streams.add(stream);
        if (program::is_local(stream)) ++counters.local_streams;
        if (is_host_own(stream)) host_counters_.push_back(counters.of_stream[stream]);
    }
    counters.end = counters.streams.next_index();
    for (const program::GroupAxis axis : program::kAxes) {
        if (!ordered[axis]) continue;
        counters.of_axis[axis] = counters.end;
        ++counters.end;
    }
}

OperationIndex Compiler::operation_index(const program::Communication& communication) {
    const Operation operation = operation_of(communication);
    auto& known = result_.operations[communication.axis];
    const auto found = std::find(known.begin(), known.end(), operation);
    return found != known.end() ? OperationIndex::of(found - known.begin()) : known.add(operation);
}

void Compiler::add_needs(const Body& body, const Instruction& instruction, CompiledInstruction& compiled) {
    needed_.assign(counts_.size(), -1);
    for (const program::InstructionIndex earlier : instruction.after) {
        ORRERY_CHECK(earlier >= 0 && earlier < place_.next_index(),
                     "instruction '" + instruction.name + "' depends on one that does not precede it");
        std::int32_t& count = needed_[result_.counters[body.instructions[earlier].stream]];
        count = std::max(count, place_[earlier] + 1);
    }
    // The host issues it only when its own earlier instructions have completed.
    for (const CounterIndex counter : host_counters_) needed_[counter] = std::max(needed_[counter], counts_[counter]);
    if (compiled.counter >= 0) needed_[compiled.counter] = counts_[compiled.counter];
    needed_[result_.counters[instruction.stream]] = -1;  // not needed: a stream is a FIFO
    compiled.first_need = end_of(result_.needs);
    for (const CounterIndex counter : needed_.indices()) {
        if (needed_[counter] >= 0) result_.needs.push_back({counter, needed_[counter]});
    }
    compiled.need_count = end_of(result_.needs) - compiled.first_need;
}

void Compiler::add_body(const Body& body) {
    CompiledBody compiled_body;
    PerCounter<std::vector<CompiledInstruction>> by_stream(result_.counters.streams.size());
    counts_.assign(result_.counters.end.position(), 0);
    place_.clear();
    HostStretch& host = compiled_body.host;
    host.issues.block_passes = is_block_pass(body) ? 1 : 0;
    for (const program::InstructionIndex index : body.instructions.indices()) {
        const Instruction& instruction = body.instructions[index];
        const CounterIndex stream = result_.counters[instruction.stream];
        if (instruction.stream != Stream::host) ++host.issues.launches;  // host work is not launched
        CompiledInstruction compiled;
        compiled.index = index;
        compiled.host_before = host;
        if (instruction.is_communication) {
            const program::Communication& communication = instruction.communication;
            compiled.endpoint = endpoint_of(communication.axis, communication.kind);
            compiled.operation = operation_index(communication);
            compiled.counter = result_.counters.of_axis[communication.axis];
        }
        add_needs(body, instruction, compiled);
        if (is_host_own(instruction.stream)) host += {.own = 1, .issues = {}};
        place_.push_back(counts_[stream]);
        ++counts_[stream];
        if (compiled.counter >= 0) ++counts_[compiled.counter];
        by_stream[stream].push_back(compiled);
    }
    compiled_body.instructions = end_of(body.instructions).value();
    compiled_body.totals = counts_;
    for (const std::vector<CompiledInstruction>& list : by_stream) {
        const InstructionPlace first = end_of(result_.instructions);
        result_.instructions.insert(result_.instructions.end(), list.begin(), list.end());
        compiled_body.first.push_back(first);
        compiled_body.count.push_back(end_of(result_.instructions) - first);
    }
    result_.bodies.push_back(std::move(compiled_body));
}

/// Rounds up, so that an instruction that keeps all of the device busy is slowed down by everything that others take.
DeviceDrawIndex Compiler::device_draw_of(const Instruction& instruction, const DeviceShare& share) {
    if (instruction.is_communication || instruction.stream != Stream::compute) return 0;
    const auto steps = [](double part) {
        return static_cast<std::int64_t>(std::ceil(std::clamp(part, 0.0, 1.0) * DeviceDraw::kSteps));
    };
    const DeviceDraw draw{steps(share.compute_units), steps(share.memory)};
    const auto known = std::find(result_.device_draws.begin(), result_.device_draws.end(), draw);
    if (known == result_.device_draws.end()) return result_.device_draws.add(draw);
    return DeviceDrawIndex::of(known - result_.device_draws.begin());
}

/// Adds the terms of the duration that is added next. If the cost model has none for it, it has no derivatives.
void Compiler::add_terms(const InstructionContext& where, std::int64_t duration_ps) {
    result_.first_term.push_back(end_of(result_.terms));
    if (duration_ps == 0) return;
    instruction_terms_.clear();
    cost_.add_terms(where, instruction_terms_);
    const std::size_t first = result_.terms.size();
    for (const TimeTerm& term : instruction_terms_) {
        const std::int32_t cell = cell_index(result_.cells, term.cell).value();
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

/// Adds the durations of all instructions of the segment in this action and returns the place of the first.
DurationPlace Compiler::durations_of(InstructionContext where) {
    const DurationPlace first = end_of(result_.durations);
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

void Compiler::add_list(const program::RankClass& source, program::SegmentListId index,
                        const program::WaitCounts& waits, CompiledClass& compiled) {
    const program::SegmentList& segments = source.segment_lists[index];
    CompiledList list;
    list.first_call = end_of(compiled.calls);
    PerCounter<std::int32_t> counts(result_.counters.end.position());
    for (const program::SegmentIndex segment : segments.indices()) {
        const CompiledBody& body = result_.bodies.at(segments[segment].body);
        CompiledCall call;
        call.body = segments[segment].body;
        call.segment = segment;
        call.first_duration = list.instructions;
        call.host_before = list.host;
        call.first_need = end_of(result_.needs);
        call.need_count = segments[segment].wait_count;
        for (std::int32_t w = 0; w < call.need_count; ++w) {
            const program::SegmentWait& wait =
                source.segment_waits.at(static_cast<std::size_t>(segments[segment].first_wait + w));
            const CounterIndex counter = counter_of(wait.stream);
            // Relative to the start of the call: 0, or minus the instructions of the segments since the awaited one.
            result_.needs.push_back({counter, waits(index, wait) - counts[counter]});
        }
        compiled.calls.push_back(call);
        compiled.call_bases.insert(compiled.call_bases.end(), counts.begin(), counts.end());
        for (const CounterIndex counter : counts.indices()) counts[counter] += body.totals[counter];
        list.instructions += body.instructions;
        list.host += body.host;
    }
    list_totals_.insert(list_totals_.end(), counts.begin(), counts.end());
    list.first_stream = end_of(compiled.stream_calls);
    for (const CounterIndex stream : result_.counters.streams.indices()) {
        const StreamCallIndex first = end_of(compiled.call_order);
        for (const CallIndex call : IndexRange(list.first_call, compiled.calls.next_index())) {
            const CompiledBody& body = result_.bodies[compiled.calls[call].body];
            if (body.count[stream] == 0) continue;
            compiled.call_order.push_back({call, body.first[stream], body.count[stream]});
        }
        compiled.stream_calls.push_back({first, end_of(compiled.call_order) - first});
    }
    compiled.lists.push_back(list);
}

void Compiler::add_durations(program::ClassIndex rank_class, program::ActionIndex action, CompiledClass& compiled) {
    const program::SegmentListId list = compiled.actions[action].list;
    const program::SegmentList& segments = program_.classes[rank_class].segment_lists[list];
    if (cost_.depends_on_action()) {
        compiled.actions[action].first_duration = end_of(result_.durations);
        for (const program::SegmentIndex s : segments.indices()) {
            (void)durations_of({program_, rank_class, action, s, 0});
        }
        return;
    }
    if (list_costed_[list] != 0) return;
    for (const program::SegmentIndex s : segments.indices()) {
        CompiledCall& call = compiled.calls[compiled.lists[list].first_call + s.value()];
        std::int32_t& known = body_durations_[call.body];
        if (known < 0) known = durations_of({program_, rank_class, action, s, 0}).value();
        call.first_duration = known;
    }
    list_costed_[list] = 1;
}

void Compiler::add_actions(program::ClassIndex rank_class, CompiledClass& compiled) {
    const program::RankClass& source = program_.classes[rank_class];
    PerCounter<std::int32_t> counts(result_.counters.end.position());
    compiled.actions.reserve(source.actions.size());
    compiled.action_bases.reserve(source.actions.size() * counts.size());
    compiled.stream_actions.resize(result_.counters.streams.size());
    for (const program::ActionIndex index : source.actions.indices()) {
        const program::Action& action = source.actions[index];
        const CompiledList& list = compiled.lists.at(action.segments);
        CompiledAction added;
        added.list = action.segments;
        added.host_before = compiled.host;
        added.first_wait = action.first_wait;
        added.wait_count = action.wait_count;
        compiled.actions.push_back(added);
        compiled.action_bases.insert(compiled.action_bases.end(), counts.begin(), counts.end());
        add_durations(rank_class, index, compiled);
        const CounterView<const std::int32_t> totals{list_totals_.data() + action.segments.position() * counts.size()};
        for (const CounterIndex counter : counts.indices()) {
            ORRERY_CHECK(!__builtin_add_overflow(counts[counter], totals[counter], &counts[counter]),
                         "a step has too many instructions");
        }
        for (const CounterIndex stream : compiled.stream_actions.indices()) {
            if (totals[stream] > 0) compiled.stream_actions[stream].push_back(index);
        }
        compiled.instructions += list.instructions;
        compiled.host += list.host;
    }
    compiled.totals = std::move(counts);
}

void Compiler::add_class(program::ClassIndex rank_class) {
    const program::RankClass& source = program_.classes[rank_class];
    CompiledClass compiled;
    body_durations_.assign(program_.bodies.size(), -1);
    list_totals_.clear();
    list_costed_.assign(source.segment_lists.size(), 0);
    compiled.lists.reserve(source.segment_lists.size());
    const program::WaitCounts waits(program_, source);
    for (const program::SegmentListId list : source.segment_lists.indices()) add_list(source, list, waits, compiled);
    add_actions(rank_class, compiled);
    compiled.waits.reserve(source.waits.size());
    for (const program::Wait& wait : source.waits) {
        std::uint32_t held = 0;
        for (const CounterIndex stream : result_.counters.streams.indices()) {
            if (wait.holds(result_.counters.streams[stream])) held |= 1U << stream.position();
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

CellIndex cell_index(Cells& cells, const program::WorkCell& cell) {
    const auto known = std::find(cells.begin(), cells.end(), cell);
    return known != cells.end() ? CellIndex::of(known - cells.begin()) : cells.add(cell);
}

CompiledProgram compile(const program::Program& program, const CostModel& cost, bool host_runs_compute,
                        bool with_terms) {
    return Compiler(program, cost, host_runs_compute, with_terms).run();
}

}  // namespace orrery::sim
