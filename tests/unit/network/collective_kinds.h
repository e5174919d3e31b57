// Every algorithm, and every operation but recv, which is the other side of a send.
#pragma once

#include <vector>

#include "sim/network/algorithms/algorithm.h"

namespace orrery::sim::algorithms {

inline constexpr program::CommKind kKinds[] = {program::CommKind::all_reduce,     program::CommKind::all_gather,
                                               program::CommKind::reduce_scatter, program::CommKind::all_to_all,
                                               program::CommKind::broadcast,      program::CommKind::reduce,
                                               program::CommKind::scatter,        program::CommKind::gather,
                                               program::CommKind::exchange,       program::CommKind::send};

inline std::vector<Algorithm> all_algorithms() {
    std::vector<Algorithm> all;
    for (const Row& row : kTable) all.push_back(row.algorithm);
    return all;
}

}  // namespace orrery::sim::algorithms
