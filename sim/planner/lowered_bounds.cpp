#include "sim/planner/lowered_bounds.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/units.h"
#include "sim/planner/isolated_times.h"
#include "sim/planner/planner.h"
#include "sim/program/device_memory.h"
#include "sim/program/schedule.h"

namespace orrery::sim {

namespace {

using program::Action;
using program::ActionKind;
using program::ChunkIndex;
using program::ClassIndex;
using program::ComputeTask;
using program::Plan;
using program::Program;
using program::RankClass;
using program::Schedule;
using program::SegmentListId;
using program::Stream;

/// Allows for the simulator's rounding of each instruction to a picosecond.
constexpr double kRounding = 1 - 1e-6;
constexpr double kNever = -1;
/// In pipelines with more passes the critical path is not walked: the ramp and the slowest rank give a tight enough
/// bound.
constexpr std::int64_t kMostTasks = 1 << 17;

std::size_t at(std::int64_t index) {
    return static_cast<std::size_t>(index);
}

/// From this many micro-batches on another one changes neither the number in flight nor, in schedules that keep all
/// alive, the bytes that each adds.
std::int64_t settled_micro_batches(const Plan& plan) {
    const program::Parallelism& p = plan.parallelism;
    if (p.interleave_group != 0) return plan.micro_batches();
    const program::ScheduleRow& row = row_of(p.schedule);
    return row.settled_depths * p.pp + row.settled_more;
}

/// Lower bound on the whole plan's step time, from the durations of passes in a lowering with few micro-batches.
class StepBound {
  public:
    /// Keeps references. `few`: a lowering of the plan, or of the plan with fewer micro-batches.
    StepBound(const Program& few, const Plan& plan, const topologies::Cluster& cluster, const RooflineCost& cost)
        : program_(few), shape_(program::schedule_shape(plan)), times_(few, cluster, cost) {
        further_ = plan.micro_batches() - few.plan->micro_batches();
        for (const ClassIndex r : few.classes.indices()) read_passes(r);
        for (const RankClass& ranks : few.classes) {
            for (const program::Chunk& chunk : ranks.chunks) {
                stages_ = std::max(stages_, chunk.virtual_stage + 1);
            }
        }
        holders_.resize(at(stages_));
        for (const ClassIndex r : few.classes.indices()) {
            for (const program::Chunk& chunk : few.classes[r].chunks) holders_[at(chunk.virtual_stage)] = r;
        }
    }

    double seconds() {
        // Each of DualPipe's chunks runs half of the micro-batches.
        const bool halves = row_of(shape_.schedule).model_copies() > 1 && shape_.ranks > 1;
        const double each = static_cast<double>(shape_.micro_batches) / (halves ? 2 : 1);
        double least = 0, ramp = 0;
        for (const ClassIndex r : ranks_.indices()) {
            const Rank& rank = ranks_[r];
            least = std::max(least, each * rank.micro_batch_s - rank.last_s + rank.tail_s);
            const SharedStreams streams = communication(r);
            least = std::max(least, streams.most_s());
            const double passes = each * rank.micro_batch_s;
            least = std::max(least, passes - rank.last_s + rank.tail_s + delay_s(streams, passes, rank.tail_s));
            if (row_of(shape_.schedule).splits_backward()) continue;
            // The first micro-batch arrives through the first chunks of the earlier ranks, and the last gradient leaves
            // through them.
            const double tail = ranks_[0].tail_s;
            least = std::max(least, ramp + passes - ranks_[0].last_s + tail + delay_s(streams, passes, ramp + tail));
            ramp += rank.seconds(ActionKind::forward, 0) + rank.seconds(ActionKind::backward, 0);
        }
        // DualPipe feeds both ends of the pipeline, so there is no single path; the bounds of each rank alone are tight
        // enough.
        const bool has_path = !halves && (further_ == 0 || !row_of(shape_.schedule).depends_on_times()) &&
                              shape_.micro_batches * shape_.ranks * shape_.chunks <= kMostTasks;
        if (has_path) least = std::max(least, path_s());
        return kRounding * least;
    }

