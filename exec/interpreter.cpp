#include "exec/interpreter.h"

#include <algorithm>
#include <deque>
#include <string>

#include "core/error.h"
#include "core/units.h"
#include "exec/weights.h"

namespace orrery::exec {
namespace {

using program::Action;
using program::Body;
using program::GroupAxis;
using program::Instruction;
using program::Segment;
using program::Stream;

constexpr std::int64_t kPicosecondsPerNanosecond = 1000;

std::size_t index_of(Stream stream) {
    return static_cast<std::size_t>(stream);
}

const program::Program& checked(const program::Program& program, int world_size) {
    const program::Plan& plan = *program.plan;
    check_executable(plan, plan.name);
    if (world_size != plan.parallelism.world_size()) {
        throw InputError(plan.name, "world size", std::to_string(world_size),
                         "dp * tp * pp * cp = " + std::to_string(plan.parallelism.world_size()) + " ranks");
    }
    return program;
}

}  // namespace

struct Interpreter::Cursor {
    std::int64_t step = 0;
    const Action* action = nullptr;
    const Segment* segment = nullptr;
    StreamCounts posted{};  // instructions issued on each stream since the first step
    // Streams whose first instruction in the action, and in the segment, is still to come: it waits.
    std::array<bool, program::kStreamCount> action_waits_pending{};
    std::array<bool, program::kStreamCount> segment_waits_pending{};
    std::vector<StreamCounts> posted_by_segment;  // `posted` at the end of each segment of the action so far
    std::vector<std::int64_t> sequences;          // by instruction of the body: its number on its stream
};

struct Interpreter::PendingStep {
    std::int64_t step = 0;
    StepTimes result;
    std::vector<OperationTimes> times;  // by span
};

Interpreter::Interpreter(const program::Program& program, Transport& transport)
    : program_(checked(program, transport.world_size())),
      transport_(transport),
      rank_(transport.rank()),
      coordinates_(program.coordinates(rank_)),
      class_index_(program.class_of(rank_)),
      class_(program.classes[static_cast<std::size_t>(class_index_)]),
      data_(program.plan->training.data, program.plan->training.seed, program.plan->model.vocab,
            program.plan->training.sequence_length),
      shards_(program, rank_),
      updates_(shards_.update_ranges()) {
    const program::Plan& plan = *program_.plan;
    find_partners();
    arena_ = std::make_unique<Arena>(program, class_, shards_, transport_.ranks_on_host());
    samples_.resize(static_cast<std::size_t>(plan.training.micro_batch_size));
    const program::Optimizer& optimizer = plan.training.optimizer;
    context_ = {
        .model = &plan.model,
        .tp_index = coordinates_.tp,
        .cp = plan.parallelism.cp,
        .cp_index = coordinates_.cp,
        .loss_scale = 1.0 / static_cast<double>(plan.training.global_batch_size * plan.training.sequence_length),
        .data = &data_,
        .samples = samples_,
        .optimizer = {.learning_rate = optimizer.learning_rate,
                      .beta1 = optimizer.beta1,
                      .beta2 = optimizer.beta2,
                      .epsilon = optimizer.epsilon,
                      .weight_decay = optimizer.weight_decay},
        .decoupled_decay = optimizer.kind == program::OptimizerKind::adamw,
        .sgd = {.learning_rate = optimizer.learning_rate,
                .momentum = optimizer.momentum,
                .weight_decay = optimizer.weight_decay},
        .clip_norm = optimizer.clip_norm,
        .updates = updates_};
    initialise_weights();
    StreamCounts posted{};
    for (const Action& action : class_.actions) {
        for (const Segment& segment : class_.segment_lists[static_cast<std::size_t>(action.segments)]) {
            const Body& body = program_.bodies[static_cast<std::size_t>(segment.body)];
            for (std::size_t s = 0; s < posted.size(); ++s) posted[s] += body.stream_counts[s];
        }
        posted_by_.push_back(posted);
    }
    progress_ = std::make_unique<ProgressEngine>(transport_);
}

void Interpreter::find_partners() {
    std::array<bool, program::kAxisCount> used{};
    peers_.fill(-1);
    for (const auto& segments : class_.segment_lists) {
        for (const Segment& segment : segments) {
            for (const Instruction& instruction :
                 program_.bodies[static_cast<std::size_t>(segment.body)].instructions) {
                if (!instruction.is_communication) continue;
                if (is_pipeline(instruction.stream)) {
                    int& peer = peers_[index_of(instruction.stream)];
                    if (peer < 0) peer = static_cast<int>(program_.peer_of(instruction.stream, rank_));
                } else {
                    used[static_cast<std::size_t>(instruction.communication.axis)] = true;
                }
            }
        }
    }
    // By axis on every rank: the members of a group do the same thing, so they all find it here.
    for (std::size_t axis = 0; axis < used.size(); ++axis) {
        if (!used[axis]) continue;
        std::vector<int> ranks;
        for (const std::int64_t member : program_.group_of(static_cast<GroupAxis>(axis), rank_)) {
            ranks.push_back(static_cast<int>(member));
        }
        groups_[axis] = transport_.create_group(ranks);
    }
}

void Interpreter::initialise_weights() {
    std::vector<program::Parameter> parameters = class_.parameters;
    std::sort(parameters.begin(), parameters.end(),
              [](const program::Parameter& a, const program::Parameter& b) { return a.offset < b.offset; });
    const bool at_rest = class_.shard_elements > 0 && !class_.parameter_shards_alias;
    // Where shards are all that stays, the window for gathered units has room for any parameter.
    auto* buffer = reinterpret_cast<float*>(arena_->parameters());
    for (const program::Parameter& parameter : parameters) {
        float* values = at_rest ? buffer : buffer + parameter.offset;
        fill_parameter(parameter.decl, layer_prefix(parameter.name, parameter.decl), coordinates_.tp,
                       program_.plan->training.seed,
                       std::span<float>(values, static_cast<std::size_t>(parameter.elements)));
        for (const ShardPiece& piece : shards_.pieces()) {
            const std::int64_t begin = std::max(piece.flat, parameter.offset);
            const std::int64_t end = std::min(piece.flat + piece.elements, parameter.offset + parameter.elements);
            if (!at_rest || begin >= end) continue;
            const ShardPiece part{begin, piece.shard + begin - piece.flat, end - begin};
            std::copy_n(values + (begin - parameter.offset), part.elements,
                        reinterpret_cast<float*>(arena_->parameters_at_rest(part, sizeof(float))));
        }
    }
    if (at_rest) std::fill_n(buffer, class_.parameter_buffer_elements, 0.0F);
}

void Interpreter::fill_samples(std::int64_t step, std::int32_t micro_batch) {
    // Micro-batch i of data-parallel rank d holds the samples (i * D + d) * b + j of the step's global batch.
    const program::Plan& plan = *program_.plan;
    const std::int64_t b = plan.training.micro_batch_size;
    const std::int64_t first =
        step * plan.training.global_batch_size + (micro_batch * plan.parallelism.dp + coordinates_.dp) * b;
    for (std::int64_t j = 0; j < b; ++j) samples_[static_cast<std::size_t>(j)] = first + j;
}

std::int64_t Interpreter::sequence_of(const program::Wait& wait, std::int64_t step) const {
    const std::int64_t in_step = posted_by_[static_cast<std::size_t>(wait.action)][index_of(wait.stream)];
    const std::int64_t steps_before = step - wait.steps_back;
    return steps_before < 0 ? 0 : steps_before * posted_by_.back()[index_of(wait.stream)] + in_step;
}

std::int64_t Interpreter::sequence_of(const program::SegmentWait& wait, const Cursor& at) {
    return at.posted_by_segment[static_cast<std::size_t>(wait.segment)][index_of(wait.stream)];
}

OperatorPointers Interpreter::pointers_of(const Cursor& at, const Body& body, const models::Operator& op) const {
    OperatorPointers pointers;
    const auto bind = [&](models::SlotIndex index, void*& pointer, DType& dtype, std::int64_t& width) {
        if (index == models::kNoSlot) return;
        const program::Slot& slot = body.slots[static_cast<std::size_t>(index)];
        pointer = op.works_on_updates() ? arena_->flat_address(slot)
                                        : arena_->address(slot, body.phase, *at.segment, *at.action);
        dtype = slot.decl.dtype;
        if (!slot.decl.shape.empty()) width = slot.decl.shape.back();
    };
    for (std::size_t i = 0; i < pointers.in.size(); ++i) {
        bind(op.in[i], pointers.in[i], pointers.in_dtype[i], pointers.in_width[i]);
        bind(op.out[i], pointers.out[i], pointers.out_dtype[i], pointers.out_width[i]);
    }
    DType dtype{};
    std::int64_t width = 0;
    bind(op.scratch, pointers.scratch, dtype, width);
    if (op.scratch != models::kNoSlot) {
        pointers.scratch_bytes = body.slots[static_cast<std::size_t>(op.scratch)].bytes;
    }
    return pointers;
}

void Interpreter::run_compute(const Cursor& at, const Body& body, const Instruction& instruction) {
    for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
        const models::Operator& op = body.operators[static_cast<std::size_t>(instruction.first_operator + o)];
        backend_.run(op, pointers_of(at, body, op), context_);
    }
}

