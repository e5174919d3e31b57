// Private to the lowerings: lists what one rank does in a step, in issue order, taking and returning frames and
// boundary buffers, and tying every two streams that use the same buffer.
#pragma once

#include <cstdint>
#include <utility>
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
    /// Fills the class's actions, waits and the counts of frames and boundary buffers.
    StageActions(const std::vector<ComputeTask>& order, const StageLists& lists, const ScheduleShape& shape,
                 const TaskTimeline& timeline, TransferRules rules, RankClass& result);
    void list();

  private:
    /// Which buffers a micro-batch holds in a chunk; -1: none.
    struct Held {
        std::int32_t frame = -1, input = -1, output = -1, gradient = -1, gradient_out = -1;
    };
    /// The first and last tasks of a chunk in a step, which run lists of their own.
    struct Ends {
        std::size_t first_forward = 0, last_backward = 0;
    };
    void find_ends();
    [[nodiscard]] bool overlaps_next() const { return now_ + 1 < order_.size() && order_[now_ + 1].overlaps_previous; }
    void list_step();
    void start_step();
    /// Posts the receive that the task needs, once.
    void post_receive(std::size_t task);
    void forward(const ComputeTask& task, bool first);
    void vocabulary_forward(const ComputeTask& task, bool first);
    void vocabulary_backward(const ComputeTask& task, bool last);
    void backward(const ComputeTask& task, bool last);
    void backward_input(const ComputeTask& task);
    void backward_weight(const ComputeTask& task, bool last);
    void take_gradient(const ComputeTask& task);
    void pass_gradient_on(const ComputeTask& task, std::int32_t gradient);
    void add_orders_beyond_memory(ActionKind kind);
    /// `more`: orders of this action alone.
    void emit(Action action, std::span<const ActionUse> more = {});

    /// Of a task's or an action's chunk.
    template <typename OfChunk>
    [[nodiscard]] const ChunkLists& lists_of(const OfChunk& one) const {
        return lists_.chunks[one.chunk];
    }
    [[nodiscard]] Held& held(ChunkIndex chunk, std::int32_t micro_batch) {
        return held_[chunk][static_cast<std::size_t>(micro_batch)];
    }
    [[nodiscard]] Held& held(const ComputeTask& task) { return held(ChunkIndex::of(task.chunk), task.micro_batch); }
    [[nodiscard]] double begins() const { return timeline_.begin(result_.pp_index, now_); }
    [[nodiscard]] double ends() const { return timeline_.end(result_.pp_index, now_); }
    /// The chunk of this rank that holds the virtual stage `shift` further.
    [[nodiscard]] ChunkIndex neighbour_chunk(ChunkIndex chunk, std::int64_t shift) const;

    const std::vector<ComputeTask>& order_;
    const StageLists& lists_;
    const ScheduleShape& shape_;
    const TaskTimeline& timeline_;
    TransferRules rules_;
    RankClass& result_;
    ActionOrder tracker_;
    std::vector<ActionUse> more_;  // of the action that is being listed
    IndexedVector<ChunkIndex, Ends> ends_;
    IndexedVector<ChunkIndex, std::vector<Held>> held_;  // by micro-batch
    IndexedVector<ChunkIndex, SlotPool> frames_;
    TimedPool inputs_, outputs_, gradients_;
    std::size_t now_ = 0;           // the task being listed
    std::vector<Action> deferred_;  // of overlapping tasks: the first one's send, which leaves with the second one's
    struct SendUnderWay {
        ActionIndex action = 0;
        Stream stream{};
        double arrives = 0;
    };
    std::vector<SendUnderWay> sends_under_way_;  // that the next computation comes after
};

}  // namespace orrery::program
