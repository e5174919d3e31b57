#include "sim/program/stage_actions.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::program {
namespace {

using Kind = ComputeTask::Kind;

bool is_compute(ActionKind kind) {
    return kind == ActionKind::forward || kind == ActionKind::backward || kind == ActionKind::backward_input ||
           kind == ActionKind::backward_weight || kind == ActionKind::optimizer_step;
}

}  // namespace

StageActions::StageActions(const std::vector<ComputeTask>& order, const StageLists& lists, const ScheduleShape& shape,
                           const TaskTimeline& timeline, TransferRules rules, RankClass& result)
    : order_(order),
      lists_(lists),
      shape_(shape),
      timeline_(timeline),
      rules_(rules),
      result_(result),
      tracker_(lists.orders) {
    find_ends();
}

void StageActions::find_ends() {
    ends_.resize(lists_.chunks.size());
    IndexedVector<ChunkIndex, bool> seen(ends_.size(), false);
    for (std::size_t t = 0; t < order_.size(); ++t) {
        const ChunkIndex c = order_[t].chunk;
        if (order_[t].kind == Kind::forward) {
            if (!seen[c]) ends_[c].first_forward = t;
            seen[c] = true;
        } else if (order_[t].kind != Kind::backward_input) {
            ends_[c].last_backward = t;
        }
    }
}

/// Lists the step twice. The second time the waits refer to the first as the previous step, as in steady state.
void StageActions::list() {
    list_step();
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
    bool sends = false, receives = false, up = false;
    for (const Chunk& chunk : result_.chunks) up = up || chunk.up;
    for (const ComputeTask& task : order_) micro_batches = std::max(micro_batches, task.micro_batch + 1);
    for (const ChunkLists& chunk : lists_.chunks) {
        sends = sends || chunk.sends;
        receives = receives || chunk.receives;
    }
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
        const Ends& ends = ends_[task.chunk];
        now_ = t;
        post_receive(t);
        if (overlaps_next()) post_receive(t + 1);
        // A scattered transfer ends with an all-gather over tp, which would block the tp stream until the parts arrive,
        // so it is not posted ahead.
        const bool in_parts = t + 1 < order_.size() && lists_of(order_[t + 1]).scatters_transfers;
        if (rules_.posts_receives_ahead && t + 1 < order_.size() && !in_parts) post_receive(t + 1);
        switch (task.kind) {
            case Kind::forward:
                if (lists_of(task).is_vocabulary) {
                    vocabulary_forward(task, t == ends.first_forward);
                } else {
                    forward(task, t == ends.first_forward);
                }
                break;
            case Kind::backward:
                if (lists_of(task).is_vocabulary) {
                    vocabulary_backward(task, t == ends.last_backward);
                } else {
                    backward(task, t == ends.last_backward);
                }
                break;
            case Kind::backward_input:
                backward_input(task);
                break;
            case Kind::backward_weight:
                backward_weight(task, t == ends.last_backward);
                break;
        }
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

void StageActions::post_receive(std::size_t index) {
    const ComputeTask& task = order_[index];
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    const double posted = timeline_.posted(result_.pp_index, index);
    if (task.kind == Kind::forward && lists.receives && here.input < 0) {
        here.input = inputs_.take(posted);
        emit({.kind = ActionKind::recv_forward,
              .chunk = task.chunk,
              .micro_batch = task.micro_batch,
              .segments = lists.recv_forward,
              .input_boundary = here.input});
    }
    const bool needs_gradient = task.kind == Kind::backward || task.kind == Kind::backward_input;
    if (needs_gradient && lists.sends && here.gradient < 0) {
        here.gradient = gradients_.take(posted);
        emit({.kind = ActionKind::recv_backward,
              .chunk = task.chunk,
              .micro_batch = task.micro_batch,
              .segments = lists.recv_backward,
              .backward_boundary = here.gradient});
    }
}

void StageActions::forward(const ComputeTask& task, bool first) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    here.frame = frames_[task.chunk].take();
    std::int32_t output = -1;
    if (lists.output_stays) {
        output = held(neighbour_chunk(task.chunk, 1), task.micro_batch).input = inputs_.take(begins());
    } else if (lists.sends || lists.output_goes_everywhere) {
        output = here.output = outputs_.take(begins());
    }
    std::vector<ActionUse> more;
    if (overlaps_next()) {  // the block begins when the inputs of both tasks have arrived
        const std::int32_t gradient = held(order_[now_ + 1]).gradient;
        if (gradient >= 0) more.push_back({.memory = {Region::backward_boundary, 0, gradient}});
    }
    emit({.kind = ActionKind::forward,
          .chunk = task.chunk,
          .micro_batch = task.micro_batch,
          .segments = first ? lists.forward_first : lists.forward,
          .activation_frame = here.frame,
          .input_boundary = here.input,
          .forward_boundary = output,
          .output_stays = lists.output_stays},
         more);
    if (!lists.sends) return;
    const Action send{.kind = ActionKind::send_forward,
                      .chunk = task.chunk,
                      .micro_batch = task.micro_batch,
                      .segments = lists.send_forward,
                      .forward_boundary = output};
    if (overlaps_next()) {
        deferred_.push_back(send);
    } else {
        emit(send);
    }
    outputs_.give_back(output, timeline_.arrival(result_.pp_index, now_));
}

