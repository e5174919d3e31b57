#include "sim/planner/lowered_bounds.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/index.h"
#include "core/units.h"
#include "sim/planner/isolated_times.h"
#include "sim/planner/pass_walk.h"
#include "sim/planner/planner.h"
#include "sim/program/device_memory.h"
#include "sim/program/schedule.h"
#include "sim/program/transfer_rules.h"

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

constexpr double kNever = -1;

/// From this many micro-batches on another one changes neither the number in flight nor, in schedules that keep all
/// alive, the bytes that each adds.
std::int64_t settled_micro_batches(const Plan& plan) {
    const program::Parallelism& p = plan.parallelism;
    if (p.interleave_group != 0) return plan.micro_batches();
    if (p.spreads_vocabulary()) return 2 * p.pp + 4;  // with at most 1.5 micro-batches in flight per stage
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
    }

    double seconds() {
        // Each of DualPipe's chunks runs half of the micro-batches.
        const bool halves = row_of(shape_.schedule).model_copies() > 1 && shape_.ranks > 1;
        const double each = static_cast<double>(shape_.micro_batches) / (halves ? 2 : 1);
        double least = 0, ramp = 0;
        for (const ClassIndex r : ranks_.indices()) {
            const Rank& rank = ranks_[r];
            const SharedStreams streams = shared_streams(r);
            const double passes = each * rank.micro_batch_s;
            least = std::max(least, streams.most_s());
            least = std::max(least, passes - rank.last_s + rank.tail_s + streams.delay_s(passes, rank.tail_s));
            if (row_of(shape_.schedule).splits_backward()) continue;
            // The first micro-batch arrives through the first chunks of the earlier ranks, and the last gradient leaves
            // through them.
            const double tail = ranks_[0].tail_s;
            least = std::max(
                least, ramp + passes - rank.outside_s - ranks_[0].last_s + tail + streams.delay_s(passes, ramp + tail));
            ramp += rank.seconds(ActionKind::forward, 0) + rank.seconds(ActionKind::backward, 0);
        }
        // DualPipe feeds both ends of the pipeline, so there is no single path; the bounds of each rank alone are tight
        // enough.
        const bool has_path = !halves && !program_.plan->parallelism.spreads_vocabulary() &&
                              (further_ == 0 || !row_of(shape_.schedule).depends_on_times()) &&
                              shape_.micro_batches * shape_.ranks * shape_.chunks <= kMostWalkedPasses;
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
        /// Passes of the vocabulary before the first and after the last pass of the blocks.
        double outside_s = 0;
        double send_forward_s = 0, send_backward_s = 0;
        /// Of each chunk's first forward, with the gathers that it begins.
        IndexedVector<ChunkIndex, double> first_forward_s;

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
        const bool host_waits = program::host_waits_for_transfers(
            shape_.schedule, program_.plan->parallelism.vocabulary_parallel, program_.plan->implementation);
        rank.first_forward_s.assign(ranks.chunks.size(), kNever);
        std::map<std::pair<ActionKind, ChunkIndex>, double> parts_s;  // of passes in parts: those so far
        for (const Action& action : ranks.actions) {
            if (action.kind == ActionKind::send_forward) rank.send_forward_s = times_.transfer_s(r, action.segments);
            if (action.kind == ActionKind::send_backward) rank.send_backward_s = times_.transfer_s(r, action.segments);
            if (is_pass(action.kind)) {
                // A pass in parts computes while its tokens travel or not at all, and counts with what its parts
                // compute.
                double& before_s = parts_s[{action.kind, action.chunk}];
                const double seconds = (action.begins() ? 0 : before_s) + list_s(r, action.segments);
                before_s = seconds;
                if (!action.ends()) continue;
                const auto [entry, fresh] = rank.least.try_emplace({action.kind, action.chunk}, seconds);
                if (!fresh) entry->second = std::min(entry->second, seconds);
                if (action.kind == ActionKind::forward && rank.first_forward_s[action.chunk] == kNever) {
                    // Gathers that the host issues before the pass's input is there may have ended by then.
                    const bool begins_gathers = host_waits || ranks.chunks[action.chunk].virtual_stage == 0;
                    rank.first_forward_s[action.chunk] =
                        begins_gathers ? times_.lists_s(r, {action.segments}) : seconds;
                }
                if (action.kind != ActionKind::forward) tail.assign(1, action.segments);
                last = action.kind;
                last_chunk = action.chunk;
            } else if (action.kind == ActionKind::sync_gradients || action.kind == ActionKind::optimizer_step) {
                tail.push_back(action.segments);
            }
        }
        for (const ChunkIndex chunk : ranks.chunks.indices()) {
            // An interlaced vocabulary has no backward pass of its output.
            rank.micro_batch_s += rank.seconds(ActionKind::forward, chunk) + std::max(0.0, rank.backward_s(chunk));
        }
        if (program_.plan->parallelism.spreads_vocabulary()) rank.outside_s = outside_s(ranks, rank);
        rank.last_s = rank.seconds(last, last_chunk);
        rank.tail_s = times_.lists_s(r, tail);
    }

    static double outside_s(const RankClass& ranks, const Rank& rank) {
        const auto is_of_blocks = [&](const Action& action) {
            return is_pass(action.kind) && ranks.chunks[action.chunk].part == program::ChunkPart::stage;
        };
        const auto first = std::find_if(ranks.actions.begin(), ranks.actions.end(), is_of_blocks);
        const auto last = std::find_if(ranks.actions.rbegin(), ranks.actions.rend(), is_of_blocks).base();
        double sum = 0;
        const auto add = [&](auto from, auto to) {
            for (; from != to; ++from) sum += is_pass(from->kind) ? rank.seconds(from->kind, from->chunk) : 0;
        };
        add(ranks.actions.begin(), first);
        add(last, ranks.actions.end());
        return sum;
    }

    double list_s(ClassIndex rank, SegmentListId list) {
        const auto [entry, fresh] = lists_.try_emplace({rank, list}, 0.0);
        if (fresh) entry->second = times_.computation_s(rank, list);
        return entry->second;
    }

    /// A rank's communication and the computation beside it.
    struct SharedStreams {
        program::PerStream<CommunicationTimes> communication;
        ComputeDraws draws;

        void add(const SharedStreams& other, double times) {
            for (const Stream stream : program::kStreams) communication[stream].add(other.communication[stream], times);
            draws.add(other.draws, times);
        }
        /// The time of the busiest stream, or of the NIC that all of them share.
        [[nodiscard]] double most_s() const {
            double most = 0, nic = 0;
            for (const CommunicationTimes& times : communication) {
                most = std::max(most, times.seconds);
                nic += times.nic_s;
            }
            return std::max(most, nic);
        }
        /// By how much data-parallel communication delays passes of this length at least, if nothing is computed for
        /// `idle_s`.
        [[nodiscard]] double delay_s(double passes_s, double idle_s) const {
            const double free = idle_s + std::max(0.0, passes_s - draws.seconds());
            return std::max(draws.least_delay_s(communication[Stream::dp], free),
                            draws.least_delay_s(communication[Stream::dp_gather], free));
        }
    };

    /// Of the whole step. Each micro-batch beyond the lowered ones adds as much as one from the middle of the step; for
    /// DualPipe, whose micro-batches run in two directions, further ones add nothing.
    SharedStreams shared_streams(ClassIndex r) {
        SharedStreams sum;
        const std::int64_t middle = program_.plan->micro_batches() / 2;
        for (const Action& action : program_.classes[r].actions) {
            if (!is_pass(action.kind) && action.kind != ActionKind::sync_gradients) continue;
            const bool repeats = action.micro_batch == middle && row_of(shape_.schedule).model_copies() == 1;
            const auto [list, fresh] = streams_.try_emplace({r, action.segments});
            if (fresh) list->second = {times_.communication(r, action.segments), times_.draws(r, action.segments)};
            sum.add(list->second, repeats ? 1 + static_cast<double>(further_) : 1);
        }
        return sum;
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
    static double task_s(const Rank& rank, const ComputeTask& task) {
        const double known = rank.seconds(action_kind(task.kind), task.chunk);
        if (known != kNever) return known;
        return task.kind == ComputeTask::Kind::backward ? rank.backward_s(task.chunk) : 0;
    }

    double path_s() const {
        PassCosts costs;
        for (const RankClass& ranks : program_.classes) {
            std::vector<std::size_t>& stages = costs.stages.emplace_back();
            for (const program::Chunk& chunk : ranks.chunks) stages.push_back(at(chunk.virtual_stage));
        }
        for (const Rank& rank : ranks_) {
            std::vector<PassCosts::OfChunk>& chunks = costs.seconds.emplace_back();
            for (const ChunkIndex chunk : program_.classes[ClassIndex::of(costs.seconds.size() - 1)].chunks.indices()) {
                PassCosts::OfChunk& seconds = chunks.emplace_back();
                for (const auto kind : {ComputeTask::Kind::forward, ComputeTask::Kind::backward,
                                        ComputeTask::Kind::backward_input, ComputeTask::Kind::backward_weight}) {
                    seconds.at(static_cast<std::size_t>(kind)) = task_s(rank, {kind, chunk});
                }
            }
            costs.first_forward_s.emplace_back(rank.first_forward_s.begin(), rank.first_forward_s.end());
            costs.forward_transfer_s.push_back(rank.send_forward_s);
            costs.backward_transfer_s.push_back(rank.send_backward_s);
        }
        return walk_passes(orders_of(), costs).front().last_start_s + ranks_.front().tail_s;
    }

    /// Orders of the whole plan. The order of a schedule that depends on durations is known from the Program only.
    [[nodiscard]] PassOrders orders_of() const {
        if (!row_of(shape_.schedule).depends_on_times()) {
            return pass_orders(shape_, program::fuses_transfers(shape_.schedule, program_.plan->implementation));
        }
        PassOrders orders;
        for (const RankClass& ranks : program_.classes) {
            std::vector<ComputeTask>& order = orders.tasks.emplace_back();
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
    IndexedVector<ClassIndex, Rank> ranks_;
    std::map<std::pair<ClassIndex, SegmentListId>, double> lists_;
    std::map<std::pair<ClassIndex, SegmentListId>, SharedStreams> streams_;
};

std::int64_t most_bytes(const Program& program) {
    std::int64_t most = 0;
    for (const RankClass& ranks : program.classes) most = std::max(most, peak_memory_bytes(program, ranks));
    return most;
}

}  // namespace

std::int64_t peak_memory_bytes(const Program& program, const RankClass& rank_class) {
    return program::device_memory(program, rank_class).in_use();
}

FewMicroBatches::FewMicroBatches(Plan plan) : plan_(std::move(plan)) {
    const std::int64_t few = settled_micro_batches(plan_), whole = plan_.micro_batches();
    program_ = program::lower(whole > few ? with_micro_batches(plan_, few) : plan_);
    peak_memory_bytes_ = most_bytes(program_);
    if (whole <= few || !row_of(plan_.parallelism.schedule).keeps_all_alive) return;
    const Program next = program::lower(with_micro_batches(plan_, few + 1));
    for (const ClassIndex c : next.classes.indices()) {
        const std::int64_t here = sim::peak_memory_bytes(program_, program_.classes[c]);
        const std::int64_t growth = sim::peak_memory_bytes(next, next.classes[c]) - here;
        peak_memory_bytes_ = std::max(peak_memory_bytes_, here + (whole - few) * growth);
    }
}

LoweredBounds FewMicroBatches::bounds(const topologies::Cluster& cluster, const RooflineCost& cost) const {
    LoweredBounds found{.peak_memory_bytes = peak_memory_bytes_};
    // DataParallel's rank classes are not pipeline stages. Its candidates are few, so each is simulated.
    if (plan_.parallelism.data_parallel != program::DataParallel::dp)
        found.least_step_s = StepBound(program_, plan_, cluster, cost).seconds();
    return found;
}

std::int64_t lowered_memory_bytes(const Plan& plan) {
    return FewMicroBatches(plan).peak_memory_bytes();
}

program::MemoryNeed lowered_memory_need(const Plan& plan) {
    const FewMicroBatches few(plan);
    const RankClass* fullest = nullptr;
    std::int64_t most = -1;
    for (const RankClass& ranks : few.program().classes) {
        const std::int64_t here = peak_memory_bytes(few.program(), ranks);
        if (here > most) fullest = &ranks;
        most = std::max(most, here);
    }
    ORRERY_CHECK(fullest != nullptr, "a program without ranks");
    const program::MemoryFootprint& memory = fullest->memory;
    const bool is_arena = plan.cluster.device.host_runs_compute;
    // What further micro-batches add is activations.
    return {.where = fullest->name,
            .needed_bytes = few.peak_memory_bytes(),
            .allowed_bytes = 0,
            .states_bytes = memory.parameters + memory.gradients + memory.optimizer_states,
            .activation_bytes = few.peak_memory_bytes() - most +
                                (is_arena ? memory.activations_arena + memory.transients_arena
                                          : memory.activations_at_peak + memory.transients_at_peak)};
}

LoweredBounds lowered_bounds(const Plan& plan, const topologies::Cluster& cluster, const RooflineCost& cost) {
    return FewMicroBatches(plan).bounds(cluster, cost);
}

}  // namespace orrery::sim
