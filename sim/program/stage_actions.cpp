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
    : order_(order), lists_(lists), shape_(shape), timeline_(timeline), rules_(rules), result_(result) {
    find_ends();
}

void StageActions::find_ends() {
    ends_.resize(lists_.chunks.size());
    std::vector<bool> seen(ends_.size(), false);
    for (std::size_t t = 0; t < order_.size(); ++t) {
        const auto c = static_cast<std::size_t>(order_[t].chunk);
        if (order_[t].kind == Kind::forward) {
            if (!seen[c]) ends_[c].first_forward = t;
            seen[c] = true;
        } else if (order_[t].kind != Kind::backward_input) {
            ends_[c].last_backward = t;
        }
    }
}

/// Twice: the second pass sees the first as the previous step, and its waits are the steady ones.
void StageActions::list() {
    list_step();
    tracker_.next_step();
    result_.actions.clear();
    result_.waits.clear();
    list_step();
    for (std::size_t c = 0; c < frames_.size(); ++c) result_.chunks[c].frame_count = frames_[c].high_water();
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
    // Two outputs: one being sent while the next is computed. Gradients: one arriving, one in use, one leaving. Where
    // two flows meet, one that cannot go on must not hold up the other.
    const std::int32_t flows = up ? 2 : 1;
    inputs_ = TimedPool(0);
    outputs_ = TimedPool(flows * std::min(2, micro_batches));
    gradients_ = TimedPool(flows * std::min(1 + (receives ? 1 : 0) + (sends ? 1 : 0), micro_batches));
    sends_under_way_.clear();
}

void StageActions::list_step() {
    start_step();
    for (std::size_t t = 0; t < order_.size(); ++t) {
        const ComputeTask& task = order_[t];
        const Ends& ends = ends_[static_cast<std::size_t>(task.chunk)];
        now_ = t;
        post_receive(t);
        if (overlaps_next()) post_receive(t + 1);
        // Parts that are put together over tp would hold up that stream until they are there.
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
    if (lists_.sync.exists()) {
        emit({.kind = ActionKind::sync_gradients, .segments = lists_.sync.list}, lists_.sync.shared);
    }
    emit({.kind = ActionKind::optimizer_step, .segments = lists_.optimizer.list}, lists_.optimizer.shared);
}

std::int32_t StageActions::neighbour_chunk(std::int32_t chunk, std::int64_t shift) const {
    const Chunk& here = result_.chunks[static_cast<std::size_t>(chunk)];
    const StageHolder holder = stage_holder(shape_, here.virtual_stage + shift, here.direction);
    ORRERY_CHECK(holder.rank == result_.pp_index, "the neighbouring virtual stage is on another rank");
    return static_cast<std::int32_t>(holder.chunk);
}

Access StageActions::frame_access(const ComputeTask& task) {
    const auto chunks = static_cast<std::int32_t>(lists_.chunks.size());
    return {Buffer::frame, held(task).frame * chunks + task.chunk, Stream::compute, true};
}

void StageActions::post_receive(std::size_t index) {
    const ComputeTask& task = order_[index];
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    const double posted = timeline_.posted(result_.pp_index, index);
    if (task.kind == Kind::forward && lists.receives && here.input < 0) {
        here.input = inputs_.take(posted);
        AccessList accesses{{Buffer::input_boundary, here.input, lists.recv_forward_stream, true}};
        if (lists.scatters_transfers) {
            accesses.push_back({Buffer::input_boundary, here.input, Stream::tp, true, true});
        }
        emit({.kind = ActionKind::recv_forward,
              .chunk = task.chunk,
              .micro_batch = task.micro_batch,
              .segments = lists.recv_forward.list,
              .input_boundary = here.input},
             accesses);
    }
    const bool needs_gradient = task.kind == Kind::backward || task.kind == Kind::backward_input;
    if (needs_gradient && lists.sends && here.gradient < 0) {
        here.gradient = gradients_.take(posted);
        AccessList accesses{{Buffer::backward_boundary, here.gradient, lists.recv_backward_stream, true}};
        if (lists.scatters_transfers) {
            accesses.push_back({Buffer::backward_boundary, here.gradient, Stream::tp, true, true});
        }
        emit({.kind = ActionKind::recv_backward,
              .chunk = task.chunk,
              .micro_batch = task.micro_batch,
              .segments = lists.recv_backward.list,
              .backward_boundary = here.gradient},
             accesses);
    }
}

void StageActions::forward(const ComputeTask& task, bool first) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    here.frame = frames_[static_cast<std::size_t>(task.chunk)].take();
    AccessList accesses{frame_access(task)};
    if (lists.has_hidden_input) accesses.push_back({Buffer::input_boundary, here.input, Stream::compute, false});
    std::int32_t output = -1;
    if (lists.output_stays) {
        output = held(neighbour_chunk(task.chunk, 1), task.micro_batch).input = inputs_.take(begins());
        accesses.push_back({Buffer::input_boundary, output, Stream::compute, true});
    } else if (lists.sends || lists.output_goes_everywhere) {
        output = here.output = outputs_.take(begins());
        accesses.push_back({Buffer::forward_boundary, output, Stream::compute, true});
    }
    if (overlaps_next()) {  // one block: it begins with the inputs of both
        const std::int32_t gradient = held(order_[now_ + 1]).gradient;
        if (gradient >= 0) accesses.push_back({Buffer::backward_boundary, gradient, Stream::compute, false});
    }
    const ListedPass& pass = first ? lists.forward_first : lists.forward;
    accesses.append(pass.shared);
    emit({.kind = ActionKind::forward,
          .chunk = task.chunk,
          .micro_batch = task.micro_batch,
          .segments = pass.list,
          .activation_frame = here.frame,
          .input_boundary = here.input,
          .forward_boundary = output,
          .output_stays = lists.output_stays},
         accesses);
    if (!lists.sends) return;
    const Action send{.kind = ActionKind::send_forward,
                      .chunk = task.chunk,
                      .micro_batch = task.micro_batch,
                      .segments = lists.send_forward.list,
                      .forward_boundary = output};
    AccessList sent{{Buffer::forward_boundary, output, lists.send_forward_stream, false}};
    if (overlaps_next()) {
        sent.push_back({Buffer::block, 0, lists.send_forward_stream, false});
        deferred_.push_back({send, sent});
    } else {
        emit(send, sent);
    }
    outputs_.give_back(output, timeline_.arrival(result_.pp_index, now_));
}

