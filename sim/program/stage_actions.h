// Private to the lowerings: lists what one stage does in a step, in issue order, taking and returning frames and
// boundary buffers, and tying every two streams that use the same buffer.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/buffer_tracker.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"

namespace orrery::program {

/// Segment lists of a stage by what they are for; -1 where the stage has none.
struct StageLists {
    SegmentListId forward = -1, backward = -1, backward_last = -1;
    SegmentListId recv_forward = -1, send_forward = -1, recv_backward = -1, send_backward = -1;
    SegmentListId sync = -1, optimizer = -1;
    std::vector<Stream> sync_streams;  // on which the gradients are still reduced after the last backward
};

class StageActions {
  public:
    /// Fills the class's actions, waits and the counts of frames and boundary buffers. `reduces_in_backward`: the last
    /// backward holds gradient buckets.
    StageActions(const std::vector<ComputeTask>& order, const StageLists& lists, bool reduces_in_backward,
                 RankClass& result);
    void list();

  private:
    /// Which buffers a micro-batch holds; -1: none.
    struct Held {
        std::int32_t frame = -1, input = -1, gradient = -1;
    };
    void list_step();
    /// Posts the receive that the task needs, once.
    void post_receive(const ComputeTask& task);
    void forward(std::int32_t micro_batch);
    void backward(std::int32_t micro_batch, bool is_last);
    void emit(Action action, const AccessList& accesses);

    [[nodiscard]] bool receives() const { return lists_.recv_forward >= 0; }
    [[nodiscard]] bool passes_on() const { return lists_.send_forward >= 0; }
    [[nodiscard]] Held& held(std::int32_t micro_batch) { return held_[static_cast<std::size_t>(micro_batch)]; }

    const std::vector<ComputeTask>& order_;
    const StageLists& lists_;
    bool reduces_in_backward_;
    RankClass& result_;
    BufferTracker tracker_;
    std::vector<Held> held_;
    SlotPool frames_, inputs_;
    std::int32_t output_turn_ = 0, gradient_turn_ = 0;
};

}  // namespace orrery::program
