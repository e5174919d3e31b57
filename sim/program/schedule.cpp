#include "sim/program/schedule.h"

#include <cmath>
#include <limits>

#include "core/error.h"
#include "sim/program/schedule_orders.h"
#include "sim/program/zero_bubble_search.h"

namespace orrery::program {
namespace {

enum class Placement : std::uint8_t { looped, v, two_directions };

Placement placement_of(Schedule schedule) {
    switch (schedule) {
        case Schedule::zb_v:
        case Schedule::dualpipe_v:
            return Placement::v;
        case Schedule::dualpipe:
            return Placement::two_directions;
        case Schedule::naive:
        case Schedule::gpipe:
        case Schedule::one_f_one_b:
        case Schedule::interleaved:
        case Schedule::zb_h1:
        case Schedule::zb_h2:
        case Schedule::zb_1p:
        case Schedule::zb_2p:
            return Placement::looped;
    }
    throw_bug(__FILE__, __LINE__, "Schedule", "unknown schedule");
}

std::string chunks_problem(const ScheduleShape& shape) {
    const std::string name = name_of(shape.schedule), got = ", got " + std::to_string(shape.chunks);
    if (shape.schedule == Schedule::interleaved) {
        return shape.chunks >= 2 ? "" : name + " needs at least 2 chunks a rank" + got;
    }
    if (placement_of(shape.schedule) != Placement::looped) {
        return shape.chunks == 2 ? "" : name + " needs 2 chunks a rank" + got;
    }
    return shape.chunks == 1 ? "" : name + " has 1 chunk a rank" + got;
}

/// Megatron-LM's rules: a group is at least as long as the pipeline is deep, or the last stage would not have returned
/// a chunk's first micro-batch by the time its next chunk begins; so is what remains for the last group.
std::string interleaved_problem(const ScheduleShape& shape) {
    const std::string name = name_of(shape.schedule);
    const std::int64_t p = shape.ranks, m = shape.micro_batches, group = shape.group == 0 ? p : shape.group;
    const std::string depth = "pp = " + std::to_string(p);
    if (p < 2) return name + " needs pp > 1";
    if (m < p) return name + " needs at least " + depth + " micro-batches, got " + std::to_string(m);
    if (group < p || group > m) {
        return name + " needs a group of at least " + depth + " and at most " + std::to_string(m) +
               " micro-batches, got " + std::to_string(group);
    }
    if (m % group != 0 && m % group < p) {
        return name + " needs a last group of at least " + depth + " micro-batches, got " + std::to_string(m % group) +
               " (" + std::to_string(m) + " micro-batches in groups of " + std::to_string(group) + ")";
    }
    return "";
}

std::string dualpipe_problem(const ScheduleShape& shape) {
    const std::string name = name_of(shape.schedule);
    if (shape.schedule == Schedule::dualpipe) {
        if (shape.ranks % 2 != 0) return name + " needs an even pp, got " + std::to_string(shape.ranks);
        if (shape.micro_batches % 2 != 0) {
            return name + " needs an even number of micro-batches, got " + std::to_string(shape.micro_batches);
        }
    }
    if (shape.micro_batches < 2 * shape.ranks) {
        return name + " needs at least 2*pp = " + std::to_string(2 * shape.ranks) + " micro-batches, got " +
               std::to_string(shape.micro_batches);
    }
    return "";
}

std::string times_problem(const ScheduleShape& shape) {
    const std::string name = name_of(shape.schedule);
    if (!shape.times.empty() && static_cast<std::int64_t>(shape.times.size()) != shape.ranks) {
        return name + " needs the times of every rank or of none, got " + std::to_string(shape.times.size()) + " of " +
               std::to_string(shape.ranks);
    }
    const auto duration = [](double value) { return std::isfinite(value) && value >= 0; };
    for (std::int64_t rank = 0; rank < (shape.times.empty() ? 1 : shape.ranks); ++rank) {
        const StageTimes times = stage_times(shape, rank);
        if (!duration(times.forward) || !duration(times.input) || !duration(times.weight) || times.forward <= 0 ||
            times.input <= 0) {
            return name + " needs finite times, of F and I above 0; those of rank " + std::to_string(rank) + " are not";
        }
    }
    if (!duration(shape.transfer_time)) return name + " needs a finite transfer time of at least 0";
    if (!(shape.activation_after_input >= 0 && shape.activation_after_input <= 1)) {
        return name + " needs the share of activations kept after I to be within 0..1, got " +
               std::to_string(shape.activation_after_input);
    }
    return "";
}

std::vector<ComputeTask> rank_order(const ScheduleShape& shape, std::int64_t rank) {
    switch (shape.schedule) {
        case Schedule::naive:
            return naive_order(shape.micro_batches);
        case Schedule::gpipe:
            return gpipe_order(shape.micro_batches);
        case Schedule::one_f_one_b:
            return one_f_one_b_order(shape, rank);
        case Schedule::interleaved:
            return interleaved_order(shape, rank);
        case Schedule::zb_h1:
            return zb_h1_order(shape, rank);
        case Schedule::zb_h2:
            return zb_h2_order(shape, rank);
        case Schedule::zb_v:
            return zb_v_order(shape, rank);
        case Schedule::dualpipe:
            return dualpipe_order(shape, rank);
        case Schedule::dualpipe_v:
            return dualpipe_v_order(shape, rank);
        case Schedule::zb_1p:
        case Schedule::zb_2p:
            break;  // found for all ranks at once
    }
    throw_bug(__FILE__, __LINE__, "Schedule", "a schedule without an order of its own for each rank");
}

}  // namespace

StageTimes stage_times(const ScheduleShape& shape, std::int64_t rank) {
    if (shape.times.empty()) return {shape.forward_time, shape.input_time, shape.weight_time};
    return shape.times[static_cast<std::size_t>(rank)];
}

ChunkPlace chunk_place(const ScheduleShape& shape, std::int64_t rank, std::int64_t chunk) {
    ORRERY_CHECK(rank >= 0 && rank < shape.ranks && chunk >= 0 && chunk < shape.chunks, "no such chunk");
    switch (placement_of(shape.schedule)) {
        case Placement::looped:
            return {.virtual_stage = chunk * shape.ranks + rank};
        case Placement::v:
            if (chunk == 0) return {.virtual_stage = rank};
            return {.virtual_stage = 2 * shape.ranks - 1 - rank, .up = true};
        case Placement::two_directions:
            if (chunk == 0) return {.virtual_stage = rank};
            return {.virtual_stage = shape.ranks - 1 - rank, .up = true, .direction = 1};
    }
    throw_bug(__FILE__, __LINE__, "Placement", "unknown placement");
}

std::int64_t virtual_stages(const ScheduleShape& shape) {
    return placement_of(shape.schedule) == Placement::two_directions ? shape.ranks : shape.ranks * shape.chunks;
}

StageHolder stage_holder(const ScheduleShape& shape, std::int64_t virtual_stage, std::int32_t direction) {
    const Placement placement = placement_of(shape.schedule);
    ORRERY_CHECK(virtual_stage >= 0 && virtual_stage < virtual_stages(shape), "no such virtual stage");
    ORRERY_CHECK(direction == 0 || (direction == 1 && placement == Placement::two_directions), "no such direction");
    switch (placement) {
        case Placement::looped:
            return {.rank = virtual_stage % shape.ranks, .chunk = virtual_stage / shape.ranks};
        case Placement::v:
            if (virtual_stage < shape.ranks) return {.rank = virtual_stage, .chunk = 0};
            return {.rank = 2 * shape.ranks - 1 - virtual_stage, .chunk = 1};
        case Placement::two_directions:
            if (direction == 0) return {.rank = virtual_stage, .chunk = 0};
            return {.rank = shape.ranks - 1 - virtual_stage, .chunk = 1};
    }
    throw_bug(__FILE__, __LINE__, "Placement", "unknown placement");
}

bool splits_backward(Schedule schedule) {
    switch (schedule) {
        case Schedule::naive:
        case Schedule::gpipe:
        case Schedule::one_f_one_b:
        case Schedule::interleaved:
            return false;
        case Schedule::zb_h1:
        case Schedule::zb_h2:
        case Schedule::zb_1p:
        case Schedule::zb_2p:
        case Schedule::zb_v:
        case Schedule::dualpipe:
        case Schedule::dualpipe_v:
            return true;
    }
    throw_bug(__FILE__, __LINE__, "Schedule", "unknown schedule");
}

bool depends_on_times(Schedule schedule) {
    return schedule == Schedule::zb_1p || schedule == Schedule::zb_2p;
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
    if (shape.group != 0 && shape.schedule != Schedule::interleaved) {
        return name + " has no groups of micro-batches, got a group of " + std::to_string(shape.group);
    }
    std::string problem;
    if (shape.schedule == Schedule::interleaved) problem = interleaved_problem(shape);
    if (shape.schedule == Schedule::dualpipe || shape.schedule == Schedule::dualpipe_v) {
        problem = dualpipe_problem(shape);
    }
    if (problem.empty() && depends_on_times(shape.schedule)) problem = times_problem(shape);
    return problem;
}

std::vector<std::vector<ComputeTask>> compute_orders(const ScheduleShape& shape) {
    const std::string problem = schedule_problem(shape);
    ORRERY_CHECK(problem.empty(), problem);
    if (shape.schedule == Schedule::zb_1p) return search_zero_bubble(shape, shape.ranks);
    if (shape.schedule == Schedule::zb_2p) return search_zero_bubble(shape, 2 * shape.ranks);
    std::vector<std::vector<ComputeTask>> orders;
    orders.reserve(static_cast<std::size_t>(shape.ranks));
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) orders.push_back(rank_order(shape, rank));
    return orders;
}

ScheduleShape schedule_shape(const Plan& plan) {
    const Parallelism& p = plan.parallelism;
    return {.schedule = p.schedule,
            .ranks = p.pp,
            .chunks = p.chunks,
            .micro_batches = plan.micro_batches(),
            .group = p.interleave_group};
}

}  // namespace orrery::program
