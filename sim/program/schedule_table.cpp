#include "sim/program/schedule_table.h"

#include <algorithm>

#include "sim/program/plan_names.h"
#include "sim/program/schedule.h"

namespace orrery::program {

using enum ChunkPlacement;
using enum BackwardPass;

constexpr EnumArray<Schedule, ScheduleRow, kScheduleCount> kScheduleRows{{{
    {.schedule = Schedule::naive,
     .name = "naive",
     .published_as = "naive|layerwise|sequential",
     .order = naive_order,
     .settled_more = 2,
     .has_rounds = false},
    {.schedule = Schedule::gpipe,
     .name = "gpipe",
     .published_as = "gpipe|fillanddrain|allforwardallbackward",
     .order = gpipe_order,
     .keeps_all_alive = true,
     .settled_more = 2,  // from here on the live activations grow linearly
     .has_rounds = false},
    {.schedule = Schedule::one_f_one_b,
     .name = "1f1b",
     .published_as = "pipedreamflush|dapple|1f1b|pipedream|onefoneb|none",
     .order = one_f_one_b_order,
     .settled_more = 2,
     .is_searched = true,
     .has_pairs = true},
    {.schedule = Schedule::interleaved,
     .name = "interleaved-1f1b",
     .published_as = "interleaved|vpp|virtualpipeline|looped|looping",
     .chunks = ScheduleRow::kAnyChunks,
     .order = interleaved_order,
     .problem = interleaved_problem,
     .settled_depths = 2,
     .is_searched = true,
     .has_pairs = true},
    {.schedule = Schedule::zb_h1,
     .name = "zb-h1",
     .published_as = "zbh1|zerobubble|zb",
     .backward = split,
     .order = zb_h1_order,
     .settled_more = 2,
     .is_searched = true},
    {.schedule = Schedule::zb_h2,
     .name = "zb-h2",
     .published_as = "zbh2",
     .backward = split,
     .order = zb_h2_order,
     .settled_depths = 2},
    {.schedule = Schedule::zb_1p,
     .name = "zb-1p",
     .backward = split,
     .search_depths = 1,
     .settled_depths = 4,
     .has_rounds = false},
    {.schedule = Schedule::zb_2p,
     .name = "zb-2p",
     .backward = split,
     .search_depths = 2,
     .settled_depths = 4,
     .has_rounds = false},
    {.schedule = Schedule::zb_v,
     .name = "zb-v",
     .published_as = "zbv|zerobubblev",
     .placement = v,
     .chunks = 2,
     .backward = split,
     .order = zb_v_order,
     .settled_depths = 2,
     .is_searched = true},
    {.schedule = Schedule::dualpipe,
     .name = "dualpipe",
     .published_as = "dualpipe",
     .placement = two_directions,
     .chunks = 2,
     .backward = either,
     .order = dualpipe_order,
     .problem = dualpipe_problem,
     .settled_depths = 2,
     .settled_more = 4,
     .has_rounds = false,
     .has_pairs = true},
    {.schedule = Schedule::dualpipe_v,
     .name = "dualpipe-v",
     .published_as = "dualpipev",
     .placement = v,
     .chunks = 2,
     .backward = either,
     .order = dualpipe_v_order,
     .problem = dualpipe_v_problem,
     .settled_depths = 2,
     .has_pairs = true},
}}};

static_assert(std::ranges::equal(kScheduleRows, enum_values<Schedule, kScheduleCount>(), {}, &ScheduleRow::schedule));

std::string name_of(Schedule schedule) {
    return std::string(row_of(schedule).name);
}

Schedule schedule_named(const std::string& name) {
    return named<Schedule>(name, "schedule");
}

}  // namespace orrery::program