  private:
    using PassTimes = std::map<std::pair<ActionKind, ChunkIndex>, double>;
    struct Rank {
        PassTimes least;           // the shortest list of each kind; lists differ in their gathers and reductions
        double micro_batch_s = 0;  // all passes of one micro-batch, with split or whole backward, whichever is less
        double last_s = 0;         // duration of the last pass
        double tail_s = 0;         // from the start of the last pass to the end of the optimizer
        double send_forward_s = 0, send_backward_s = 0;

        [[nodiscard]] double seconds(ActionKind kind, ChunkIndex chunk) const {
            const auto entry = least.find({kind, chunk});
            return entry == least.end() ? kNever : entry->second;
        }
        /// A schedule may split some backward passes and leave others whole.
        [[nodiscard]] double backward_s(ChunkIndex chunk) const {
            const double whole = seconds(ActionKind::backward, chunk);
            const double input = seconds(ActionKind::backward_input, chunk);
            if (input == kNever) return whole;
            const double split = input + seconds(ActionKind::backward_weight, chunk);
            return whole == kNever ? split : std::min(whole, split);
        }
    };

    void read_passes(ClassIndex r) {
        const RankClass& ranks = program_.classes[r];
        Rank& rank = ranks_.emplace_back();
        std::vector<SegmentListId> tail;
        ActionKind last{};
        ChunkIndex last_chunk = 0;
        for (const Action& action : ranks.actions) {
            if (action.kind == ActionKind::send_forward) rank.send_forward_s = times_.transfer_s(r, action.segments);
            if (action.kind == ActionKind::send_backward) rank.send_backward_s = times_.transfer_s(r, action.segments);
            if (is_pass(action.kind)) {
                const double seconds = list_s(r, action.segments);
                const auto [entry, fresh] = rank.least.try_emplace({action.kind, action.chunk}, seconds);
                if (!fresh) entry->second = std::min(entry->second, seconds);
                if (action.kind != ActionKind::forward) tail.assign(1, action.segments);
                last = action.kind;
                last_chunk = action.chunk;
            } else if (action.kind == ActionKind::sync_gradients || action.kind == ActionKind::optimizer_step) {
                tail.push_back(action.segments);
            }
        }
        for (const ChunkIndex chunk : ranks.chunks.indices()) {
            rank.micro_batch_s += rank.seconds(ActionKind::forward, chunk) + rank.backward_s(chunk);
        }
        rank.last_s = rank.seconds(last, last_chunk);
        rank.tail_s = times_.lists_s(r, tail);
    }

    double list_s(ClassIndex rank, SegmentListId list) {
        const auto [entry, fresh] = lists_.try_emplace({rank, list}, 0.0);
        if (fresh) entry->second = times_.computation_s(rank, list);
        return entry->second;
    }

    /// A rank's communication and the computation beside it, over the whole step.
    struct SharedStreams {
        program::PerStream<double> seconds{}, least_held{};
        double nic_s = 0;
        ComputeDraws draws;

        [[nodiscard]] double most_s() const {
            return std::max(nic_s, *std::max_element(seconds.begin(), seconds.end()));
        }
    };

    /// Each micro-batch beyond the lowered ones adds as much as one from the middle of the step; for DualPipe, whose
    /// micro-batches run in two directions, further ones add nothing.
    SharedStreams communication(ClassIndex r) {
        const RankClass& ranks = program_.classes[r];
        SharedStreams sum;
        sum.least_held.fill(1);
        const std::int64_t middle = program_.plan->micro_batches() / 2;
        for (const Action& action : ranks.actions) {
            if (!is_pass(action.kind) && action.kind != ActionKind::sync_gradients) continue;
            const bool repeats = action.micro_batch == middle && row_of(shape_.schedule).model_copies() == 1;
            const double times = repeats ? 1 + static_cast<double>(further_) : 1;
            const SharedStreams& list = shared_streams(r, action.segments);
            sum.nic_s += times * list.nic_s;
            sum.draws.add(list.draws, times);
            for (const Stream stream : kShared) {
                sum.seconds[stream] += times * list.seconds[stream];
                sum.least_held[stream] = std::min(sum.least_held[stream], list.least_held[stream]);
            }
        }
        return sum;
    }