/// S, or the lookup of the embedding. What the tensor-parallel stream still carries at the end is waited for by those
/// who use it.
void StageActions::vocabulary_forward(const ComputeTask& task, bool first) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    Held& blocks = held(0, task.micro_batch);
    here.frame = frames_[static_cast<std::size_t>(task.chunk)].take();
    const ListedPass& pass = first ? lists.forward_first : lists.forward;
    AccessList accesses;
    // Of a buffer that the pass writes: by its own stream, and by those that its body ties to what they do there.
    const bool begins_aside = lists.uses_side && task.chunk == kInputChunk;
    const auto writes = [&](Access access, std::initializer_list<Stream> others) {
        access.stream = begins_aside ? Stream::side : Stream::compute;
        accesses.push_back(access);
        access.beside = true;
        for (const Stream other : others) {
            access.stream = other;
            access.ahead = other == Stream::tp && task.chunk == kOutputChunk && !lists.is_root;  // a broadcast is first
            accesses.push_back(access);
        }
    };
    const Access frame = frame_access(task);
    const bool computes = std::any_of(pass.shared.begin(), pass.shared.end(),
                                      [](const Access& access) { return access.stream == Stream::compute; });
    if (!lists.uses_side) {
        writes(frame, {Stream::tp});
    } else if (!begins_aside) {
        writes(frame, {Stream::tp, Stream::side});
    } else if (computes) {
        writes(frame, {Stream::tp, Stream::compute});
    } else {
        writes(frame, {Stream::tp});
    }
    accesses.append(pass.shared);
    Action action{.kind = ActionKind::forward,
                  .chunk = task.chunk,
                  .micro_batch = task.micro_batch,
                  .segments = pass.list,
                  .activation_frame = here.frame};
    const bool has_backward = lists.backward.exists();
    if (lists.is_root && task.chunk == kInputChunk) {
        // Beside the computation a sum may come as early as the others have looked up: a round before its place.
        constexpr double kRound = 4;
        blocks.input = inputs_.take(lists.uses_side ? begins() - kRound : begins());
        action.forward_boundary = blocks.input;
        action.output_stays = true;
        const Access input{Buffer::input_boundary, blocks.input, Stream::compute, true};
        if (begins_aside && computes) {
            writes(input, {Stream::tp, Stream::compute});
        } else {
            writes(input, {Stream::tp});
        }
    } else if (lists.is_root) {
        action.forward_boundary = blocks.output;
        accesses.push_back({Buffer::forward_boundary, blocks.output, Stream::tp, false});
        if (rules_.gradient_from_forward) {
            action.backward_boundary = blocks.gradient = gradients_.take(begins());
            accesses.push_back({Buffer::backward_boundary, blocks.gradient, Stream::tp, true});
        }
    }
    emit(action, accesses);
    if (lists.is_root && task.chunk == kOutputChunk) outputs_.give_back(blocks.output, ends());
    if (!has_backward) frames_[static_cast<std::size_t>(task.chunk)].give_back(here.frame);
}

