// Where pipelines have pairs of a forward and an independent backward, which may take turns
// (Parallelism::overlaps_experts).
#pragma once

#include <cstdint>

#include "sim/program/schedule_table.h"

namespace orrery::program {

/// Whether the schedule has pairs with that many pipeline ranks. With one chunk a rank it has them only on one rank:
/// otherwise the blocks of neighbours would wait for each other in turn.
[[nodiscard]] inline bool has_pairs_on(Schedule schedule, std::int64_t ranks) {
    const ScheduleRow& row = row_of(schedule);
    return row.has_pairs && (row.chunks != 1 || ranks == 1);
}

}  // namespace orrery::program
