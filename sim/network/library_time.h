// Time of a collective between CPU nodes.
#pragma once

#include <cstdint>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct LibraryTime {
    Algorithm algorithm{};
    double latency_seconds = 0;  // at S = 0, with this algorithm
    double seconds = 0;
};
/// Time of the algorithm that the library chooses (algorithms/library_choice.h) on idle links
/// (algorithms/link_loads.h). The ranks are spread evenly over the placement's nodes, with its ports and NICs and a
/// fabric that does not block.
[[nodiscard]] LibraryTime library_time(program::CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                                       topologies::CollectiveLibrary library);

}  // namespace orrery::sim
