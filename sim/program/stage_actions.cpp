#include "sim/program/stage_actions.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace orrery::program {
namespace {

using Kind = ComputeTask::Kind;

}  // namespace

StageActions::StageActions(const std::vector<ComputeTask>& order, const StageLists& lists, const ScheduleShape& shape,
                           const TaskTimeline& timeline, TransferRules rules, RankClass& result)
    : order_(order),
      lists_(lists),
      shape_(shape),
      timeline_(timeline),
      rules_(rules),
      result_(result),
      tracker_(lists.orders),
      ends_(end_tasks(order, lists.chunks.size())) {}

/// Lists the step twice. The second time the waits refer to the first as the previous step, as in steady state.
void StageActions::list() {
    result_.actions.reserve(3 * order_.size());  // a task, what it receives and what it sends
    list_step();
    is_previous_step_ = false;
    tracker_.next_step();
    result_.actions.clear();
    result_.waits.clear();
    list_step();
    for (const ChunkIndex c : frames_.indices()) result_.chunks[c].frame_count = frames_[c].high_water();
    result_.input_boundary_count = inputs_.high_water();
    result_.forward_boundary_count = outputs_.high_water();
    result_.backward_boundary_count = gradients_.high_water();
}

void StageActions::start_step() {
    std::int32_t micro_batches = 0;
    for (const ComputeTask& task : order_) micro_batches = std::max(micro_batches, task.micro_batch + 1);
    const bool up = std::ranges::any_of(result_.chunks, &Chunk::up);
    const bool receives = std::ranges::any_of(lists_.chunks, &ChunkLists::receives);
    const bool sends = std::ranges::any_of(lists_.chunks, &ChunkLists::sends);
    held_.assign(lists_.chunks.size(), std::vector<Held>(static_cast<std::size_t>(micro_batches)));
    frames_.assign(lists_.chunks.size(), SlotPool{});
    // Two outputs, so that one is sent while the next is computed. Three gradients: one arrives, one is in use and one
    // is sent. With two flows in opposite directions each has its own number, so that a stalled flow cannot block the
    // other.
    const std::int32_t flows = up ? 2 : 1;
    inputs_ = TimedPool(0);
    outputs_ = TimedPool(flows * std::min(2, micro_batches));
    gradients_ = TimedPool(flows * std::min(1 + (receives ? 1 : 0) + (sends ? 1 : 0), micro_batches));
    sends_in_flight_.clear();
}

void StageActions::list_step() {
    start_step();
    for (std::size_t t = 0; t < order_.size(); ++t) {
        const ComputeTask& task = order_[t];
        const EndTasks& ends = ends_[task.chunk];
        now_ = t;
        post_receive(t);
        if (overlaps_next()) post_receive(t + 1);
        // A scattered transfer ends with an all-gather over tp, which would block the tp stream until the parts arrive,
        // so it is not posted ahead.
        const bool in_parts = t + 1 < order_.size() && lists_.chunks[order_[t + 1].chunk].scatters_transfers;
        if (rules_.posts_receives_ahead && t + 1 < order_.size() && !in_parts) post_receive(t + 1);
        const bool first = t == ends.first_forward, last = t == ends.last_backward;
        const bool vocabulary = lists_.chunks[task.chunk].is_vocabulary;
        if (task.kind == Kind::forward) vocabulary ? vocabulary_forward(task, first) : forward(task, first);
        if (task.kind == Kind::backward) vocabulary ? vocabulary_backward(task, last) : backward(task, last);
        if (task.kind == Kind::backward_input) backward_input(task);
        if (task.kind == Kind::backward_weight) backward_weight(task, last);
    }
    if (lists_.sync != kNoList) emit({.kind = ActionKind::sync_gradients, .segments = lists_.sync});
    emit({.kind = ActionKind::optimizer_step, .segments = lists_.optimizer});
}

ChunkIndex StageActions::neighbour_chunk(ChunkIndex chunk, std::int64_t shift) const {
    const Chunk& here = result_.chunks[chunk];
    const StageHolder holder = stage_holder(shape_, here.virtual_stage + shift, here.direction);
    ORRERY_CHECK(holder.rank == result_.pp_index, "the adjacent virtual stage is on another rank");
    return holder.chunk;
}