/// S, or the embedding lookup.
void StageActions::vocabulary_forward(const ComputeTask& task, bool first) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    Held& blocks = held(0, task.micro_batch);
    here.frame = frames_[task.chunk].take();
    Action action{.kind = ActionKind::forward,
                  .chunk = task.chunk,
                  .micro_batch = task.micro_batch,
                  .segments = first ? lists.forward_first : lists.forward,
                  .activation_frame = here.frame};
    if (lists.is_root && task.chunk == kInputChunk) {
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
    if (lists.is_root && task.chunk == kOutputChunk) outputs_.give_back(blocks.output, ends());
    if (lists.backward == kNoList) frames_[task.chunk].give_back(here.frame);
}

/// T, or the gradient of the embedding.
void StageActions::vocabulary_backward(const ComputeTask& task, bool last) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    Action action{.kind = ActionKind::backward,
                  .chunk = task.chunk,
                  .micro_batch = task.micro_batch,
                  .segments = last ? lists.backward_last : lists.backward,
                  .activation_frame = here.frame};
    if (lists.is_root && task.chunk == kInputChunk) {
        action.backward_boundary = here.gradient;
    } else if (lists.is_root && !rules_.gradient_from_forward) {
        action.backward_boundary = held(0, task.micro_batch).gradient = gradients_.take(begins());
    }
    emit(action);
    frames_[task.chunk].give_back(here.frame);
    if (lists.is_root && task.chunk == kInputChunk) gradients_.give_back(here.gradient, ends());
}

/// Makes sure that the task has a buffer for the gradient of its output: a received one, one from the next chunk on
/// this rank, or, at the head, a new one that the pass itself fills.
void StageActions::take_gradient(const ComputeTask& task) {
    Held& here = held(task);
    if (here.gradient < 0) here.gradient = gradients_.take(begins());
}

void StageActions::pass_gradient_on(const ComputeTask& task, std::int32_t gradient) {
    const ChunkLists& lists = lists_of(task);
    const bool to_lookup = lists_.chunks.back().is_vocabulary && lists_.chunks.back().is_root;
    if (to_lookup) {
        held(kInputChunk, task.micro_batch).gradient = gradient;
        return;
    }
    if (lists.input_stays) {
        held(neighbour_chunk(task.chunk, -1), task.micro_batch).gradient = gradient;
        return;
    }
    if (lists.receives) {
        emit({.kind = ActionKind::send_backward,
              .chunk = task.chunk,
              .micro_batch = task.micro_batch,
              .segments = lists.send_backward,
              .backward_boundary = gradient,
              .gradient_out = gradient});
        gradients_.give_back(gradient, timeline_.arrival(result_.pp_index, now_));
        return;
    }
    gradients_.give_back(gradient, ends());
}

void StageActions::backward(const ComputeTask& task, bool last) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    std::int32_t leaving = -1;
    if (!lists.splits_backward) {
        take_gradient(task);
        leaving = here.gradient;
    } else if (lists.has_hidden_input) {
        leaving = here.gradient_out = gradients_.take(begins());
    }
    std::vector<ActionUse> more;
    if (task.overlaps_previous) more.push_back({.token = ActionUse::Token::block, .write = true});
    emit({.kind = ActionKind::backward,
          .chunk = task.chunk,
          .micro_batch = task.micro_batch,
          .segments = last ? lists.backward_last : lists.backward,
          .activation_frame = here.frame,
          .input_boundary = here.input,
          .backward_boundary = here.gradient,
          .gradient_out = here.gradient_out},
         more);
    for (const Action& send : deferred_) {
        emit(send, {{{.token = ActionUse::Token::block, .stream = lists_of(send).send_forward_stream}}});
    }
    deferred_.clear();
    frames_[task.chunk].give_back(here.frame);
    if (lists.has_hidden_input) inputs_.give_back(here.input, ends());
    if (lists.splits_backward && here.gradient >= 0) gradients_.give_back(here.gradient, ends());
    if (leaving >= 0) pass_gradient_on(task, leaving);
}