void Interpreter::post(const Cursor& at, const Body& body, const Instruction& instruction, OperationTimes& times) {
    const program::Communication& communication = instruction.communication;
    const auto address = [&](models::SlotIndex slot) -> void* {
        if (slot == models::kNoSlot) return nullptr;
        return arena_->address(body.slots[static_cast<std::size_t>(slot)], body.phase, *at.segment, *at.action);
    };
    Operation operation{.kind = communication.kind,
                        .reduce = communication.reduce,
                        .dtype = communication.dtype,
                        .elements = communication.elements,
                        .in = address(communication.in),
                        .out = address(communication.out),
                        .accumulates = communication.accumulates,
                        .times = &times};
    if (is_pipeline(instruction.stream)) {
        operation.peer = peers_[index_of(instruction.stream)];
    } else {
        operation.group = groups_[static_cast<std::size_t>(communication.axis)];
    }
    // What the compute stream did before is done: the host executes it in list order. Other streams are named.
    const auto require = [&](Stream stream, std::int64_t sequence) {
        if (is_local(stream)) return;
        std::int64_t& after = operation.after[index_of(stream)];
        after = std::max(after, sequence);
    };
    for (program::InstructionIndex earlier : instruction.after) {
        const auto e = static_cast<std::size_t>(earlier);
        require(body.instructions[e].stream, at.sequences[e]);
    }
    if (at.segment_waits_pending[index_of(instruction.stream)]) {
        for (std::int32_t w = 0; w < at.segment->wait_count; ++w) {
            const program::SegmentWait& wait =
                class_.segment_waits[static_cast<std::size_t>(at.segment->first_wait + w)];
            require(wait.stream, sequence_of(wait, at));
        }
    }
    if (at.action_waits_pending[index_of(instruction.stream)]) {
        for (std::int32_t w = 0; w < at.action->wait_count; ++w) {
            const program::Wait& wait = class_.waits[static_cast<std::size_t>(at.action->first_wait + w)];
            if (wait.holds(instruction.stream)) require(wait.stream, sequence_of(wait, at.step));
        }
    }
    const std::int64_t sequence = progress_->post(instruction.stream, operation);
    ORRERY_CHECK(sequence == at.posted[index_of(instruction.stream)], "a stream's operations are out of step");
}

