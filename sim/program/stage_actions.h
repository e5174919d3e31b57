// Private to the lowerings: lists the actions of one rank in a step, in issue order. It takes and returns frames and
// boundary buffers and adds the waits between actions.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/access_order.h"
#include "sim/program/buffer_pools.h"
#include "sim/program/program.h"
#include "sim/program/schedule.h"
#include "sim/program/stage_lists.h"
#include "sim/program/task_timeline.h"

namespace orrery::program {

class StageActions {
  public:
    StageActions(const std::vector<ComputeTask>& order, const StageLists& lists, const ScheduleShape& shape,
                 const TaskTimeline& timeline, TransferRules rules, RankClass& result);
    /// Fills in the class's actions, waits, and numbers of frames and boundary buffers.
    void list();

  private:
    /// The buffers that a micro-batch holds in a chunk; -1: none. `output`: only if other chunks of the rank use it.
    struct Held {
        std::int32_t frame = -1, input = -1, output = -1, gradient = -1, gradient_out = -1;
    };
    [[nodiscard]] static Action action_of(ActionKind kind, const ComputeTask& task, SegmentListId segments,
                                          const Held& bound);
    [[nodiscard]] bool overlaps_next() const { return now_ + 1 < order_.size() && order_[now_ + 1].overlaps_previous; }
    void list_step();
    void start_step();
    /// Posts the receive that the task needs, unless it has been posted already.
    void post_receive(std::size_t task);
    void forward(const ComputeTask& task, bool first);
    void vocabulary_forward(const ComputeTask& task, bool first);
    void vocabulary_backward(const ComputeTask& task, bool last);
    void backward(const ComputeTask& task, bool last);
    void backward_input(const ComputeTask& task);
    void backward_weight(const ComputeTask& task, bool last);
    void emit_in_turns(const Action& forward, const Action& backward);
    void pass_gradient_on(const ComputeTask& task, std::int32_t gradient);
    void add_orders_beyond_memory(ActionKind kind);
    /// Appends the action and its waits. `more`: uses of this action besides those of its list.
    void emit(Action action, std::span<const ActionUse> more = {});

    [[nodiscard]] Held& held(ChunkIndex chunk, std::int32_t micro_batch) {
        return held_[chunk][static_cast<std::size_t>(micro_batch)];
    }
    [[nodiscard]] Held& held(const ComputeTask& task) { return held(task.chunk, task.micro_batch); }
    [[nodiscard]] double begins() const { return timeline_.begin(result_.pp_index, now_); }
    [[nodiscard]] double ends() const { return timeline_.end(result_.pp_index, now_); }
    /// The chunk that holds the virtual stage `shift` further, which must be on this rank.
    [[nodiscard]] ChunkIndex neighbour_chunk(ChunkIndex chunk, std::int64_t shift) const;

    const std::vector<ComputeTask>& order_;
    const StageLists& lists_;
    const ScheduleShape& shape_;
    const TaskTimeline& timeline_;
    TransferRules rules_;
    RankClass& result_;
    ActionOrder tracker_;
    bool is_previous_step_ = true;                       // the actions of a step before the one that is lowered
    std::vector<ActionUse> more_;                        // additional uses of the current action
    IndexedVector<ChunkIndex, EndTasks> ends_;           // these passes have their own lists
    IndexedVector<ChunkIndex, std::vector<Held>> held_;  // by micro-batch
    IndexedVector<ChunkIndex, SlotPool> frames_;
    TimedPool inputs_, outputs_, gradients_;
    std::size_t now_ = 0;           // index of the current task
    Action paused_forward_;         // overlapped tasks that take turns: the first one's pass, issued with the second's
    std::vector<Action> deferred_;  // overlapped tasks: the first one's send, which is issued after the second task
    struct SendInFlight {
        ActionIndex action = 0;
        Stream stream{};
        std::size_t task = 0;
    };
    std::vector<SendInFlight> sends_in_flight_;  // without receives posted ahead: the next computation waits for them
};

}  // namespace orrery::program