Action StageActions::action_of(ActionKind kind, const ComputeTask& task, SegmentListId segments, const Held& bound) {
    return {.kind = kind,
            .chunk = task.chunk,
            .micro_batch = task.micro_batch,
            .segments = segments,
            .activation_frame = bound.frame,
            .input_boundary = bound.input,
            .forward_boundary = bound.output,
            .backward_boundary = bound.gradient,
            .gradient_out = bound.gradient_out};
}

void StageActions::post_receive(std::size_t index) {
    const ComputeTask& task = order_[index];
    const ChunkLists& lists = lists_.chunks[task.chunk];
    Held& here = held(task);
    const double posted = timeline_.posted(result_.pp_index, index);
    if (task.kind == Kind::forward && lists.receives && here.input < 0) {
        here.input = inputs_.take(posted);
        emit(action_of(ActionKind::recv_forward, task, lists.recv_forward.list, {.input = here.input}));
    }
    const bool needs_gradient = task.kind == Kind::backward || task.kind == Kind::backward_input;
    if (needs_gradient && lists.sends && here.gradient < 0) {
        here.gradient = gradients_.take(posted);
        emit(action_of(ActionKind::recv_backward, task, lists.recv_backward.list, {.gradient = here.gradient}));
    }
}

void StageActions::forward(const ComputeTask& task, bool first) {
    const ChunkLists& lists = lists_.chunks[task.chunk];
    Held& here = held(task);
    here.frame = frames_[task.chunk].take();
    std::int32_t output = -1;
    if (lists.output_stays) {
        output = held(neighbour_chunk(task.chunk, 1), task.micro_batch).input = inputs_.take(begins());
    } else if (lists.sends || lists.output_goes_everywhere) {
        output = outputs_.take(begins());
        if (lists.output_goes_everywhere) here.output = output;
    }
    std::vector<ActionUse> more;
    if (overlaps_next()) {  // the block begins when the inputs of both tasks have arrived
        const std::int32_t gradient = held(order_[now_ + 1]).gradient;
        if (gradient >= 0) more.push_back({.memory = {Region::backward_boundary, 0, gradient}});
    }
    Action action = action_of(ActionKind::forward, task, first ? lists.forward_first : lists.forward,
                              {.frame = here.frame, .input = here.input, .output = output});
    action.output_stays = lists.output_stays;
    if (overlaps_next() && lists_.takes_turns) {
        paused_forward_ = action;
    } else {
        emit(action, more);
    }
    if (!lists.sends) return;
    const Action send = action_of(ActionKind::send_forward, task, lists.send_forward.list, {.output = output});
    if (overlaps_next()) {
        deferred_.push_back(send);
    } else {
        emit(send);
    }
    outputs_.give_back(output, timeline_.arrival(result_.pp_index, now_));
}

/// S, or the embedding lookup.
void StageActions::vocabulary_forward(const ComputeTask& task, bool first) {
    const ChunkLists& lists = lists_.chunks[task.chunk];
    Held& here = held(task);
    Held& blocks = held(0, task.micro_batch);
    const bool is_input = task.chunk == kInputChunk;
    here.frame = frames_[task.chunk].take();
    Action action =
        action_of(ActionKind::forward, task, first ? lists.forward_first : lists.forward, {.frame = here.frame});
    if (lists.is_root && is_input) {
        // On the side stream the sum may arrive as soon as the other ranks have looked up, one round early.
        constexpr double kRound = 4;
        blocks.input = inputs_.take(lists.uses_side ? begins() - kRound : begins());
        action.forward_boundary = blocks.input;
        action.output_stays = true;
    } else if (lists.is_root) {
        action.forward_boundary = blocks.output;
        if (rules_.gradient_from_forward) action.backward_boundary = blocks.gradient = gradients_.take(begins());
    }
    emit(action);
    if (lists.is_root && !is_input) outputs_.give_back(std::exchange(blocks.output, -1), ends());
    if (lists.backward == kNoList) frames_[task.chunk].give_back(here.frame);
}