void Interpreter::wait_for_action(const Action& action, std::int64_t step) {
    for (std::int32_t w = 0; w < action.wait_count; ++w) {
        const program::Wait& wait = class_.waits[static_cast<std::size_t>(action.first_wait + w)];
        if (is_local(wait.stream) || !wait.holds(Stream::compute)) continue;
        const std::int64_t sequence = sequence_of(wait, step);
        if (sequence > 0) progress_->wait(wait.stream, sequence);
    }
}

void Interpreter::wait_for_segment(const Cursor& at) {
    for (std::int32_t w = 0; w < at.segment->wait_count; ++w) {
        const program::SegmentWait& wait = class_.segment_waits[static_cast<std::size_t>(at.segment->first_wait + w)];
        if (!is_local(wait.stream)) progress_->wait(wait.stream, sequence_of(wait, at));
    }
}

RunTimes Interpreter::run(std::int64_t steps, const std::function<void(std::int64_t)>& before_optimizer) {
    RunTimes result;
    std::deque<std::unique_ptr<PendingStep>> kept;
    for (std::int64_t step = 0; step < steps; ++step) {
        kept.push_back(std::make_unique<PendingStep>());
        PendingStep& pending = *kept.back();
        pending.step = step;
        run_step(pending, before_optimizer);
        result.steps.push_back({.begin_ns = pending.result.begin_ns,
                                .end_ns = pending.result.end_ns,
                                .loss_sum = pending.result.loss_sum});
        if (static_cast<std::int64_t>(kept.size()) > kStepsWithSpans) {
            wait_for_step(kept.front()->step);  // the progress thread writes into it until its transfers are over
            kept.pop_front();
        }
    }
    progress_->wait_all();  // the last step's sends, for which nobody here waited
    for (const auto& one : kept) {
        std::vector<program::Span>& spans = one->result.spans;
        const auto since_begin = [&](std::int64_t ns) {
            return std::max<std::int64_t>(0, ns - one->result.begin_ns) * kPicosecondsPerNanosecond;
        };
        for (std::size_t i = 0; i < spans.size(); ++i) {
            spans[i].ready_ps = since_begin(one->times[i].ready_ns);
            spans[i].begin_ps = since_begin(one->times[i].begin_ns);
            spans[i].end_ps = since_begin(one->times[i].end_ns);
        }
        result.steps[static_cast<std::size_t>(one->step)].spans = std::move(spans);
    }
    for (std::size_t s = 0; s < result.bytes_sent.size(); ++s) {
        if (is_local(static_cast<Stream>(s))) continue;
        result.bytes_sent[s] = progress_->bytes_sent(static_cast<Stream>(s));
    }
    return result;
}

