#include "sim/program/task_timeline.h"

#include <algorithm>

#include "core/error.h"
#include "sim/program/vocabulary.h"

namespace orrery::program {
namespace {

using Kind = ComputeTask::Kind;
constexpr double kNotYet = -1;
constexpr double kVocabularyTime = 0.25;

}  // namespace

TaskTimeline::TaskTimeline(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders,
                           TransferRules rules)
    : shape_(shape),
      orders_(orders),
      posts_ahead_(rules.posts_receives_ahead),
      gradient_from_correction_(!rules.gradient_from_forward) {
    index_tasks();
    run();
}

void TaskTimeline::index_tasks() {
    chunks_ = shape_.chunks;
    for (const auto& order : orders_) {
        for (const ComputeTask& task : order) {
            if (task.chunk.value() < shape_.chunks) continue;
            has_vocabulary_ = true;
            chunks_ = std::max<std::int64_t>(chunks_, task.chunk.value() + 1);
        }
    }
    const auto places = at(shape_.ranks * chunks_ * shape_.micro_batches);
    forwards_.resize(places);
    backwards_.resize(places);
    for (std::size_t r = 0; r < orders_.size(); ++r) {
        spans_.emplace_back(orders_[r].size());
        for (std::size_t t = 0; t < orders_[r].size(); ++t) {
            const ComputeTask& task = orders_[r][t];
            if (task.kind == Kind::backward_weight) continue;
            auto& table = task.kind == Kind::forward ? forwards_ : backwards_;
            const auto rank = static_cast<std::int64_t>(r);
            table[at((rank * chunks_ + task.chunk.value()) * shape_.micro_batches + task.micro_batch)] = {rank, t};
        }
    }
}

const TaskTimeline::Place& TaskTimeline::place_of(bool forward, std::int64_t rank, ChunkIndex chunk,
                                                  std::int32_t micro_batch) const {
    return (forward ? forwards_
                    : backwards_)[at((rank * chunks_ + chunk.value()) * shape_.micro_batches + micro_batch)];
}

TaskTimeline::Place TaskTimeline::neighbour(std::int64_t rank, const ComputeTask& task, std::int64_t shift,
                                            bool forward) const {
    const ChunkPlace here = chunk_place(shape_, rank, task.chunk);
    const std::int64_t stage = here.virtual_stage + shift;
    if (stage < 0 || stage >= virtual_stages(shape_)) return {};
    const StageHolder holder = stage_holder(shape_, stage, here.direction);
    return place_of(forward, holder.rank, holder.chunk, task.micro_batch);
}

double TaskTimeline::ended(const Place& place) const {
    return place.rank < 0 ? 0 : spans_[at(place.rank)][place.task].end;
}

double TaskTimeline::ended_everywhere(bool forward, ChunkIndex chunk, std::int32_t micro_batch) const {
    double last = 0;
    for (std::int64_t rank = 0; rank < shape_.ranks; ++rank) {
        const double end = ended(place_of(forward, rank, chunk, micro_batch));
        if (end < 0) return kNotYet;
        last = std::max(last, end);
    }
    return last;
}

double TaskTimeline::vocabulary_ready(std::int64_t rank, const ComputeTask& task) const {
    const std::int64_t last = shape_.ranks - 1;
    if (task.chunk == kInputChunk) {
        return task.kind == Kind::forward ? 0 : ended(place_of(false, 0, 0, task.micro_batch));
    }
    if (task.chunk == kOutputChunk) {
        return task.kind == Kind::forward ? ended(place_of(true, last, 0, task.micro_batch))
                                          : ended_everywhere(true, kOutputChunk, task.micro_batch);
    }
    if (task.kind == Kind::forward) return rank == 0 ? ended_everywhere(true, kInputChunk, task.micro_batch) : 0;
    return rank == last ? ended_everywhere(!gradient_from_correction_, kOutputChunk, task.micro_batch) : 0;
}

/// The time at which all tasks on which this task depends have ended; < 0: not yet known.
double TaskTimeline::ready(std::int64_t rank, const ComputeTask& task) const {
    double when = has_vocabulary_ ? vocabulary_ready(rank, task) : 0;
    if (when < 0 || task.chunk.value() >= shape_.chunks || task.kind == Kind::backward_weight) return when;
    const bool forward = task.kind == Kind::forward;
    const Place needed = neighbour(rank, task, forward ? -1 : 1, forward);
    const double end = ended(needed);
    return end < 0 ? kNotYet : std::max(when, end);
}

void TaskTimeline::run() {
    std::vector<std::size_t> next(orders_.size(), 0);
    std::vector<double> free_at(orders_.size(), 0);
    for (bool moved = true; moved;) {
        moved = false;
        for (std::size_t r = 0; r < orders_.size(); ++r) {
            while (next[r] < orders_[r].size()) {
                const ComputeTask& task = orders_[r][next[r]];
                double when = ready(static_cast<std::int64_t>(r), task);
                if (when < 0) break;
                // Two overlapped tasks form one block, which begins when both inputs have arrived and delivers both
                // outputs at its end.
                const std::size_t after = next[r] + 1;
                if (after < orders_[r].size() && orders_[r][after].overlaps_previous) {
                    const double other = ready(static_cast<std::int64_t>(r), orders_[r][after]);
                    if (other < 0) break;
                    when = std::max(when, other);
                    constexpr double kBlockTime = 3;
                    spans_[r][next[r]].begin = std::max(when, free_at[r]);
                    free_at[r] = spans_[r][next[r]].begin + kBlockTime;
                    spans_[r][next[r]].end = free_at[r];
                    spans_[r][after] = spans_[r][next[r]];
                    next[r] += 2;
                    moved = true;
                    continue;
                }
                const bool vocabulary = task.chunk.value() >= shape_.chunks;
                const double time = vocabulary ? kVocabularyTime : task.kind == Kind::backward ? 2 : 1;
                TimeSpan& span = spans_[r][next[r]++];
                span.begin = std::max(when, free_at[r]);
                span.end = free_at[r] = span.begin + time;
                moved = true;
            }
        }
    }
    for (std::size_t r = 0; r < orders_.size(); ++r) {
        ORRERY_CHECK(next[r] == orders_[r].size(), "rank " + std::to_string(r) + " cannot finish its schedule");
    }
}

double TaskTimeline::posted(std::int64_t rank, std::size_t task) const {
    if (task == 0) return 0;
    return posts_ahead_ ? begin(rank, task - 1) : end(rank, task - 1);
}

double TaskTimeline::arrival(std::int64_t rank, std::size_t task) const {
    const ComputeTask& sent = orders_[at(rank)][task];
    const bool forward = sent.kind == Kind::forward;
    const Place receiver = neighbour(rank, sent, forward ? 1 : -1, forward);
    const double done = end(rank, task);
    return receiver.rank < 0 ? done : std::max(done, posted(receiver.rank, receiver.task));
}

}  // namespace orrery::program
