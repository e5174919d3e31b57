#include "exec/interpreter.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <string>

#include "core/error.h"
#include "core/units.h"
#include "exec/faults/finite.h"
#include "exec/weights.h"
#include "kernels/kernels.h"

namespace orrery::exec {
namespace {

using program::Action;
using program::Body;
using program::GroupAxis;
using program::Instruction;
using program::Segment;
using program::Stream;

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
    PendingStep* pending = nullptr;
    InstructionPlace place;
    const program::Call* call = nullptr;
    const Action* action = nullptr;
    const Segment* segment = nullptr;
    StreamCounts posted{};  // by stream: instructions issued since the first step
};

struct Interpreter::PendingStep {
    std::int64_t step = 0;
    StepTimes result;
    std::vector<OperationTimes> times;  // by span
    double gradient_squares = 0;        // this rank's part of the gradient norm, on an asynchronous backend
};

Interpreter::Interpreter(const program::Program& program, int rank, int world_size, Backend& backend,
                         FlightRecorder& recorder)
    : program_(checked(program, world_size)),
      backend_(backend),
      rank_(rank),
      coordinates_(program.coordinates(rank_)),
      class_index_(program.class_of(rank_)),
      class_(program.classes[class_index_]),
      data_(program.plan->training.data, program.plan->training.seed, program.plan->model.vocab,
            program.plan->training.sequence_length),
      shards_(program, rank_),
      updates_(shards_.update_ranges()),
      trace_(program::trace_of(program, class_index_)),
      recorder_(recorder),
      watch_(program, rank_, recorder) {
    const program::Plan& plan = *program_.plan;
    // Before the memory is reserved, because communication over GPUs takes device memory of its own.
    recorder_.enter(RankStage::connecting);
    partners_ = find_partners();
    groups_ = backend_.connect(partners_);
    recorder_.enter(RankStage::preparing);
    backend_.prepare(program, class_);
    arena_ = std::make_unique<Arena>(program, class_, shards_, backend_);
    samples_.resize(static_cast<std::size_t>(plan.training.micro_batch_size));
    const program::Optimizer& optimizer = plan.training.optimizer;
    context_ = {
        .model = &plan.model,
        .tp_index = coordinates_.tp,
        .vocabulary_index = vocabulary_index(program, rank_),
        .cp = plan.parallelism.cp,
        .cp_index = coordinates_.cp,
        .loss_scale = 1.0 / static_cast<double>(plan.training.global_batch_size * plan.training.sequence_length),
        .data = &data_,
        .samples = samples_,
        .dropout = plan.training.dropout,
        .seed = plan.training.seed,
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
}

Partners Interpreter::find_partners() const {
    Partners partners;
    program::PerAxis<bool> used{};
    for (const auto& segments : class_.segment_lists) {
        for (const Segment& segment : segments) {
            for (const Instruction& instruction : program_.bodies[segment.body].instructions) {
                if (!instruction.is_communication) continue;
                if (is_pipeline(instruction.stream)) {
                    int& peer = partners.peers[instruction.stream];
                    if (peer < 0) peer = static_cast<int>(program_.peer_of(instruction.stream, rank_));
                } else {
                    used[instruction.communication.axis] = true;
                }
            }
        }
    }
    // Every rank creates its groups in the order of the axes. The members of a group run the same communications, so
    // all of them find the axis in use.
    for (const GroupAxis axis : program::kAxes) {
        if (!used[axis]) continue;
        for (const std::int64_t member : program_.group_of(axis, rank_)) {
            partners.members[axis].push_back(static_cast<int>(member));
        }
    }
    return partners;
}

void Interpreter::initialise_weights() {
    const UpdateOperator update = update_operator_of(program_, class_);
    for (const program::Parameter& parameter : class_.parameters) {
        recorder_.count_instruction();
        initialise(parameter, update);
    }
}

void Interpreter::initialise(const program::Parameter& parameter, const UpdateOperator& update) {
    const auto fill = [&](DType dtype, std::int64_t first, std::int64_t count, std::byte* host) {
        for_each_initial_row(parameter.decl, layer_prefix(parameter.name, parameter.decl), place_of(program_, rank_),
                             program_.plan->training.seed, first, count,
                             [&](std::int64_t at, std::span<const float> row) {
                                 std::byte* to = host + at * size_of(dtype);
                                 const auto elements = static_cast<std::int64_t>(row.size());
                                 if (dtype == DType::bf16) {
                                     kernels::cast_to_bf16(elements, row.data(), reinterpret_cast<std::uint16_t*>(to));
                                 } else {
                                     std::memcpy(to, row.data(), row.size_bytes());
                                 }
                             });
    };
    const DType dtype = parameter.decl.dtype;
    const std::int64_t element_bytes = size_of(dtype);
    const bool at_rest = class_.shard_elements > 0 && !class_.parameter_shards_alias;
    if (!at_rest) {
        backend_.write(arena_->parameters() + parameter.offset * element_bytes, parameter.elements * element_bytes,
                       [&](std::byte* host) { fill(dtype, 0, parameter.elements, host); });
    }
    // The optimizer's copies of the parameters (host copies, master weights) start with the same values.
    const bool copied = update.op != nullptr && update.op->offloaded && !arena_->parameters_rest_on_host();
    const program::Slot* const copies = copied ? update.out(0) : nullptr;
    const program::Slot* const masters = update.out(4);
    for (const ShardPiece& part : shards_.parts_of(parameter)) {
        const auto write = [&](std::byte* to, DType type) {
            backend_.write(to, part.elements * size_of(type),
                           [&](std::byte* host) { fill(type, part.flat - parameter.offset, part.elements, host); });
        };
        const auto write_state = [&](const program::Slot* slot) {
            if (slot == nullptr) return;
            const DType type = slot->decl.dtype;
            write(static_cast<std::byte*>(arena_->flat_address(*slot)) +
                      shards_.state_place(part, part.flat) * size_of(type),
                  type);
        };
        if (at_rest) write(arena_->parameters_at_rest(part), arena_->resting_dtype());
        write_state(copies);
        write_state(masters);
    }
}

void Interpreter::fill_samples(std::int64_t step, std::int32_t micro_batch) {
    // Micro-batch i of data-parallel rank d holds the samples (i * dp + d) * b + j of the step's global batch, j < b.
    const program::Plan& plan = *program_.plan;
    const std::int64_t b = plan.training.micro_batch_size;
    const std::int64_t first = (first_step_ + step) * plan.training.global_batch_size +
                               (micro_batch * plan.parallelism.dp + coordinates_.dp) * b;
    for (std::int64_t j = 0; j < b; ++j) samples_[static_cast<std::size_t>(j)] = first + j;
}

OperatorPointers Interpreter::pointers_of(const Cursor& at, const Body& body, const models::Operator& op) const {
    return bind(
        op, [&](models::SlotIndex slot) -> const models::SlotDecl& { return body.slots[slot].decl; },
        [&](models::SlotIndex slot) {
            return op.works_on_updates() ? arena_->flat_address(body.slots[slot])
                                         : arena_->address(body.slots[slot], body.phase, *at.segment, *at.action);
        });
}

void Interpreter::run_operators(const Cursor& at, const Body& body, const Instruction& instruction,
                                OperationTimes& times) {
    bound_.clear();
    context_.layer = at.segment->layer;
    for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
        const models::Operator& op = body.operators[instruction.first_operator + o];
        bound_.push_back({&op, pointers_of(at, body, op)});
    }
    const std::int64_t sequence = backend_.run(
        {.stream = instruction.stream, .operators = bound_, .after = dependencies_of(at, *at.call), .times = &times},
        context_);
    ORRERY_CHECK(sequence == at.posted[instruction.stream], "a stream's operations are out of step");
    check_results(at);
}

void Interpreter::check_results(const Cursor& at) const {
    for (const BoundOperator& one : bound_) {
        if (one.op->kind != models::OpKind::gradient_norm || program_.plan->training.precision.loss_scaling) continue;
        const auto* squares = static_cast<const double*>(one.at.out[0]);
        if (backend_.is_synchronous()) {
            check_gradient_norm(*squares, one.at.in_dtype[0], first_step_ + at.step, class_, *arena_, shards_);
        } else {
            backend_.fetch(squares, &at.pending->gradient_squares);
        }
    }
    if (backend_.is_synchronous()) check_loss(*arena_->loss(), first_step_ + at.step, class_, *arena_, shards_);
}

/// The step has already updated the parameters, so that nothing shows which element was the first.
void Interpreter::check_finite(const PendingStep& done) const {
    const std::string step = " of step " + std::to_string(first_step_ + done.step) + " is not finite";
    if (!std::isfinite(done.result.loss_sum)) throw JobError("the loss" + step);
    if (!std::isfinite(done.gradient_squares)) throw JobError("the gradient norm" + step);
}

void Interpreter::poison_first_parameter() {
    constexpr int kNan = 0xFF;  // in each byte: NaN in every type
    if (shards_.pieces().empty()) return;
    const std::int64_t bytes = size_of(arena_->resting_dtype());
    backend_.write(arena_->parameters_at_rest(shards_.pieces().front()), bytes,
                   [&](std::byte* host) { std::memset(host, kNan, static_cast<std::size_t>(bytes)); });
}

Dependencies Interpreter::dependencies_of(const Cursor& at, const program::Call& call) const {
    Dependencies after{};
    for (const program::Event& event : program::events_of(trace_, call)) {
        const std::int64_t steps_before = at.step - event.steps_back;
        if (steps_before < 0) continue;
        std::int64_t& sequence = after[event.stream];
        sequence = std::max(sequence, steps_before * trace_.count_on(event.stream) + event.count);
    }
    return after;
}

void Interpreter::post(const Cursor& at, const Body& body, const Instruction& instruction, OperationTimes& times) {
    const program::Communication& communication = instruction.communication;
    const auto address = [&](models::SlotIndex slot) -> void* {
        if (slot == models::kNoSlot) return nullptr;
        return arena_->address(body.slots[slot], body.phase, *at.segment, *at.action);
    };
    Operation operation{.kind = communication.kind,
                        .reduce = communication.reduce,
                        .dtype = communication.dtype,
                        .elements = communication.elements,
                        .in = address(communication.in),
                        .out = address(communication.out),
                        .root = communication.root,
                        .accumulates = communication.accumulates,
                        .consumes = communication.consumes,
                        .after = dependencies_of(at, *at.call),
                        .times = &times};
    if (communication.send_counts != models::kNoSlot) {
        const auto limit = [&](models::SlotIndex slot) {
            return body.slots[slot].bytes / size_of(communication.dtype);
        };
        const models::SlotDecl& counts = body.slots[communication.send_counts].decl;
        operation.counts = {.send = static_cast<const std::int64_t*>(address(communication.send_counts)),
                            .receive = static_cast<const std::int64_t*>(address(communication.receive_counts)),
                            .send_limit = limit(communication.in),
                            .receive_limit = limit(communication.out),
                            .counts_per_member = counts.elements() / program_.mesh->group_size(communication.axis),
                            .elements_per_count = communication.row_elements,
                            .advice = "raise /training/expert_load/largest in the plan"};
    }
    if (is_pipeline(instruction.stream)) {
        operation.peer = partners_.peers[instruction.stream];
    } else {
        operation.group = groups_[communication.axis];
        // A communicator runs one operation at a time, even if they are on different streams.
        OnStream& before = latest_on_axis_[communication.axis];
        std::int64_t& after = operation.after[before.stream];
        if (before.stream != instruction.stream) after = std::max(after, before.sequence);
        before = {instruction.stream, at.posted[instruction.stream]};
    }
    const std::int64_t sequence = backend_.post(instruction.stream, operation);
    ORRERY_CHECK(sequence == at.posted[instruction.stream], "a stream's operations are out of step");
}

void Interpreter::wait_for_computation(const Cursor& at) {
    backend_.wait(Stream::compute, at.posted[Stream::compute]);
    const program::Call* const end = trace_.calls.data() + trace_.calls.size();
    const program::Call* const first = std::find_if(at.call, end, [&](const program::Call& call) {
        return call.stream == Stream::compute || call.action != at.call->action;
    });
    if (first == end || first->action != at.call->action) return;
    const Dependencies after = dependencies_of(at, *first);
    for (const Stream stream : program::kStreams) {
        // Instructions that this action has not issued yet are left out: waiting for them would never end.
        if (after[stream] > 0) backend_.wait(stream, std::min(after[stream], at.posted[stream]));
    }
}

void Interpreter::finish_transfers() {
    backend_.wait_all();
    for (const PendingStep* const one : unchecked_) check_finite(*one);
}

RunTimes Interpreter::run(std::int64_t steps, const StepHooks& hooks) {
    RunTimes result;
    std::deque<std::unique_ptr<PendingStep>> kept;  // the backend writes to a step until the step has been waited for
    const std::int64_t ahead = backend_.is_synchronous() ? 0 : kStepsAhead;
    const auto finish = [&](std::int64_t steps_ago) {
        const PendingStep& done = *kept[kept.size() - 1 - static_cast<std::size_t>(steps_ago)];
        if (ahead > 0) {
            wait_for_step(done.step);
            check_finite(done);
            unchecked_.pop_front();
        }
        recorder_.finish_step(done.result.loss_sum);
    };
    std::int64_t step = 0;
    for (; step < steps; ++step) {
        if (!recorder_.begin_step(first_step_ + step) || (hooks.ends_before && hooks.ends_before(step))) {
            recorder_.stop();
            break;
        }
        kept.push_back(std::make_unique<PendingStep>());
        kept.back()->step = step;
        if (ahead > 0) unchecked_.push_back(kept.back().get());
        run_step(*kept.back(), hooks.before_optimizer);
        if (step >= ahead) finish(ahead);
        if (hooks.after && hooks.after(step)) kept.back()->result.paused_until_ns = now_ns();
        if (static_cast<std::int64_t>(kept.size()) > kStepsWithSpans) {
            wait_for_step(kept.front()->step);
            const StepTimes& times = kept.front()->result;
            result.steps.push_back({.begin_ns = times.begin_ns,
                                    .end_ns = times.end_ns,
                                    .paused_until_ns = times.paused_until_ns,
                                    .loss_sum = times.loss_sum});
            kept.pop_front();
        }
    }
    backend_.wait_all();  // for instance the sends of the last step, which no instruction waits for
    for (std::int64_t left = std::min(ahead, step); left > 0; --left) finish(left - 1);
    for (const auto& one : kept) result.steps.push_back(with_spans(*one));
    for (const Stream stream : program::kStreams) {
        result.bytes_sent[stream] = backend_.bytes_sent(stream);
        for (const program::CommKind kind : enum_values<program::CommKind, program::kCommKinds>()) {
            const std::int64_t bytes = backend_.bytes_sent_by(stream, kind);
            if (bytes > 0) result.collectives.push_back({stream, kind, bytes});
        }
    }
    return result;
}

StepTimes Interpreter::with_spans(PendingStep& pending) const {
    // The step begins when its first instruction is ready. On an asynchronous stream that may be before the stamp.
    for (const OperationTimes& times : pending.times) {
        pending.result.begin_ns = std::min(pending.result.begin_ns, times.ready_ns);
    }
    const auto since_begin = [&](std::int64_t ns) {
        return (ns - pending.result.begin_ns) * kPicosecondsPerNanosecond;
    };
    std::vector<program::Span>& spans = pending.result.spans;
    for (std::size_t i = 0; i < spans.size(); ++i) {
        spans[i].ready_ps = since_begin(pending.times[i].ready_ns);
        spans[i].begin_ps = since_begin(pending.times[i].begin_ns);
        spans[i].end_ps = since_begin(pending.times[i].end_ns);
    }
    return std::move(pending.result);
}

void Interpreter::wait_for_step(std::int64_t step) {
    for (const Stream stream : program::kStreams) backend_.wait(stream, (step + 1) * trace_.count_on(stream));
}

void Interpreter::run_step(PendingStep& pending, const std::function<void(std::int64_t)>& before_optimizer) {
    StepTimes& result = pending.result;
    const std::int64_t step = pending.step;
    pending.times.resize(trace_.calls.size());  // never resized again: the backend holds pointers to its elements
    result.spans.reserve(trace_.calls.size());
    context_.optimizer.step = first_step_ + step + 1;

    Cursor at{.step = step, .pending = &pending};
    for (const Stream stream : program::kStreams) at.posted[stream] = step * trace_.count_on(stream);
    backend_.clear(arena_->loss(), sizeof(double));
    backend_.stamp(&result.begin_ns);
    bool updates = false;
    for (const program::Call& call : trace_.calls) {
        const Action& action = class_.actions[call.action];
        const bool begins = at.action != &action;
        at.call = &call;
        at.action = &action;
        at.segment = &class_.segment_lists[action.segments][call.segment];
        at.place = {call.action.value(), call.segment.value(), call.instruction.value()};
        if (begins && action.micro_batch >= 0) fill_samples(step, action.micro_batch);
        if (begins && action.kind == program::ActionKind::optimizer_step && before_optimizer) {
            wait_for_computation(at);
            before_optimizer(step);
            updates = true;
        }
        ++at.posted[call.stream];
        OperationTimes& times = pending.times[result.spans.size()];
        result.spans.push_back({.action = call.action, .segment = call.segment, .instruction = call.instruction});
        issue(at, program_.bodies[call.body], instruction_of(program_, call), times);
    }
    // The hook is collective: ranks without an optimizer step call it, too.
    if (before_optimizer && !updates) before_optimizer(step);
    backend_.stamp(&result.end_ns);
    backend_.fetch(arena_->loss(), &result.loss_sum);
}

void Interpreter::issue(Cursor& at, const Body& body, const Instruction& instruction, OperationTimes& times) {
    if (watch_.begin(first_step_ + at.step, at.place, instruction.is_communication)) poison_first_parameter();
    if (instruction.is_communication) {
        post(at, body, instruction, times);
    } else {
        run_operators(at, body, instruction, times);
    }
    watch_.end(first_step_ + at.step, at.place, instruction.is_communication);
}

}  // namespace orrery::exec
