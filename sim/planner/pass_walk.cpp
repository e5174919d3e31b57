#include "sim/planner/pass_walk.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::sim {
namespace {

using program::ComputeTask;

class PassWalk {
  public:
    PassWalk(const std::vector<std::vector<ComputeTask>>& orders, const PassCosts& costs)
        : orders_(orders), costs_(costs), ends_(orders.size()), next_(orders.size()) {
        for (std::size_t rank = 0; rank < orders.size(); ++rank) {
            for (const std::size_t stage : costs.stages[rank]) {
                if (stage >= holders_.size()) holders_.resize(stage + 1);
                holders_[stage] = rank;
            }
            for (const ComputeTask& task : orders[rank]) {
                micro_batches_ = std::max(micro_batches_, static_cast<std::size_t>(task.micro_batch) + 1);
            }
        }
        forward_.assign(holders_.size() * micro_batches_, kNever);
        backward_ = forward_;
    }

    std::vector<PassEnds> run() {
        for (bool goes_on = true; goes_on;) {
            goes_on = false;
            for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
                for (; next_[rank] < orders_[rank].size() && advance(rank, orders_[rank][next_[rank]]); ++next_[rank]) {
                    goes_on = true;
                }
            }
        }
        for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
            ORRERY_CHECK(next_[rank] == orders_[rank].size(), "a schedule that deadlocks");
        }
        return std::move(ends_);
    }

  private:
    static constexpr double kNever = -1;

    [[nodiscard]] std::size_t key(std::size_t stage, const ComputeTask& task) const {
        return stage * micro_batches_ + static_cast<std::size_t>(task.micro_batch);
    }

    /// When the task's input from another pass is there; kNever: not known yet.
    [[nodiscard]] double ready_s(std::size_t stage, const ComputeTask& task) const {
        if (task.kind == ComputeTask::Kind::backward_weight) return 0;
        if (task.kind == ComputeTask::Kind::forward) return stage == 0 ? 0 : forward_[key(stage - 1, task)];
        return stage + 1 == holders_.size() ? forward_[key(stage, task)] : backward_[key(stage + 1, task)];
    }

    /// False if the task's input is missing.
    bool advance(std::size_t rank, const ComputeTask& task) {
        const std::size_t stage = costs_.stages[rank][task.chunk.position()];
        const double ready = ready_s(stage, task);
        if (ready == kNever) return false;
        PassEnds& ends = ends_[rank];
        ends.last_start_s = std::max(ends.end_s, ready);
        ends.end_s = ends.last_start_s + costs_.seconds(rank, task);
        if (task.kind == ComputeTask::Kind::backward_weight) return true;
        const bool forward = task.kind == ComputeTask::Kind::forward;
        const bool is_end = forward ? stage + 1 == holders_.size() : stage == 0;
        const bool sends = !is_end && holders_[forward ? stage + 1 : stage - 1] != rank;
        (forward ? forward_ : backward_)[key(stage, task)] =
            ends.end_s + (sends ? costs_.transfer_s(rank, forward) : 0);
        return true;
    }

    const std::vector<std::vector<ComputeTask>>& orders_;
    const PassCosts& costs_;
    std::vector<PassEnds> ends_;
    std::vector<std::size_t> next_;     // by rank
    std::vector<std::size_t> holders_;  // the rank of each virtual stage
    std::size_t micro_batches_ = 0;
    std::vector<double> forward_, backward_;  // when the next stage has the output of a pass
};

}  // namespace

std::vector<PassEnds> walk_passes(const std::vector<std::vector<ComputeTask>>& orders, const PassCosts& costs) {
    return PassWalk(orders, costs).run();
}

}  // namespace orrery::sim