void StageActions::backward_input(const ComputeTask& task) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    if (lists.has_hidden_input) here.gradient_out = gradients_.take(begins());
    emit({.kind = ActionKind::backward_input,
          .chunk = task.chunk,
          .micro_batch = task.micro_batch,
          .segments = lists.backward_input,
          .activation_frame = here.frame,
          .input_boundary = here.input,
          .backward_boundary = here.gradient,
          .gradient_out = here.gradient_out});
    if (here.gradient >= 0 && !lists.weight_reads_gradient) gradients_.give_back(here.gradient, ends());
    if (lists.has_hidden_input && !lists.weight_reads_input) inputs_.give_back(here.input, ends());
    if (here.gradient_out >= 0) pass_gradient_on(task, here.gradient_out);
}

void StageActions::backward_weight(const ComputeTask& task, bool last) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    const std::int32_t gradient = lists.weight_reads_gradient ? here.gradient : -1;
    const std::int32_t input = lists.weight_reads_input ? here.input : -1;
    emit({.kind = ActionKind::backward_weight,
          .chunk = task.chunk,
          .micro_batch = task.micro_batch,
          .segments = last ? lists.backward_weight_last : lists.backward_weight,
          .activation_frame = here.frame,
          .input_boundary = input,
          .backward_boundary = gradient});
    frames_[task.chunk].give_back(here.frame);
    if (gradient >= 0) gradients_.give_back(gradient, ends());
    if (input >= 0) inputs_.give_back(input, ends());
}

void StageActions::add_orders_beyond_memory(ActionKind kind) {
    using Token = ActionUse::Token;
    const auto add = [&](Token token, bool write, std::initializer_list<Stream> streams) {
        for (const Stream stream : streams) more_.push_back({.token = token, .stream = stream, .write = write});
    };
    switch (kind) {
        case ActionKind::backward:
        case ActionKind::backward_input:
        case ActionKind::backward_weight:
            add(Token::reduced_gradients, false, {Stream::compute, Stream::dp, Stream::dp_replicate});
            [[fallthrough]];
        case ActionKind::forward:
            if (!lists_.gathers_units) return;
            add(Token::gathered_units, true, {Stream::dp_gather, Stream::copy_in});
            add(Token::gathered_units, false, {Stream::compute});
            return;
        case ActionKind::sync_gradients:
            add(Token::reduced_gradients, true, {Stream::compute, Stream::tp, Stream::dp, Stream::dp_replicate});
            return;
        case ActionKind::optimizer_step:
            add(Token::reduced_gradients, true, {Stream::compute});
            if (lists_.checks_update) add(Token::reduced_gradients, true, {Stream::dp});
            if (lists_.gathers_units) add(Token::gathered_units, false, {Stream::compute});
            return;
        case ActionKind::recv_forward:
        case ActionKind::send_forward:
        case ActionKind::recv_backward:
        case ActionKind::send_backward:
        case ActionKind::exchange:
            return;
    }
}

void StageActions::emit(Action action, std::span<const ActionUse> more) {
    more_.assign(more.begin(), more.end());
    add_orders_beyond_memory(action.kind);
    const ActionIndex index = result_.actions.next_index();
    action.first_wait = static_cast<std::int32_t>(result_.waits.size());
    action.wait_count = tracker_.add(index, action, more_, result_.waits);
    if (!rules_.posts_receives_ahead) {
        // The vocabulary's passes come before the fused call that sends the output of the blocks, so they do not wait.
        const bool is_pass = action.kind == ActionKind::forward || action.kind == ActionKind::backward;
        const bool is_vocabulary = is_pass && lists_.chunks[action.chunk].is_vocabulary;
        if (action.kind == ActionKind::send_forward || action.kind == ActionKind::send_backward) {
            const ChunkLists& lists = lists_of(action);
            const bool activations = action.kind == ActionKind::send_forward;
            sends_in_flight_.push_back({index, activations ? lists.send_forward_stream : lists.send_backward_stream,
                                        timeline_.arrival(result_.pp_index, now_)});
        } else if (is_compute(action.kind) && !is_vocabulary) {
            for (const SendInFlight& send : sends_in_flight_) {
                // Waiting for a send whose receiver posts only after this computation is due could deadlock.
                const bool last = action.kind == ActionKind::optimizer_step;
                if (!last && send.arrives > begins()) continue;
                result_.waits.push_back({send.action, send.stream, 0, 1U << static_cast<unsigned>(Stream::compute)});
                ++action.wait_count;
            }
            sends_in_flight_.clear();
        }
    }
    result_.actions.push_back(action);
}

}  // namespace orrery::program
