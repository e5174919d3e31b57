#include "sim/program/stage_actions.h"

#include <algorithm>

namespace orrery::program {

StageActions::StageActions(const std::vector<ComputeTask>& order, const StageLists& lists, bool reduces_in_backward,
                           RankClass& result)
    : order_(order), lists_(lists), reduces_in_backward_(reduces_in_backward), result_(result) {
    const auto micro_batches = static_cast<std::int32_t>(order.size() / 2);
    // Two outputs: one being sent while the next is computed. Gradients: one arriving, one in use, one leaving.
    result_.forward_boundary_count = passes_on() ? std::min(2, micro_batches) : 0;
    result_.backward_boundary_count = std::min(1 + (receives() ? 1 : 0) + (passes_on() ? 1 : 0), micro_batches);
}

/// Twice: the second pass sees the first as the previous step, and its waits are the steady ones.
void StageActions::list() {
    list_step();
    tracker_.next_step();
    result_.actions.clear();
    result_.waits.clear();
    list_step();
    result_.frame_count = frames_.high_water();
    result_.input_boundary_count = inputs_.high_water();
}

void StageActions::list_step() {
    held_.assign(order_.size() / 2, {});
    output_turn_ = gradient_turn_ = 0;
    for (std::size_t t = 0; t < order_.size(); ++t) {
        // Receives are posted one computation ahead, so that the transfer runs beside it.
        post_receive(order_[t]);
        if (t + 1 < order_.size()) post_receive(order_[t + 1]);
        if (order_[t].kind == ComputeTask::Kind::forward) {
            forward(order_[t].micro_batch);
        } else {
            backward(order_[t].micro_batch, t + 1 == order_.size());
        }
    }
    if (lists_.sync >= 0) {
        AccessList accesses{};
        for (Stream stream : lists_.sync_streams) accesses.push_back({Buffer::gradients, 0, stream, true, true});
        emit({.kind = ActionKind::sync_gradients, .segments = lists_.sync}, accesses);
    }
    emit({.kind = ActionKind::optimizer_step, .segments = lists_.optimizer},
         {{Buffer::gradients, 0, Stream::compute, true}});
}

void StageActions::post_receive(const ComputeTask& task) {
    Held& here = held(task.micro_batch);
    if (task.kind == ComputeTask::Kind::forward && receives() && here.input < 0) {
        here.input = inputs_.take();
        emit({.kind = ActionKind::recv_forward,
              .micro_batch = task.micro_batch,
              .segments = lists_.recv_forward,
              .input_boundary = here.input},
             {{Buffer::input_boundary, here.input, Stream::pp_recv_forward, true}});
    }
    if (task.kind == ComputeTask::Kind::backward && passes_on() && here.gradient < 0) {
        here.gradient = gradient_turn_++ % result_.backward_boundary_count;
        emit({.kind = ActionKind::recv_backward,
              .micro_batch = task.micro_batch,
              .segments = lists_.recv_backward,
              .backward_boundary = here.gradient},
             {{Buffer::backward_boundary, here.gradient, Stream::pp_recv_backward, true}});
    }
}

void StageActions::forward(std::int32_t micro_batch) {
    Held& here = held(micro_batch);
    here.frame = frames_.take();
    const std::int32_t output = passes_on() ? output_turn_++ % result_.forward_boundary_count : -1;
    AccessList accesses{{Buffer::frame, here.frame, Stream::compute, true}};
    if (receives()) accesses.push_back({Buffer::input_boundary, here.input, Stream::compute, false});
    if (passes_on()) accesses.push_back({Buffer::forward_boundary, output, Stream::compute, true});
    emit({.kind = ActionKind::forward,
          .micro_batch = micro_batch,
          .segments = lists_.forward,
          .activation_frame = here.frame,
          .input_boundary = here.input,
          .forward_boundary = output},
         accesses);
    if (!passes_on()) return;
    emit({.kind = ActionKind::send_forward,
          .micro_batch = micro_batch,
          .segments = lists_.send_forward,
          .forward_boundary = output},
         {{Buffer::forward_boundary, output, Stream::pp_send_forward, false}});
}

void StageActions::backward(std::int32_t micro_batch, bool is_last) {
    Held& here = held(micro_batch);
    if (!passes_on()) here.gradient = gradient_turn_++ % result_.backward_boundary_count;
    const bool reduces = is_last && reduces_in_backward_;
    AccessList accesses{{Buffer::frame, here.frame, Stream::compute, true},
                        {Buffer::backward_boundary, here.gradient, Stream::compute, true},
                        {Buffer::gradients, 0, Stream::compute, true}};
    if (receives()) accesses.push_back({Buffer::input_boundary, here.input, Stream::compute, false});
    if (reduces) accesses.push_back({Buffer::gradients, 0, Stream::dp, true, true});
    emit({.kind = ActionKind::backward,
          .micro_batch = micro_batch,
          .segments = reduces ? lists_.backward_last : lists_.backward,
          .activation_frame = here.frame,
          .input_boundary = here.input,
          .backward_boundary = here.gradient},
         accesses);
    frames_.give_back(here.frame);
    if (!receives()) return;
    inputs_.give_back(here.input);
    emit({.kind = ActionKind::send_backward,
          .micro_batch = micro_batch,
          .segments = lists_.send_backward,
          .backward_boundary = here.gradient},
         {{Buffer::backward_boundary, here.gradient, Stream::pp_send_backward, false}});
}

void StageActions::emit(Action action, const AccessList& accesses) {
    action.first_wait = static_cast<std::int32_t>(result_.waits.size());
    action.wait_count = tracker_.record(static_cast<std::int32_t>(result_.actions.size()), accesses, result_.waits);
    result_.actions.push_back(action);
}

}  // namespace orrery::program
