#include "sim/planner/pass_walk.h"

#include <algorithm>

#include "core/error.h"
#include "core/index.h"
#include "sim/program/task_timeline.h"

namespace orrery::sim {
namespace {

using program::ComputeTask;

class PassWalk {
  public:
    PassWalk(const PassOrders& orders, const PassCosts& costs)
        : orders_(orders.tasks),
          awaits_send_(orders.awaits_send),
          costs_(costs),
          ranks_(orders_.size()),
          ends_(orders_.size()) {
        for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
            for (const std::size_t stage : costs.stages[rank]) {
                if (stage >= holders_.size()) holders_.resize(stage + 1);
                holders_[stage] = rank;
            }
            for (const ComputeTask& task : orders_[rank]) {
                micro_batches_ = std::max(micro_batches_, static_cast<std::size_t>(task.micro_batch) + 1);
            }
        }
        forward_.assign(holders_.size() * micro_batches_, kNever);
        backward_ = forward_;
        if (!costs.begin_s.empty()) begin_after_steps();
    }

    std::vector<PassEnds> run() {
        for (bool goes_on = true; goes_on;) {
            goes_on = false;
            for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
                std::size_t& next = ranks_[rank].next;
                for (; next < orders_[rank].size() && advance(rank, orders_[rank][next]); ++next) goes_on = true;
            }
        }
        for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
            ORRERY_CHECK(ranks_[rank].next == orders_[rank].size(), "a schedule that deadlocks");
            PassEnds& ends = ends_[rank];
            ends.step_end_s = ends.end_s;
            if (costs_.traffic.empty()) continue;
            const RankTraffic& traffic = costs_.traffic[rank];
            ends.step_end_s =
                std::max(ends.end_s + reductions_at_end_s(traffic), ranks_[rank].reduced_s) + traffic.update_s;
        }
        return std::move(ends_);
    }

  private:
    static constexpr double kNever = -1;

    /// A rank so far.
    struct Rank {
        std::size_t next = 0;                   // index into its order
        double reduced_s = 0;                   // when the reductions issued so far have ended
        std::array<double, 2> places_free_s{};  // when those that read each place for unstaged gradients have ended
        double gathered_s = 0;                  // when the gathers issued so far have ended
        double nic_s = 0;                       // when the NIC has carried both
        double sent_s = 0;                      // when the last send has ended
        double sent_slowdown = 1;               // of computation beside it
        double just_sent_s = 0;                 // likewise, of the last task; 0 if it sends nothing
        double unit_s = 0;                      // duration of a unit of the last pass
        double copied_s = 0;                    // when the copies of the last forward have ended
        double regathered_s = 0;  // when all updated parameters have been gathered, and those of each chunk
        std::vector<double> chunks_regathered_s;
    };

    /// Each rank begins where its step before ended, and gathers its updated parameters chunk by chunk.
    void begin_after_steps() {
        for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
            const double begin = costs_.begin_s[rank];
            Rank& state = ranks_[rank];
            ends_[rank].end_s = state.regathered_s = begin;
            for (const RankTraffic::OfChunk& chunk : costs_.traffic[rank].chunks) {
                state.chunks_regathered_s.push_back(state.regathered_s += chunk.regather_s);
            }
            if (costs_.regathers_after_input) state.regathered_s = begin;
            state.nic_s = begin + costs_.traffic[rank].regather_nic_s;
        }
    }

    /// The NIC carries reductions within sets of shards and those among the sets.
    static double reductions_at_end_s(const RankTraffic& traffic) {
        if (!traffic.reduces_at_end) return 0;
        double reduction = 0, replication = 0, nic = 0;
        for (const RankTraffic::OfChunk& chunk : traffic.chunks) {
            reduction += chunk.reduction_s;
            replication += chunk.replication_s;
            nic += chunk.reduction_nic_s + chunk.replication_nic_s;
        }
        return std::max({reduction, replication, nic});
    }

    [[nodiscard]] std::size_t key(std::size_t stage, const ComputeTask& task) const {
        return stage * micro_batches_ + static_cast<std::size_t>(task.micro_batch);
    }

    /// When the task's input from another pass is there; kNever: not known yet.
    [[nodiscard]] double ready_s(std::size_t stage, const ComputeTask& task) const {
        if (task.kind == ComputeTask::Kind::backward_weight) return 0;
        if (task.kind == ComputeTask::Kind::forward) return stage == 0 ? 0 : forward_[key(stage - 1, task)];
        return stage + 1 == holders_.size() ? forward_[key(stage, task)] : backward_[key(stage + 1, task)];
    }

    /// Runs the task, or the block of two tasks that it begins. False if an input is missing.
    bool advance(std::size_t rank, const ComputeTask& task) {
        const std::size_t stage = costs_.stages[rank][task.chunk.position()];
        double ready = ready_s(stage, task);
        if (ready == kNever) return false;
        const ComputeTask* const other = costs_.in_blocks.empty() ? nullptr : other_of_block(rank);
        double seconds = seconds_of(rank, task);
        if (other != nullptr) {
            const double other_ready = ready_s(costs_.stages[rank][other->chunk.position()], *other);
            if (other_ready == kNever) return false;
            ready = std::max(ready, other_ready);
            seconds = block_s(rank, task, *other);
        } else if (!costs_.in_blocks.empty() && is_whole(task)) {
            seconds = std::max(seconds, in_block(rank, task).alone_s);
        }
        run_pass(rank, stage, task, ready, seconds);
        if (other != nullptr) {
            ++ranks_[rank].next;
            send(rank, costs_.stages[rank][other->chunk.position()], *other);
        }
        return true;
    }

    /// The task that overlaps with the rank's next one; null if none does.
    [[nodiscard]] const ComputeTask* other_of_block(std::size_t rank) const {
        const std::size_t next = ranks_[rank].next + 1;
        const std::vector<ComputeTask>& order = orders_[rank];
        const bool has_other = next < order.size() && order[next].overlaps_previous;
        return has_other && is_whole(order[next - 1]) && is_whole(order[next]) ? &order[next] : nullptr;
    }

    /// Whether it is a forward or a whole backward.
    [[nodiscard]] static bool is_whole(const ComputeTask& task) {
        return task.kind == ComputeTask::Kind::forward || task.kind == ComputeTask::Kind::backward;
    }

    [[nodiscard]] const PassCosts::InBlock& in_block(std::size_t rank, const ComputeTask& task) const {
        return costs_.in_blocks[rank][task.chunk.position()][task.kind == ComputeTask::Kind::forward ? 0 : 1];
    }

    [[nodiscard]] double block_s(std::size_t rank, const ComputeTask& one, const ComputeTask& other) const {
        const PassCosts::InBlock &a = in_block(rank, one), &b = in_block(rank, other);
        return std::max({a.computation_s + b.computation_s, a.tokens_s + b.tokens_s, a.alone_s, b.alone_s});
    }

    /// The pass, which in a block takes as long as the block.
    void run_pass(std::size_t rank, std::size_t stage, const ComputeTask& task, double ready, double seconds) {
        PassEnds& ends = ends_[rank];
        double before = ends.end_s;
        if (!costs_.traffic.empty()) before += receive_delay_s(rank, stage, task, ready);
        double start = std::max(before, ready);
        if (awaits_send(rank)) start = std::max(start, ranks_[rank].just_sent_s);
        if (!costs_.traffic.empty()) start = std::max(start, gradients_free_s(rank, task));
        double waits = 0;
        if (!costs_.copies.empty()) waits = add_copies(rank, task, ready, start, seconds);
        double regathered = 0;
        if (!costs_.traffic.empty() && is_first(task)) {
            const RankTraffic::OfChunk& chunk = costs_.traffic[rank].chunks[task.chunk.position()];
            regathered = end_regather(rank, task, start);
            start = std::max(start, regathered - chunk.regather_s + chunk.regather_lead_s);
        }
        ends.last_start_s = start;
        ends.end_s = start + seconds;
        if (!costs_.copies.empty() && task.kind == ComputeTask::Kind::forward) {
            ranks_[rank].copied_s = ends.end_s + costs_.copies[rank][task.chunk.position()].after_s;
        }
        if (!costs_.traffic.empty()) {
            ends.end_s = end_beside_traffic(rank, task, {before, start, seconds - waits, waits, regathered});
        }
        send(rank, stage, task);
    }

    /// Sends what the task computed, if another rank receives it.
    void send(std::size_t rank, std::size_t stage, const ComputeTask& task) {
        if (task.kind == ComputeTask::Kind::backward_weight) return;
        const bool forward = task.kind == ComputeTask::Kind::forward;
        const bool is_end = forward ? stage + 1 == holders_.size() : stage == 0;
        const bool sends = !is_end && holders_[forward ? stage + 1 : stage - 1] != rank;
        double& arrives = (forward ? forward_ : backward_)[key(stage, task)] = ends_[rank].end_s;
        if (sends) {
            ranks_[rank].sent_s = arrives += transfer_s(rank, forward);
            if (!costs_.traffic.empty()) ranks_[rank].sent_slowdown = transfer_slowdown(rank, forward);
        }
        ranks_[rank].just_sent_s = sends ? arrives : 0;
    }

    /// Whether the rank's next task waits for the send of the one before it.
    [[nodiscard]] bool awaits_send(std::size_t rank) const {
        return !awaits_send_.empty() && awaits_send_[rank][ranks_[rank].next];
    }

    /// When the pass may begin so that the place of its gradients is free in time, if the chunk is one unit and does
    /// not stage them. Experts write their first gradients late, after their tokens have travelled.
    [[nodiscard]] double gradients_free_s(std::size_t rank, const ComputeTask& task) const {
        const RankTraffic& traffic = costs_.traffic[rank];
        const RankTraffic::OfChunk& chunk = traffic.chunks[task.chunk.position()];
        const bool waits = traffic.reduces_each && !traffic.stages_gradients &&
                           task.kind == ComputeTask::Kind::backward && chunk.units <= 1 && !chunk.has_experts &&
                           chunk.gradient_place >= 0;
        return waits ? ranks_[rank].places_free_s[at(chunk.gradient_place)] - chunk.before_gradients_s : 0;
    }

    /// Delays the pass and lengthens it by its waits for copies. Returns all waits for copies within it.
    double add_copies(std::size_t rank, const ComputeTask& task, double ready, double& start, double& seconds) const {
        const ChunkCopies& copies = costs_.copies[rank][task.chunk.position()];
        if (!copies.offloads) return 0;
        const double copied_s = ranks_[rank].copied_s;
        if (task.kind == ComputeTask::Kind::forward) {
            start = std::max(start, copied_s);
            return copies.forward_waits_s;
        }
        const double begin = std::max({ends_[rank].end_s, copied_s, costs_.copies_after_input ? ready : 0.0});
        const double more = std::max(0.0, copies.before_s + begin - start - copies.uncopied_s);
        seconds += more;
        return copies.backward_waits_s + more;
    }

    [[nodiscard]] double seconds_of(std::size_t rank, const ComputeTask& task) const {
        if (is_first(task) && !costs_.first_forward_s.empty()) {
            return costs_.first_forward_s[rank][task.chunk.position()];
        }
        return costs_.seconds[rank][task.chunk.position()][static_cast<std::size_t>(task.kind)];
    }

    /// By how much receiving the task's input has delayed the pass before it.
    [[nodiscard]] double receive_delay_s(std::size_t rank, std::size_t stage, const ComputeTask& task,
                                         double ready) const {
        if (task.kind == ComputeTask::Kind::backward_weight) return 0;
        const bool forward = task.kind == ComputeTask::Kind::forward;
        if (forward ? stage == 0 : stage + 1 == holders_.size()) return 0;
        const std::size_t sender = holders_[forward ? stage - 1 : stage + 1];
        if (sender == rank) return 0;
        const double seconds = (forward ? costs_.forward_transfer_s : costs_.backward_transfer_s)[sender];
        return delay_s(std::clamp(ends_[rank].end_s - (ready - seconds), 0.0, seconds),
                       transfer_slowdown(rank, !forward));
    }

    /// Beside transfers between the rank and that of the next stage, or of the previous one.
    [[nodiscard]] double transfer_slowdown(std::size_t rank, bool next) const {
        return next ? costs_.traffic[rank].next_slowdown : costs_.traffic[rank].previous_slowdown;
    }

    /// By how much computation is delayed beside communication of so many seconds, at least: those of its operators
    /// that run then may be delayed less than the mean.
    static double delay_s(double beside_s, double slowdown) {
        constexpr double kLeastShare = 0.8;
        return kLeastShare * beside_s * (1 - 1 / slowdown);
    }

    double transfer_s(std::size_t rank, bool forward) {
        double seconds = (forward ? costs_.forward_transfer_s : costs_.backward_transfer_s)[rank];
        if (costs_.traffic.empty()) return seconds;
        Rank& state = ranks_[rank];
        const double now = ends_[rank].end_s;
        // The NIC is shared evenly while it carries collectives.
        const double shared = std::min(costs_.transfer_nic_s, std::max(0.0, state.nic_s - now));
        if (shared > 0) {
            seconds += shared;
            state.nic_s += shared;
        }
        return seconds;
    }

    /// A pass before the communication beside it.
    struct Pass {
        double before = 0, start = 0;  // when the rank could begin it, and when its inputs are there too
        double seconds = 0;            // that it computes
        double waits = 0;              // that it also waits for copies, if nothing else delays it
        double regathered = 0;         // when the parameters of a first forward have been gathered
    };

    /// When the pass ends. Issues the gather before it and the reduction after it.
    double end_beside_traffic(std::size_t rank, const ComputeTask& task, const Pass& pass) {
        const RankTraffic& traffic = costs_.traffic[rank];
        const RankTraffic::OfChunk& chunk = traffic.chunks[task.chunk.position()];
        Rank& state = ranks_[rank];
        const double start = pass.start;
        double seconds = pass.seconds;
        const bool is_forward = task.kind == ComputeTask::Kind::forward;
        const bool has_gradients =
            task.kind == ComputeTask::Kind::backward || task.kind == ComputeTask::Kind::backward_weight;
        const bool reduces = has_gradients && !traffic.reduces_at_end && (traffic.reduces_each || is_last(task)) &&
                             chunk.reduction_s > 0;
        if (reduces) seconds += chunk.staging_s;
        double end = start + seconds;
        if (reduces && traffic.stages_gradients && chunk.units <= 1) {
            end = std::max(end, state.reduced_s + chunk.staging_s);
        }
        end += delay_s(std::min(seconds, std::max(0.0, state.sent_s - start)), state.sent_slowdown);
        end += delay_s(std::clamp(state.regathered_s - start, 0.0, seconds), traffic.regather_slowdown);
        if (is_first(task) && chunk.units > 1) end = std::max(end, pass.regathered + seconds / chunk.units);
        const bool uses_parameters = is_forward ? traffic.gathers_forward : traffic.gathers_backward;
        if (chunk.gather_s > 0 && uses_parameters && task.kind != ComputeTask::Kind::backward_weight) {
            // A unit is gathered while the one before it is used.
            const double issue = std::max({0.0, pass.before - state.unit_s, state.gathered_s});
            // The NIC is shared evenly with reductions.
            const double shared = std::clamp(state.nic_s - issue, 0.0, chunk.gather_nic_s);
            state.gathered_s = issue + std::max(chunk.gather_s, chunk.gather_nic_s + shared);
            state.nic_s = std::max(state.nic_s, issue) + chunk.gather_nic_s;
            end += delay_s(std::clamp(state.gathered_s - start, 0.0, seconds), traffic.gather_slowdown);
            end = std::max(end, state.gathered_s + seconds / chunk.units);
        }
        double beside = std::max(0.0, state.reduced_s - start);
        double reduction = chunk.reduction_s, nic = chunk.reduction_nic_s;
        if (is_last(task)) {
            reduction = std::max(reduction, chunk.replication_s);
            nic += chunk.replication_nic_s;
        }
        if (reduces) {
            // Pieces are reduced one by one from the end of the first one's computation on.
            const double issue = start + seconds / chunk.pieces;
            beside += reduction * (chunk.units - 1) / chunk.units;
            state.nic_s = std::max(state.nic_s, issue) + nic;
            state.reduced_s = std::max(std::max(state.reduced_s, issue) + reduction, state.nic_s);
        }
        end += delay_s(std::min(beside, end - start), traffic.reduction_slowdown);
        end = std::max(end, start + seconds + pass.waits);
        if (reduces) {
            state.reduced_s = std::max(state.reduced_s, end + reduction / chunk.pieces);
            note_places(chunk, reduction, state);
        }
        state.unit_s = (seconds + pass.waits) / chunk.units;
        return end;
    }

    /// The chunk's reduction has been issued.
    static void note_places(const RankTraffic::OfChunk& chunk, double reduction, Rank& state) {
        if (chunk.units <= 1 && chunk.gradient_place >= 0) {
            state.places_free_s[at(chunk.gradient_place)] = state.reduced_s;
        } else {
            state.places_free_s.fill(state.reduced_s - reduction / chunk.units);  // its units take turns
        }
    }

    /// When the updated parameters of the task's chunk have been gathered, if its input is there at `ready`.
    double end_regather(std::size_t rank, const ComputeTask& task, double ready) {
        Rank& state = ranks_[rank];
        if (state.chunks_regathered_s.empty()) return 0;
        if (!costs_.regathers_after_input) return state.chunks_regathered_s[task.chunk.position()];
        const double seconds = costs_.traffic[rank].chunks[task.chunk.position()].regather_s;
        return state.regathered_s = std::max(state.regathered_s, ready) + seconds;
    }

    [[nodiscard]] static bool is_first(const ComputeTask& task) {
        return task.kind == ComputeTask::Kind::forward && task.micro_batch == 0;
    }
    [[nodiscard]] bool is_last(const ComputeTask& task) const {
        return static_cast<std::size_t>(task.micro_batch) + 1 == micro_batches_;
    }

    const std::vector<std::vector<ComputeTask>>& orders_;
    const std::vector<std::vector<bool>>& awaits_send_;
    const PassCosts& costs_;
    std::vector<Rank> ranks_;
    std::vector<PassEnds> ends_;
    std::vector<std::size_t> holders_;  // the rank of each virtual stage
    std::size_t micro_batches_ = 0;
    std::vector<double> forward_, backward_;  // when the next stage has the output of a pass
};

}  // namespace

PassOrders pass_orders(const program::ScheduleShape& shape, bool fuses) {
    PassOrders orders{.tasks = program::compute_orders(shape)};
    // With several chunks fused calls join passes in pairs (program::lower), which these orders leave apart.
    if (!fuses || shape.chunks > 1) return orders;
    const program::TaskTimeline timeline(shape, orders.tasks, {.posts_receives_ahead = false});
    for (std::size_t rank = 0; rank < orders.tasks.size(); ++rank) {
        std::vector<bool>& awaits = orders.awaits_send.emplace_back(orders.tasks[rank].size(), false);
        for (std::size_t t = 1; t < awaits.size(); ++t) {
            awaits[t] = timeline.awaits_send(static_cast<std::int64_t>(rank), t, t - 1);
        }
    }
    return orders;
}

std::vector<PassEnds> walk_passes(const PassOrders& orders, const PassCosts& costs) {
    return PassWalk(orders, costs).run();
}

}  // namespace orrery::sim