/// T, or the gradient of the embedding.
void StageActions::vocabulary_backward(const ComputeTask& task, bool last) {
    const ChunkLists& lists = lists_.chunks[task.chunk];
    Held& here = held(task);
    const bool takes_gradient = lists.is_root && task.chunk == kInputChunk;
    std::int32_t gradient = takes_gradient ? here.gradient : -1;
    if (lists.is_root && !takes_gradient && !rules_.gradient_from_forward) {
        gradient = held(0, task.micro_batch).gradient = gradients_.take(begins());
    }
    emit(action_of(ActionKind::backward, task, last ? lists.backward_last : lists.backward,
                   {.frame = here.frame, .gradient = gradient}));
    frames_[task.chunk].give_back(here.frame);
    if (takes_gradient) gradients_.give_back(here.gradient, ends());
}

/// Passes the gradient of the task's input on: to the vocabulary's input part or the previous chunk on this rank, or by
/// a send.
void StageActions::pass_gradient_on(const ComputeTask& task, std::int32_t gradient) {
    const ChunkLists& lists = lists_.chunks[task.chunk];
    if (lists_.chunks.back().is_vocabulary && lists_.chunks.back().is_root) {
        held(kInputChunk, task.micro_batch).gradient = gradient;
    } else if (lists.input_stays) {
        held(neighbour_chunk(task.chunk, -1), task.micro_batch).gradient = gradient;
    } else if (lists.receives) {
        emit(action_of(ActionKind::send_backward, task, lists.send_backward.list,
                       {.gradient = gradient, .gradient_out = gradient}));
        gradients_.give_back(gradient, timeline_.arrival(result_.pp_index, now_));
    } else {
        gradients_.give_back(gradient, ends());
    }
}

void StageActions::backward(const ComputeTask& task, bool last) {
    const ChunkLists& lists = lists_.chunks[task.chunk];
    Held& here = held(task);
    std::int32_t leaving = -1;
    if (!lists.splits_backward()) {
        // The gradient was received or comes from the next chunk on this rank. At the head the pass itself fills it.
        if (here.gradient < 0) here.gradient = gradients_.take(begins());
        leaving = here.gradient;
    } else if (lists.has_hidden_input) {
        leaving = here.gradient_out = gradients_.take(begins());
    }
    const Action action = action_of(ActionKind::backward, task, last ? lists.backward_last : lists.backward, here);
    if (task.overlaps_previous && lists_.takes_turns) {
        emit_in_turns(paused_forward_, action);
    } else {
        std::vector<ActionUse> more;
        if (task.overlaps_previous) more.push_back({.token = ActionUse::Token::block, .write = true});
        emit(action, more);
    }
    for (const Action& send : deferred_) {
        emit(send,
             {{{.token = ActionUse::Token::block, .streams = only(lists_.chunks[send.chunk].send_forward.stream)}}});
    }
    deferred_.clear();
    frames_[task.chunk].give_back(here.frame);
    if (lists.has_hidden_input) inputs_.give_back(here.input, ends());
    if (lists.splits_backward() && here.gradient >= 0) gradients_.give_back(here.gradient, ends());
    if (leaving >= 0) pass_gradient_on(task, leaving);
}

/// Issues the two passes of a block part by part in turns, so that each computes while the other's tokens travel. The
/// backward begins: its first part is short, and from then on parts with attention and parts with experts take turns.
void StageActions::emit_in_turns(const Action& forward, const Action& backward) {
    std::vector<Action> turns;
    const auto add = [&](const Action& pass, std::size_t turn) {
        const std::vector<SegmentListId>& parts = lists_.parts.at(pass.segments);
        if (turn >= parts.size()) return;
        Action& part = turns.emplace_back(pass);
        part.segments = parts[turn];
        part.part = static_cast<std::int32_t>(turn);
        part.part_count = static_cast<std::int32_t>(parts.size());
    };
    const std::size_t count =
        std::max(lists_.parts.at(forward.segments).size(), lists_.parts.at(backward.segments).size());
    for (std::size_t turn = 0; turn < count; ++turn) {
        add(backward, turn);
        add(forward, turn);
    }
    for (std::size_t i = 0; i < turns.size(); ++i) {
        std::vector<ActionUse> more;
        if (i == 0 && forward.input_boundary >= 0) {  // the block begins when the inputs of both passes have arrived
            more.push_back({.memory = {Region::input_boundary, 0, forward.input_boundary}});
        }
        if (i + 1 == turns.size()) more.push_back({.token = ActionUse::Token::block, .write = true});
        emit(turns[i], more);
    }
}

