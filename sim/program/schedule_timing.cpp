#include "sim/program/schedule_timing.h"

#include <algorithm>
#include <deque>

#include "core/error.h"

namespace orrery::program {
namespace {

using Kind = ComputeTask::Kind;
constexpr double kNever = -1;  // not computed yet

class Replay {
  public:
    Replay(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders)
        : shape_(shape),
          orders_(orders),
          ranks_(orders.size()),
          stages_(virtual_stages(shape)),
          chunk_share_(static_cast<double>(row_of(shape.schedule).model_copies()) / static_cast<double>(shape.chunks)) {
        ORRERY_CHECK(static_cast<std::int64_t>(orders.size()) == shape.ranks, "one order for each rank");
        const auto places = static_cast<std::size_t>(shape.ranks * shape.chunks * shape.micro_batches);
        forward_end_.assign(places, kNever);
        input_end_.assign(places, kNever);
        result_.ranks.resize(orders.size());
    }

    ScheduleTiming run() {
        for (std::size_t r = 0; r < ranks_.size(); ++r) wake(r);
        while (!awake_.empty()) {
            const std::size_t r = awake_.front();
            awake_.pop_front();
            ranks_[r].awake = false;
            while (advance(r)) {
            }
        }
        for (std::size_t r = 0; r < ranks_.size(); ++r) {
            result_.makespan = std::max(result_.makespan, result_.ranks[r].end);
            if (ranks_[r].next == orders_[r].size() || !result_.stuck.empty()) continue;
            const ComputeTask& task = orders_[r][ranks_[r].next];
            result_.stuck = "rank " + std::to_string(r) + ", task " + std::to_string(ranks_[r].next) + ": chunk " +
                            std::to_string(task.chunk.value()) + ", micro-batch " + std::to_string(task.micro_batch);
        }
        return std::move(result_);
    }

  private:
    struct Rank {
        std::size_t next = 0;  // task
        double free_at = 0, in_flight = 0;
        bool awake = false;
    };

    void wake(std::size_t r) {
        if (ranks_[r].awake) return;
        ranks_[r].awake = true;
        awake_.push_back(r);
    }

    [[nodiscard]] std::size_t place(std::size_t r, const ComputeTask& task) const {
        ORRERY_CHECK(task.chunk >= 0 && task.chunk.value() < shape_.chunks && task.micro_batch >= 0 &&
                         task.micro_batch < shape_.micro_batches,
                     "a task outside the schedule's shape");
        return (r * static_cast<std::size_t>(shape_.chunks) + task.chunk.position()) *
                   static_cast<std::size_t>(shape_.micro_batches) +
               static_cast<std::size_t>(task.micro_batch);
    }

    /// The place of the same micro-batch `step` virtual stages further; rank -1 beyond the first or last stage.
    struct Neighbour {
        std::int64_t rank = -1;
        std::size_t place = 0;
    };
    [[nodiscard]] Neighbour neighbour(std::size_t r, const ComputeTask& task, std::int64_t step) const {
        const ChunkPlace here = chunk_place(shape_, static_cast<std::int64_t>(r), task.chunk);
        const std::int64_t stage = here.virtual_stage + step;
        if (stage < 0 || stage >= stages_) return {};
        const StageHolder holder = stage_holder(shape_, stage, here.direction);
        ComputeTask there = task;
        there.chunk = holder.chunk;
        return {holder.rank, place(static_cast<std::size_t>(holder.rank), there)};
    }

    /// The time at which the task's inputs are on the rank; kNever while unknown.
    [[nodiscard]] double ready_at(std::size_t r, const ComputeTask& task) const {
        if (task.kind == Kind::backward_weight) return input_end_[place(r, task)];
        const bool forward = task.kind == Kind::forward;
        const double own_forward = forward ? 0.0 : forward_end_[place(r, task)];
        const Neighbour from = neighbour(r, task, forward ? -1 : 1);
        if (from.rank < 0 || own_forward == kNever) return own_forward;
        const double sent = (forward ? forward_end_ : input_end_)[from.place];
        if (sent == kNever) return kNever;
        return std::max(own_forward, sent + (static_cast<std::size_t>(from.rank) == r ? 0.0 : shape_.transfer_time));
    }

    [[nodiscard]] double duration(std::size_t r, Kind kind) const {
        const StageTimes times = stage_times(shape_, static_cast<std::int64_t>(r));
        switch (kind) {
            case Kind::forward:
                return times.forward * chunk_share_;
            case Kind::backward:
                return (times.input + times.weight) * chunk_share_;
            case Kind::backward_input:
                return times.input * chunk_share_;
            case Kind::backward_weight:
                return times.weight * chunk_share_;
        }
        throw_bug(__FILE__, __LINE__, "Kind", "unknown kind of task");
    }

    /// Runs the rank's next task or block; returns false if an input is missing or no task is left.
    bool advance(std::size_t r) {
        Rank& rank = ranks_[r];
        const std::vector<ComputeTask>& order = orders_[r];
        if (rank.next == order.size()) return false;
        std::size_t end = rank.next + 1;
        while (end < order.size() && order[end].overlaps_previous) ++end;
        double begin = rank.free_at, length = 0;
        for (std::size_t t = rank.next; t < end; ++t) {
            const double ready = ready_at(r, order[t]);
            if (ready == kNever) return false;
            begin = std::max(begin, ready);
            length += duration(r, order[t].kind);
        }
        RankTiming& timing = result_.ranks[r];
        if (rank.next == 0) timing.begin = begin;
        rank.free_at = begin + length;
        timing.end = rank.free_at;
        timing.busy += length;
        for (; rank.next < end; ++rank.next) finish(r, order[rank.next]);
        return true;
    }

    void finish(std::size_t r, const ComputeTask& task) {
        Rank& rank = ranks_[r];
        const bool forward = task.kind == Kind::forward;
        double& peak = result_.ranks[r].peak_in_flight;
        switch (task.kind) {
            case Kind::forward:
                rank.in_flight += chunk_share_;
                peak = std::max(peak, rank.in_flight);
                break;
            case Kind::backward:
                rank.in_flight -= chunk_share_;
                break;
            case Kind::backward_input:
                rank.in_flight -= chunk_share_ * (1 - shape_.activation_after_input);
                break;
            case Kind::backward_weight:
                rank.in_flight -= chunk_share_ * shape_.activation_after_input;
                return;
        }
        (forward ? forward_end_ : input_end_)[place(r, task)] = rank.free_at;
        const Neighbour to = neighbour(r, task, forward ? 1 : -1);
        if (to.rank >= 0) wake(static_cast<std::size_t>(to.rank));
    }

    const ScheduleShape& shape_;
    const std::vector<std::vector<ComputeTask>>& orders_;
    std::vector<Rank> ranks_;
    std::int64_t stages_;
    double chunk_share_;
    std::vector<double> forward_end_, input_end_;
    std::deque<std::size_t> awake_;
    ScheduleTiming result_;
};

}  // namespace

double ScheduleTiming::longest_span() const {
    double longest = 0;
    for (const RankTiming& rank : ranks) longest = std::max(longest, rank.end - rank.begin);
    return longest;
}

ScheduleTiming time_orders(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders) {
    return Replay(shape, orders).run();
}

}  // namespace orrery::program