/// T, or the gradient of the embedding.
void StageActions::vocabulary_backward(const ComputeTask& task, bool last) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    AccessList accesses{frame_access(task)};
    if (task.chunk == kInputChunk || !rules_.gradient_from_forward) {
        Access beside = frame_access(task);
        beside.stream = Stream::tp;
        beside.beside = true;
        beside.ahead = task.chunk == kInputChunk && !lists.is_root;
        accesses.push_back(beside);
    }
    const ListedPass& pass = last ? lists.backward_last : lists.backward;
    accesses.append(pass.shared);
    Action action{.kind = ActionKind::backward,
                  .chunk = task.chunk,
                  .micro_batch = task.micro_batch,
                  .segments = pass.list,
                  .activation_frame = here.frame};
    if (lists.is_root && task.chunk == kInputChunk) {
        action.backward_boundary = here.gradient;
        accesses.push_back({Buffer::backward_boundary, here.gradient, Stream::compute, true});
        accesses.push_back({Buffer::backward_boundary, here.gradient, Stream::tp, true, true, lists.uses_side});
    } else if (lists.is_root && !rules_.gradient_from_forward) {
        Held& blocks = held(0, task.micro_batch);
        action.backward_boundary = blocks.gradient = gradients_.take(begins());
        accesses.push_back({Buffer::backward_boundary, blocks.gradient, Stream::tp, true});
    }
    emit(action, accesses);
    frames_[static_cast<std::size_t>(task.chunk)].give_back(here.frame);
    if (lists.is_root && task.chunk == kInputChunk) gradients_.give_back(here.gradient, ends());
}

/// The gradient that comes in: received, handed over by the next chunk here, or, at the head, made by the pass itself.
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
              .segments = lists.send_backward.list,
              .backward_boundary = gradient,
              .gradient_out = gradient},
             {{Buffer::backward_boundary, gradient, lists.send_backward_stream, false}});
        gradients_.give_back(gradient, timeline_.arrival(result_.pp_index, now_));
        return;
    }
    gradients_.give_back(gradient, ends());
}

void StageActions::backward(const ComputeTask& task, bool last) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    const ListedPass& pass = last ? lists.backward_last : lists.backward;
    AccessList accesses{frame_access(task)};
    std::int32_t leaving = -1;
    if (!lists.splits_backward) {
        take_gradient(task);
        leaving = here.gradient;
        accesses.push_back({Buffer::backward_boundary, here.gradient, Stream::compute, true});
    } else {
        if (here.gradient >= 0) accesses.push_back({Buffer::backward_boundary, here.gradient, Stream::compute, false});
        if (lists.has_hidden_input) {
            leaving = here.gradient_out = gradients_.take(begins());
            accesses.push_back({Buffer::backward_boundary, leaving, Stream::compute, true});
        }
    }
    if (lists.has_hidden_input) accesses.push_back({Buffer::input_boundary, here.input, Stream::compute, false});
    if (task.overlaps_previous) accesses.push_back({Buffer::block, 0, Stream::compute, true});
    accesses.append(pass.shared);
    emit({.kind = ActionKind::backward,
          .chunk = task.chunk,
          .micro_batch = task.micro_batch,
          .segments = pass.list,
          .activation_frame = here.frame,
          .input_boundary = here.input,
          .backward_boundary = here.gradient,
          .gradient_out = here.gradient_out},
         accesses);
    for (const DeferredSend& send : deferred_) emit(send.action, send.accesses);
    deferred_.clear();
    frames_[static_cast<std::size_t>(task.chunk)].give_back(here.frame);
    if (lists.has_hidden_input) inputs_.give_back(here.input, ends());
    if (lists.splits_backward && here.gradient >= 0) gradients_.give_back(here.gradient, ends());
    if (leaving >= 0) pass_gradient_on(task, leaving);
}