void Interpreter::wait_for_step(std::int64_t step) {
    for (std::size_t s = 0; s < program::kStreamCount; ++s) {
        const std::int64_t posted = (step + 1) * posted_by_.back()[s];
        if (!is_local(static_cast<Stream>(s)) && posted > 0) progress_->wait(static_cast<Stream>(s), posted);
    }
}

void Interpreter::run_step(PendingStep& pending, const std::function<void(std::int64_t)>& before_optimizer) {
    StepTimes& result = pending.result;
    const std::int64_t step = pending.step;
    std::size_t total = 0;
    for (std::int64_t count : posted_by_.back()) total += static_cast<std::size_t>(count);
    pending.times.resize(total);  // the progress thread writes into it: never moved again
    result.spans.reserve(total);
    context_.optimizer.step = step + 1;
    *arena_->loss() = 0;

    Cursor at{.step = step};
    for (std::size_t s = 0; s < at.posted.size(); ++s) at.posted[s] = step * posted_by_.back()[s];
    result.begin_ns = now_ns();
    for (std::size_t action_index = 0; action_index < class_.actions.size(); ++action_index) {
        const Action& action = class_.actions[action_index];
        at.action = &action;
        at.action_waits_pending.fill(true);
        at.posted_by_segment.clear();
        if (action.micro_batch >= 0) fill_samples(step, action.micro_batch);
        if (action.kind == program::ActionKind::optimizer_step && before_optimizer) {
            wait_for_action(action, step);
            before_optimizer(step);
        }
        const auto& segments = class_.segment_lists[static_cast<std::size_t>(action.segments)];
        for (std::size_t segment = 0; segment < segments.size(); ++segment) {
            at.segment = &segments[segment];
            at.segment_waits_pending.fill(true);
            const Body& body = program_.bodies[static_cast<std::size_t>(at.segment->body)];
            at.sequences.assign(body.instructions.size(), 0);
            for (std::size_t i = 0; i < body.instructions.size(); ++i) {
                at.sequences[i] = ++at.posted[index_of(body.instructions[i].stream)];
                OperationTimes& times = pending.times[result.spans.size()];
                result.spans.push_back({.action = static_cast<std::int32_t>(action_index),
                                        .segment = static_cast<std::int32_t>(segment),
                                        .instruction = static_cast<std::int32_t>(i)});
                issue(at, body, body.instructions[i], times);
            }
            at.posted_by_segment.push_back(at.posted);
        }
    }
    result.end_ns = now_ns();
    result.loss_sum = *arena_->loss();
}

void Interpreter::issue(Cursor& at, const Body& body, const Instruction& instruction, OperationTimes& times) {
    bool& action_pending = at.action_waits_pending[index_of(instruction.stream)];
    bool& segment_pending = at.segment_waits_pending[index_of(instruction.stream)];
    if (instruction.is_communication) {
        post(at, body, instruction, times);
    } else {
        if (action_pending) wait_for_action(*at.action, at.step);
        if (segment_pending) wait_for_segment(at);
        for (program::InstructionIndex earlier : instruction.after) {
            const auto e = static_cast<std::size_t>(earlier);
            const Stream other = body.instructions[e].stream;
            if (!is_local(other)) progress_->wait(other, at.sequences[e]);
        }
        times.ready_ns = times.begin_ns = now_ns();
        run_compute(at, body, instruction);
        times.end_ns = now_ns();
    }
    action_pending = segment_pending = false;
}

}  // namespace orrery::exec
