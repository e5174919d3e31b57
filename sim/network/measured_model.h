// The time of a transfer on this very machine, read from what `orrery calibrate` measured.
#pragma once

#include <cstdint>
#include <string>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct MeasuredTime {
    double latency_seconds = 0;  // of the smallest message measured
    double seconds = 0;
    std::string detail;  // "2 ranks", "scaled from 2 and 4 ranks"
};

/// In bytes: the time of the smallest sample below it; log-log between samples; on along the last two beyond them.
/// Times never fall as sizes grow: a noisy sample is raised to the one before it. Equal sizes count by their median.
/// In ranks: each measured count's time is scaled by the ring's (n-1)/n, then blended linearly between the neighbouring
/// counts; outside the measured range the nearest count stands alone. A send is taken as measured, whatever the count.
[[nodiscard]] MeasuredTime measured_time(program::CommKind kind, std::int64_t bytes, std::int64_t ranks,
                                         const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