    const SharedStreams& shared_streams(ClassIndex r, SegmentListId list) {
        const auto [entry, fresh] = streams_.try_emplace({r, list});
        if (!fresh) return entry->second;
        SharedStreams& shared = entry->second;
        shared.nic_s = times_.nic_s(r, list);
        shared.draws = times_.draws(r, list);
        for (const Stream stream : kShared) {
            shared.seconds[stream] = times_.stream_s(r, list, stream);
            shared.least_held[stream] = times_.least_held(r, list, stream);
        }
        return shared;
    }

    /// By how much data-parallel communication delays the rank's passes at least, if nothing is computed for `idle_s`.
    static double delay_s(const SharedStreams& streams, double passes_s, double idle_s) {
        const double free = idle_s + std::max(0.0, passes_s - streams.draws.seconds());
        double most = 0;
        for (const Stream stream : {Stream::dp, Stream::dp_gather}) {
            most =
                std::max(most, streams.draws.least_delay_s(streams.least_held[stream], streams.seconds[stream], free));
        }
        return most;
    }

    static ActionKind action_kind(ComputeTask::Kind kind) {
        switch (kind) {
            case ComputeTask::Kind::forward:
                return ActionKind::forward;
            case ComputeTask::Kind::backward:
                return ActionKind::backward;
            case ComputeTask::Kind::backward_input:
                return ActionKind::backward_input;
            case ComputeTask::Kind::backward_weight:
                return ActionKind::backward_weight;
        }
        throw_bug(__FILE__, __LINE__, "ComputeTask::Kind", "unknown kind");
    }

    /// Duration of the task's kind among the lowered micro-batches. A kind that occurs only in the whole plan is
    /// replaced by a lower bound.
    double task_s(const Rank& rank, const ComputeTask& task) const {
        const double known = rank.seconds(action_kind(task.kind), task.chunk);
        if (known != kNever) return known;
        return task.kind == ComputeTask::Kind::backward ? rank.backward_s(task.chunk) : 0;
    }

    [[nodiscard]] std::size_t key(bool forward, std::int64_t stage, std::int32_t micro_batch) const {
        return at(((forward ? 0 : stages_) + stage) * shape_.micro_batches + micro_batch);
    }

    /// When the task's inputs from other stages are ready; kNever: not known yet.
    double ready_s(const std::vector<double>& done, std::int64_t stage, const ComputeTask& task) const {
        if (task.kind == ComputeTask::Kind::backward_weight) return 0;
        const bool forward = task.kind == ComputeTask::Kind::forward;
        if (forward && stage == 0) return 0;
        if (!forward && stage + 1 == stages_) return done[key(true, stage, task.micro_batch)];
        return done[key(forward, forward ? stage - 1 : stage + 1, task.micro_batch)];
    }

    /// Critical path through the graph of passes: each rank runs in its own order, each pass after the pass of the
    /// stage that feeds it.
    double path_s() const {
        const std::vector<std::vector<ComputeTask>> orders = orders_of();
        std::vector<double> done(at(2 * stages_ * shape_.micro_batches), kNever);
        IndexedVector<ClassIndex, double> free(ranks_.size(), 0), last_start(ranks_.size(), 0);
        IndexedVector<ClassIndex, std::size_t> next(ranks_.size(), 0);
        for (bool goes_on = true; goes_on;) {
            goes_on = false;
            for (const ClassIndex r : ranks_.indices()) {
                const Rank& rank = ranks_[r];
                const std::vector<ComputeTask>& order = orders[r.position()];
                for (; next[r] < order.size(); ++next[r]) {
                    const ComputeTask& task = order[next[r]];
                    const std::int64_t stage = program_.classes[r].chunks[task.chunk].virtual_stage;
                    const double ready = ready_s(done, stage, task);
                    if (ready == kNever) break;
                    goes_on = true;
                    last_start[r] = std::max(free[r], ready);
                    free[r] = last_start[r] + task_s(rank, task);
                    if (task.kind == ComputeTask::Kind::backward_weight) continue;
                    const bool forward = task.kind == ComputeTask::Kind::forward;
                    const std::int64_t to = forward ? stage + 1 : stage - 1;
                    const bool sends = to >= 0 && to < stages_ && holders_[at(to)] != r;
                    done[key(forward, stage, task.micro_batch)] = free[r] + (!sends    ? 0
                                                                             : forward ? rank.send_forward_s
                                                                                       : rank.send_backward_s);
                }
            }
        }
        for (const ClassIndex r : ranks_.indices()) {
            ORRERY_CHECK(next[r] == orders[r.position()].size(), "a schedule that deadlocks");
        }
        return last_start.front() + ranks_.front().tail_s;
    }

