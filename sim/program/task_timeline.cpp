#include "sim/program/task_timeline.h"

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "sim/program/vocabulary.h"

namespace orrery::program {

using Kind = ComputeTask::Kind;

namespace {

/// The part of a micro-batch's activations that a task takes, or if negative releases.
double activations_of(const ComputeTask& task, double after_input) {
    return task.kind == Kind::forward          ? 1
           : task.kind == Kind::backward       ? -1
           : task.kind == Kind::backward_input ? -(1 - after_input)
                                               : -after_input;
}

}  // namespace

TaskTimeline::TaskTimeline(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders,
                           TransferRules rules)
    // F, I and W of every chunk take the one unit that a shape's times are by default.
    : TaskTimeline({.schedule = shape.schedule,
                    .ranks = shape.ranks,
                    .chunks = shape.chunks,
                    .micro_batches = shape.micro_batches},
                   orders, 1, rules) {
    ORRERY_CHECK(stuck().empty(), "the schedule waits forever at " + stuck());
}

TaskTimeline::TaskTimeline(ScheduleShape shape, const std::vector<std::vector<ComputeTask>>& orders, double chunk_share,
                           TransferRules rules)
    : shape_(std::move(shape)),
      orders_(orders),
      chunk_share_(chunk_share),
      rules_(rules),
      chunks_(shape_.chunks),
      spans_(orders.size()) {
    ORRERY_CHECK(static_cast<std::int64_t>(orders.size()) == shape_.ranks, "one order for each rank");
    for (const std::vector<ComputeTask>& order : orders_) {
        for (const ComputeTask& task : order) chunks_ = std::max<std::int64_t>(chunks_, task.chunk.value() + 1);
    }
    positions_.assign(at(shape_.ranks * chunks_ * shape_.micro_batches * 2), kNoTask);
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
        const std::vector<ComputeTask>& order = orders_[at(rank)];
        spans_[at(rank)].reserve(order.size());
        for (std::size_t t = 0; t < order.size(); ++t) {
            if (order[t].kind == Kind::backward_weight) continue;
            positions_[index_of(rank, order[t])] = t;
        }
    }
    for (bool moved = true; moved;) {
        moved = false;
        for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
            while (advance(rank)) moved = true;
        }
    }
}

std::size_t TaskTimeline::index_of(std::int64_t rank, const ComputeTask& task) const {
    ORRERY_CHECK(task.chunk >= 0 && task.chunk.value() < chunks_ && task.micro_batch >= 0 &&
                     task.micro_batch < shape_.micro_batches,
                 "a task outside the schedule's shape");
    const std::int64_t pair = (rank * chunks_ + task.chunk.value()) * shape_.micro_batches + task.micro_batch;
    return at(2 * pair + (task.kind == Kind::forward ? 0 : 1));
}

bool TaskTimeline::advance(std::int64_t rank) {
    const std::vector<ComputeTask>& order = orders_[at(rank)];
    std::vector<TimeSpan>& spans = spans_[at(rank)];
    std::size_t after = spans.size();
    if (after == order.size()) return false;
    double begin = spans.empty() ? 0 : spans.back().end, length = 0;
    do {
        begin = std::max(begin, ready(rank, after));
        length += duration(rank, order[after]);
        ++after;
    } while (after < order.size() && order[after].overlaps_previous);
    if (begin == kNever) return false;
    spans.resize(after, {begin, begin + length});
    return true;
}

double TaskTimeline::duration(std::int64_t rank, const ComputeTask& task) const {
    if (is_vocabulary(task)) return kVocabularyTime;
    const auto [forward, input, weight] = stage_times(shape_, rank);
    const double stage_time = task.kind == Kind::forward          ? forward
                              : task.kind == Kind::backward       ? input + weight
                              : task.kind == Kind::backward_input ? input
                                                                  : weight;
    return stage_time * chunk_share_;
}

double TaskTimeline::ready(std::int64_t rank, std::size_t t) const {
    ComputeTask task = orders_[at(rank)][t];
    const bool forward = task.kind == Kind::forward, is_weight = task.kind == Kind::backward_weight;
    if (!forward) {  // W follows I, and B or I follows F, in the order of their own rank
        const Kind before = is_weight ? Kind::backward_input : Kind::forward;
        if (positions_[index_of(rank, {before, task.chunk, task.micro_batch})] > t) return kNever;
    }
    const double when = chunks_ > shape_.chunks ? vocabulary_ready(rank, task) : 0;
    if (is_weight || is_vocabulary(task)) return when;
    const std::optional<StageHolder> from = neighbour(rank, task.chunk, forward ? -1 : 1);
    if (!from) return when;
    task.chunk = from->chunk;
    return std::max(when, ended(from->rank, task) + (from->rank == rank ? 0.0 : shape_.transfer_time));
}

