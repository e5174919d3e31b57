// Shapes for the schedule tests.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "sim/program/schedule.h"
#include "sim/program/task_timeline.h"

namespace orrery::program {

inline constexpr std::array kSchedules = {Schedule::naive,       Schedule::gpipe,     Schedule::one_f_one_b,
                                          Schedule::interleaved, Schedule::zb_h1,     Schedule::zb_h2,
                                          Schedule::zb_1p,       Schedule::zb_2p,     Schedule::zb_v,
                                          Schedule::dualpipe,    Schedule::dualpipe_v};
static_assert(kSchedules.size() == static_cast<std::size_t>(kScheduleCount));

/// A shape with the number of chunks that the schedule requires, or 2 if it allows several.
inline ScheduleShape shape_of(Schedule schedule, std::int64_t ranks, std::int64_t micro_batches) {
    const bool two = schedule == Schedule::interleaved || schedule == Schedule::zb_v ||
                     schedule == Schedule::dualpipe || schedule == Schedule::dualpipe_v;
    return {.schedule = schedule, .ranks = ranks, .chunks = two ? 2 : 1, .micro_batches = micro_batches};
}

inline double work_of(const ScheduleShape& shape) {
    return static_cast<double>(shape.micro_batches) * (shape.forward_time + shape.input_time + shape.weight_time);
}

inline ScheduleTiming timing_of(const ScheduleShape& shape) {
    return time_orders(shape, compute_orders(shape));
}

/// Idle time of the whole step on a rank with uniform stages.
inline double bubble_of(const ScheduleShape& shape) {
    return timing_of(shape).makespan - work_of(shape);
}

class ShapeSource {
  public:
    explicit ShapeSource(std::uint32_t seed) : random_(seed) {}
    std::int64_t integer(std::int64_t first, std::int64_t last) {
        return first + static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(last - first + 1));
    }
    double number(double first, double last) {
        return first + (last - first) * static_cast<double>(random_() % 10007) / 10006.0;
    }
    /// A legal shape of the schedule.
    ScheduleShape shape(Schedule schedule) {
        ScheduleShape result = shape_of(schedule, integer(1, 9), integer(1, 30));
        if (schedule == Schedule::interleaved) {
            result.ranks = integer(2, 7);
            result.chunks = integer(2, 4);
            result.group = integer(0, 1) * integer(result.ranks, result.ranks + 5);
        }
        if (schedule == Schedule::dualpipe) {
            result.ranks = 2 * integer(1, 5);
            result.micro_batches = 2 * integer(result.ranks, 2 * result.ranks);
        }
        if (schedule == Schedule::dualpipe_v) result.micro_batches += 2 * result.ranks;
        while (!schedule_problem(result).empty()) ++result.micro_batches;
        return result;
    }
    void random_times(ScheduleShape& shape) {
        shape.forward_time = number(0.1, 3);
        shape.input_time = number(0.1, 3);
        shape.weight_time = integer(0, 7) == 0 ? 0.0 : number(0.0, 3);
        shape.transfer_time = integer(0, 2) == 0 ? 0.0 : number(0.0, 2);
        shape.activation_after_input = number(0, 1);
        shape.times.clear();
        if (integer(0, 1) == 0) return;
        for (std::int64_t r = 0; r < shape.ranks; ++r) {
            shape.times.push_back({shape.forward_time * number(0.5, 1.5), shape.input_time * number(0.5, 1.5),
                                   shape.weight_time * number(0.5, 1.5)});
        }
    }

  private:
    std::mt19937 random_;
};

}  // namespace orrery::program
