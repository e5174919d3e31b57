// Private to the lowerings: further parts of lower(), besides layout, lists and actions.
#pragma once

#include "sim/program/program.h"
#include "sim/program/rank_layout.h"
#include "sim/program/schedule.h"
#include "sim/program/stage_lists.h"

namespace orrery::program {

/// Walks the actions in issue order and fills in RankClass::memory.
void measure_memory(const Program& program, const RankLayout& layout, BodyLibrary& library, RankClass& result);

/// torch DataParallel: appends the classes of the master and of the other replicas.
void lower_replicas(Program& program, const ScheduleShape& shape, LayerLibrary& layers, BodyLibrary& bodies);

}  // namespace orrery::program