void StageActions::backward_input(const ComputeTask& task) {
    const ChunkLists& lists = lists_.chunks[task.chunk];
    Held& here = held(task);
    if (lists.has_hidden_input) here.gradient_out = gradients_.take(begins());
    emit(action_of(ActionKind::backward_input, task, lists.backward_input, here));
    if (here.gradient >= 0 && !lists.weight_reads_gradient) gradients_.give_back(here.gradient, ends());
    if (lists.has_hidden_input && !lists.weight_reads_input) inputs_.give_back(here.input, ends());
    if (here.gradient_out >= 0) pass_gradient_on(task, here.gradient_out);
}

void StageActions::backward_weight(const ComputeTask& task, bool last) {
    const ChunkLists& lists = lists_.chunks[task.chunk];
    const Held& here = held(task);
    const Held bound{.frame = here.frame,
                     .input = lists.weight_reads_input ? here.input : -1,
                     .gradient = lists.weight_reads_gradient ? here.gradient : -1};
    emit(
        action_of(ActionKind::backward_weight, task, last ? lists.backward_weight_last : lists.backward_weight, bound));
    frames_[task.chunk].give_back(bound.frame);
    if (bound.gradient >= 0) gradients_.give_back(bound.gradient, ends());
    if (bound.input >= 0) inputs_.give_back(bound.input, ends());
}

void StageActions::add_orders_beyond_memory(ActionKind kind) {
    using Token = ActionUse::Token;
    const auto add = [&](Token token, bool write, StreamSet streams) {
        more_.push_back({.token = token, .streams = streams, .write = write});
    };
    constexpr StreamSet kCompute = only(Stream::compute), kReductions = only(Stream::dp) | only(Stream::dp_replicate);
    const bool is_optimizer = kind == ActionKind::optimizer_step;
    if (is_backward(kind)) add(Token::reduced_gradients, false, kCompute | kReductions);
    if (kind == ActionKind::sync_gradients) {
        add(Token::reduced_gradients, true, kCompute | only(Stream::tp) | kReductions);
    }
    if (is_optimizer) {
        add(Token::reduced_gradients, true, kCompute | (lists_.checks_update ? only(Stream::dp) : 0));
    }
    if (!lists_.gathers_units || !(is_pass(kind) || is_optimizer)) return;
    if (!is_optimizer) add(Token::gathered_units, true, only(Stream::dp_gather) | only(Stream::copy_in));
    add(Token::gathered_units, false, kCompute);
}

void StageActions::emit(Action action, std::span<const ActionUse> more) {
    more_.assign(more.begin(), more.end());
    add_orders_beyond_memory(action.kind);
    const ActionIndex index = result_.actions.next_index();
    action.first_wait = static_cast<std::int32_t>(result_.waits.size());
    if (is_previous_step_) {
        tracker_.note(index, action, more_);
    } else {
        action.wait_count = tracker_.add(index, action, more_, result_.waits);
    }
    if (!rules_.posts_receives_ahead) {
        // The vocabulary's passes come before the fused call that sends the output of the blocks, so they do not wait.
        const bool last = action.kind == ActionKind::optimizer_step;
        const bool is_vocabulary = is_pass(action.kind) && lists_.chunks[action.chunk].is_vocabulary;
        if (action.kind == ActionKind::send_forward || action.kind == ActionKind::send_backward) {
            const ChunkLists& lists = lists_.chunks[action.chunk];
            const Transfer& send = action.kind == ActionKind::send_forward ? lists.send_forward : lists.send_backward;
            sends_in_flight_.push_back({index, send.stream, now_});
        } else if ((is_pass(action.kind) || last) && !is_vocabulary) {
            for (const SendInFlight& send : sends_in_flight_) {
                if (!last && !timeline_.awaits_send(result_.pp_index, now_, send.task)) continue;
                result_.waits.push_back({send.action, send.stream, 0, 1U << static_cast<unsigned>(Stream::compute)});
                ++action.wait_count;
            }
            sends_in_flight_.clear();
        }
    }
    result_.actions.push_back(action);
}

}  // namespace orrery::program