double TaskTimeline::vocabulary_ready(std::int64_t rank, const ComputeTask& task) const {
    const std::int64_t last = shape_.ranks - 1;
    const bool forward = task.kind == Kind::forward;
    const auto pass = [&](Kind kind, ChunkIndex chunk) { return ComputeTask{kind, chunk, task.micro_batch}; };
    if (task.chunk == kInputChunk) return forward ? 0 : ended(0, pass(Kind::backward, 0));
    if (task.chunk == kOutputChunk) {
        return forward ? ended(last, pass(Kind::forward, 0)) : ended_everywhere(pass(Kind::forward, kOutputChunk));
    }
    if (forward) return rank == 0 ? ended_everywhere(pass(Kind::forward, kInputChunk)) : 0;
    const Kind gradient = rules_.gradient_from_forward ? Kind::forward : Kind::backward;
    return rank == last ? ended_everywhere(pass(gradient, kOutputChunk)) : 0;
}

double TaskTimeline::ended(std::int64_t rank, const ComputeTask& task) const {
    const std::size_t t = positions_[index_of(rank, task)];
    const std::vector<TimeSpan>& spans = spans_[at(rank)];
    return t < spans.size() ? spans[t].end : kNever;
}

double TaskTimeline::ended_everywhere(const ComputeTask& task) const {
    double last = 0;
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) last = std::max(last, ended(rank, task));
    return last;
}

std::optional<StageHolder> TaskTimeline::neighbour(std::int64_t rank, ChunkIndex chunk, std::int64_t step) const {
    const ChunkPlace here = chunk_place(shape_, rank, chunk);
    const std::int64_t stage = here.virtual_stage + step;
    if (stage < 0 || stage >= virtual_stages(shape_)) return {};
    return stage_holder(shape_, stage, here.direction);
}

double TaskTimeline::posted(std::int64_t rank, std::size_t task) const {
    if (task == 0) return 0;
    return rules_.posts_receives_ahead ? begin(rank, task - 1) : end(rank, task - 1);
}

double TaskTimeline::arrival(std::int64_t rank, std::size_t task) const {
    ComputeTask received = orders_[at(rank)][task];
    const std::optional<StageHolder> to = neighbour(rank, received.chunk, received.kind == Kind::forward ? 1 : -1);
    if (!to) return end(rank, task);
    received.chunk = to->chunk;
    return std::max(end(rank, task), posted(to->rank, positions_[index_of(to->rank, received)]));
}

std::string TaskTimeline::stuck() const {
    for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
        const std::size_t t = spans_[rank].size();
        if (t == orders_[rank].size()) continue;
        const ComputeTask& task = orders_[rank][t];
        return "rank " + std::to_string(rank) + ", task " + std::to_string(t) + ": chunk " +
               std::to_string(task.chunk.value()) + ", micro-batch " + std::to_string(task.micro_batch);
    }
    return "";
}

double ScheduleTiming::longest_span() const {
    double longest = 0;
    for (const RankTiming& rank : ranks) longest = std::max(longest, rank.end - rank.begin);
    return longest;
}

ScheduleTiming time_orders(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders) {
    const double chunk_share =
        static_cast<double>(row_of(shape.schedule).model_copies()) / static_cast<double>(shape.chunks);
    const TaskTimeline timeline(shape, orders, chunk_share);
    ScheduleTiming result{.stuck = timeline.stuck()};
    for (std::int64_t r = 0; r < shape.ranks; ++r) {
        RankTiming& rank = result.ranks.emplace_back();
        const std::vector<TaskTimeline::TimeSpan>& spans = timeline.of_rank(r);
        if (!spans.empty()) rank = {.begin = spans.front().begin, .end = spans.back().end};
        double in_flight = 0;
        for (std::size_t t = 0; t < spans.size(); ++t) {
            const ComputeTask& task = orders[static_cast<std::size_t>(r)][t];
            in_flight += chunk_share * activations_of(task, shape.activation_after_input);
            rank.peak_in_flight = std::max(rank.peak_in_flight, in_flight);
        }
        result.makespan = std::max(result.makespan, rank.end);
    }
    return result;
}

}  // namespace orrery::program
