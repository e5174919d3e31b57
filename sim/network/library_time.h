// What a collective between CPU nodes takes.
#pragma once

#include <cstdint>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct LibraryTime {
    Algorithm algorithm{};
    double latency_seconds = 0;  // at S = 0 with this algorithm
    double seconds = 0;
};
/// The library's algorithm (algorithms/library_choice.h) on idle links (algorithms/link_loads.h), on nodes with as many
/// members as there are on the fullest (the last ones with fewer), whose ports and NICs are those of the placement and
/// whose fabric does not block.
[[nodiscard]] LibraryTime library_time(program::CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                                       topologies::CollectiveLibrary library);

}  // namespace orrery::sim
