// Every collective that an algorithm can be asked for; a receive is its send's other side.
#pragma once

#include "sim/program/program.h"

namespace orrery::sim::algorithms {

inline constexpr program::CommKind kKinds[] = {program::CommKind::all_reduce,     program::CommKind::all_gather,
                                               program::CommKind::reduce_scatter, program::CommKind::all_to_all,
                                               program::CommKind::broadcast,      program::CommKind::reduce,
                                               program::CommKind::scatter,        program::CommKind::gather,
                                               program::CommKind::exchange,       program::CommKind::send};

}  // namespace orrery::sim::algorithms
