// Private to the lowerings: what lower() is made of beside the layout, the lists and the actions.
#pragma once

#include "sim/program/program.h"
#include "sim/program/rank_layout.h"
#include "sim/program/schedule.h"
#include "sim/program/stage_lists.h"

namespace orrery::program {

/// Walks the actions in issue order and fills in the class's memory.
void measure_memory(const Program& program, const RankLayout& layout, BodyLibrary& library, RankClass& result);

/// torch DataParallel: the classes of the master and of the others.
void lower_replicas(Program& program, const ScheduleShape& shape, FormLibrary& forms, BodyLibrary& bodies);

}  // namespace orrery::program