void StageActions::backward_input(const ComputeTask& task) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    const ListedPass& pass = lists.backward_input;
    AccessList accesses{frame_access(task)};
    if (here.gradient >= 0) accesses.push_back({Buffer::backward_boundary, here.gradient, Stream::compute, false});
    if (lists.has_hidden_input) {
        here.gradient_out = gradients_.take(begins());
        accesses.push_back({Buffer::backward_boundary, here.gradient_out, Stream::compute, true});
        accesses.push_back({Buffer::input_boundary, here.input, Stream::compute, false});
    }
    accesses.append(pass.shared);
    emit({.kind = ActionKind::backward_input,
          .chunk = task.chunk,
          .micro_batch = task.micro_batch,
          .segments = pass.list,
          .activation_frame = here.frame,
          .input_boundary = here.input,
          .backward_boundary = here.gradient,
          .gradient_out = here.gradient_out},
         accesses);
    if (here.gradient >= 0 && !lists.weight_reads_gradient) gradients_.give_back(here.gradient, ends());
    if (lists.has_hidden_input && !lists.weight_reads_input) inputs_.give_back(here.input, ends());
    if (here.gradient_out >= 0) pass_gradient_on(task, here.gradient_out);
}

void StageActions::backward_weight(const ComputeTask& task, bool last) {
    const ChunkLists& lists = lists_of(task);
    Held& here = held(task);
    const ListedPass& pass = last ? lists.backward_weight_last : lists.backward_weight;
    const std::int32_t gradient = lists.weight_reads_gradient ? here.gradient : -1;
    const std::int32_t input = lists.weight_reads_input ? here.input : -1;
    AccessList accesses{frame_access(task)};
    if (gradient >= 0) accesses.push_back({Buffer::backward_boundary, gradient, Stream::compute, false});
    if (input >= 0) accesses.push_back({Buffer::input_boundary, input, Stream::compute, false});
    accesses.append(pass.shared);
    emit({.kind = ActionKind::backward_weight,
          .chunk = task.chunk,
          .micro_batch = task.micro_batch,
          .segments = pass.list,
          .activation_frame = here.frame,
          .input_boundary = input,
          .backward_boundary = gradient},
         accesses);
    frames_[static_cast<std::size_t>(task.chunk)].give_back(here.frame);
    if (gradient >= 0) gradients_.give_back(gradient, ends());
    if (input >= 0) inputs_.give_back(input, ends());
}

void StageActions::emit(Action action, const AccessList& accesses) {
    const auto index = static_cast<std::int32_t>(result_.actions.size());
    action.first_wait = static_cast<std::int32_t>(result_.waits.size());
    action.wait_count = tracker_.record(index, accesses, result_.waits);
    if (!rules_.posts_receives_ahead) {
        // The vocabulary's passes come between a pass of the blocks and the call that sends its output.
        const bool vocabulary = action.kind == ActionKind::forward || action.kind == ActionKind::backward;
        const bool calls_later = vocabulary && lists_.chunks[static_cast<std::size_t>(action.chunk)].is_vocabulary;
        if (action.kind == ActionKind::send_forward || action.kind == ActionKind::send_backward) {
            sends_under_way_.push_back({index, accesses.begin()->stream, timeline_.arrival(result_.pp_index, now_)});
        } else if (is_compute(action.kind) && !calls_later) {
            for (const SendUnderWay& send : sends_under_way_) {
                // Where the receiver posts later than this computation is due, nobody could wait.
                const bool last = action.kind == ActionKind::optimizer_step;
                if (!last && send.arrives > begins()) continue;
                result_.waits.push_back({send.action, send.stream, 0, 1U << static_cast<unsigned>(Stream::compute)});
                ++action.wait_count;
            }
            sends_under_way_.clear();
        }
    }
    result_.actions.push_back(action);
}

}  // namespace orrery::program