    /// Orders of the whole plan. The order of a schedule that depends on durations is known from the Program only.
    [[nodiscard]] std::vector<std::vector<ComputeTask>> orders_of() const {
        if (!row_of(shape_.schedule).depends_on_times()) return program::compute_orders(shape_);
        std::vector<std::vector<ComputeTask>> orders;
        for (const RankClass& ranks : program_.classes) {
            std::vector<ComputeTask>& order = orders.emplace_back();
            for (const Action& action : ranks.actions) {
                if (!is_pass(action.kind)) continue;
                for (const auto kind : {ComputeTask::Kind::forward, ComputeTask::Kind::backward,
                                        ComputeTask::Kind::backward_input, ComputeTask::Kind::backward_weight}) {
                    if (action_kind(kind) == action.kind) order.push_back({kind, action.chunk, action.micro_batch});
                }
            }
        }
        return orders;
    }

    const Program& program_;
    program::ScheduleShape shape_;  // the whole plan's
    std::int64_t further_ = 0;      // micro-batches beyond the Program's
    IsolatedTimes times_;
    std::int64_t stages_ = 0;          // virtual stages
    std::vector<ClassIndex> holders_;  // of each virtual stage
    IndexedVector<ClassIndex, Rank> ranks_;
    std::map<std::pair<ClassIndex, SegmentListId>, double> lists_;
    static constexpr std::array kShared{Stream::tp, Stream::cp, Stream::ep, Stream::dp, Stream::dp_gather};
    std::map<std::pair<ClassIndex, SegmentListId>, SharedStreams> streams_;
};

std::int64_t most_bytes(const Program& program) {
    std::int64_t most = 0;
    for (const RankClass& ranks : program.classes) most = std::max(most, peak_memory_bytes(program, ranks));
    return most;
}

/// The Program with few micro-batches, and the peak memory of the whole plan.
struct Few {
    Program program;
    std::int64_t peak_memory_bytes = 0;
};

Few lower_few(const Plan& plan) {
    const std::int64_t few = settled_micro_batches(plan), whole = plan.micro_batches();
    Few result{.program = program::lower(whole > few ? with_micro_batches(plan, few) : plan)};
    result.peak_memory_bytes = most_bytes(result.program);
    if (whole <= few || !row_of(plan.parallelism.schedule).keeps_all_alive) return result;
    const Program next = program::lower(with_micro_batches(plan, few + 1));
    for (const ClassIndex c : next.classes.indices()) {
        const std::int64_t here = peak_memory_bytes(result.program, result.program.classes[c]);
        const std::int64_t growth = peak_memory_bytes(next, next.classes[c]) - here;
        result.peak_memory_bytes = std::max(result.peak_memory_bytes, here + (whole - few) * growth);
    }
    return result;
}

}  // namespace

std::int64_t peak_memory_bytes(const Program& program, const RankClass& rank_class) {
    return program::device_memory(program, rank_class).in_use();
}

std::int64_t lowered_memory_bytes(const Plan& plan) {
    return lower_few(plan).peak_memory_bytes;
}

LoweredBounds lowered_bounds(const Plan& plan, const topologies::Cluster& cluster, const RooflineCost& cost) {
    const Few few = lower_few(plan);
    // DataParallel's rank classes are not pipeline stages. Its candidates are few, so each is simulated.
    if (plan.parallelism.data_parallel == program::DataParallel::dp)
        return {.peak_memory_bytes = few.peak_memory_bytes};
    return {.peak_memory_bytes = few.peak_memory_bytes,
            .least_step_s = StepBound(few.program, plan, cluster, cost).seconds()};
}

}  // namespace orrery::sim
