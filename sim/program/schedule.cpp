#include "sim/program/schedule.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "sim/program/zero_bubble_search.h"

namespace orrery::program {
namespace {

std::string chunks_problem(const ScheduleShape& shape) {
    const std::int64_t chunks = row_of(shape.schedule).chunks;
    const bool is_any = chunks == ScheduleRow::kAnyChunks;
    if (is_any ? shape.chunks >= 2 : shape.chunks == chunks) return "";
    const std::string rule = is_any        ? "needs at least 2 chunks"
                             : chunks == 1 ? "has 1 chunk"
                                           : fmt::format("needs {} chunks", chunks);
    return fmt::format("{} {} a rank, got {}", name_of(shape.schedule), rule, shape.chunks);
}

std::string times_problem(const ScheduleShape& shape) {
    const std::string name = name_of(shape.schedule);
    if (!shape.times.empty() && static_cast<std::int64_t>(shape.times.size()) != shape.ranks) {
        return fmt::format("{} needs the times of every rank or of none, got {} of {}", name, shape.times.size(),
                           shape.ranks);
    }
    const auto is_duration = [](double value) { return std::isfinite(value) && value >= 0; };
    for (std::int64_t rank = 0; rank < (shape.times.empty() ? 1 : shape.ranks); ++rank) {
        const auto [forward, input, weight] = stage_times(shape, rank);
        if (!is_duration(forward) || !is_duration(input) || !is_duration(weight) || forward == 0 || input == 0) {
            return fmt::format("{} needs finite times, of F and I above 0; those of rank {} are not", name, rank);
        }
    }
    if (!is_duration(shape.transfer_time)) return name + " needs a finite transfer time of at least 0";
    if (!(shape.activation_after_input >= 0 && shape.activation_after_input <= 1)) {
        return name + " needs the share of activations kept after I to be within 0..1, got " +
               std::to_string(shape.activation_after_input);
    }
    return "";
}

/// A V and two directions have a second chunk that runs against the first one.
bool goes_up(const ScheduleShape& shape, ChunkIndex chunk) {
    return chunk == 1 && !row_of(shape.schedule).is_looped();
}

}  // namespace

IndexedVector<ChunkIndex, EndTasks> end_tasks(const std::vector<ComputeTask>& order, std::size_t chunks) {
    using Kind = ComputeTask::Kind;
    IndexedVector<ChunkIndex, EndTasks> ends(chunks);
    IndexedVector<ChunkIndex, bool> seen(chunks, false);
    for (std::size_t t = 0; t < order.size(); ++t) {
        const ChunkIndex c = order[t].chunk;
        if (order[t].kind == Kind::forward) {
            if (!seen[c]) ends[c].first_forward = t;
            seen[c] = true;
        } else if (order[t].kind != Kind::backward_input) {
            ends[c].last_backward = t;
        }
    }
    return ends;
}

StageTimes stage_times(const ScheduleShape& shape, std::int64_t rank) {
    if (shape.times.empty()) return {shape.forward_time, shape.input_time, shape.weight_time};
    return shape.times[static_cast<std::size_t>(rank)];
}

ChunkPlace chunk_place(const ScheduleShape& shape, std::int64_t rank, ChunkIndex chunk) {
    ORRERY_CHECK(rank >= 0 && rank < shape.ranks && chunk >= 0 && chunk.value() < shape.chunks, "no such chunk");
    const bool up = goes_up(shape, chunk), is_copy = up && row_of(shape.schedule).model_copies() > 1;
    return {.virtual_stage = (is_copy ? 0 : chunk.value() * shape.ranks) + (up ? shape.ranks - 1 - rank : rank),
            .up = up,
            .direction = is_copy ? 1 : 0};
}

std::int64_t virtual_stages(const ScheduleShape& shape) {
    return row_of(shape.schedule).virtual_stages(shape.ranks, shape.chunks);
}

StageHolder stage_holder(const ScheduleShape& shape, std::int64_t virtual_stage, std::int32_t direction) {
    ORRERY_CHECK(virtual_stage >= 0 && virtual_stage < virtual_stages(shape), "no such virtual stage");
    ORRERY_CHECK(direction >= 0 && direction < row_of(shape.schedule).model_copies(), "no such direction");
    const auto chunk = ChunkIndex::of(direction + virtual_stage / shape.ranks);
    const std::int64_t position = virtual_stage % shape.ranks;
    return {.rank = goes_up(shape, chunk) ? shape.ranks - 1 - position : position, .chunk = chunk};
}

std::string schedule_problem(const ScheduleShape& shape) {
    const std::string name = name_of(shape.schedule);
    if (shape.ranks < 1) return name + " needs pp of at least 1, got " + std::to_string(shape.ranks);
    if (shape.micro_batches < 1) {
        return name + " needs at least 1 micro-batch, got " + std::to_string(shape.micro_batches);
    }
    if (std::string problem = chunks_problem(shape); !problem.empty()) return problem;
    constexpr std::int64_t kMostTasks = std::numeric_limits<std::int32_t>::max() / 3;  // F, I and W of each
    if (shape.micro_batches > kMostTasks / shape.chunks || shape.ranks > kMostTasks / shape.chunks) {
        return name + " needs chunks x micro-batches and chunks x pp of at most " + std::to_string(kMostTasks);
    }
    const ScheduleRow& row = row_of(shape.schedule);
    if (shape.group != 0 && row.chunks != ScheduleRow::kAnyChunks) {
        return name + " has no groups of micro-batches, got a group of " + std::to_string(shape.group);
    }
    if (row.problem != nullptr) {
        if (std::string problem = row.problem(shape); !problem.empty()) return problem;
    }
    return row.depends_on_times() ? times_problem(shape) : "";
}

std::vector<std::vector<ComputeTask>> compute_orders(const ScheduleShape& shape) {
    const std::string problem = schedule_problem(shape);
    ORRERY_CHECK(problem.empty(), problem);
    const ScheduleRow& row = row_of(shape.schedule);
    if (row.order == nullptr) return search_zero_bubble(shape, row.search_depths * shape.ranks);
    std::vector<std::vector<ComputeTask>> orders;
    orders.reserve(static_cast<std::size_t>(shape.ranks));
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) orders.push_back(row.order(shape, rank));
    return orders;
}

ScheduleShape schedule_shape(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    return {.schedule = p.schedule,
            .ranks = p.pp,
            .chunks = p.chunks,
            .micro_batches = plan.micro_batches(),
            .group = p.interleave_group,
            .pairs_passes = p.overlaps_experts};
}

}  // namespace orrery::program
