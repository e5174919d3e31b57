// Time of communication on this machine, from the samples that `orrery calibrate` measured.
#pragma once

#include <cstdint>
#include <string>

#include "sim/network/collectives.h"

namespace orrery::sim {

struct MeasuredTime {
    double latency_seconds = 0;  // of the smallest message measured
    double seconds = 0;
    std::string detail;  // "2 ranks", "scaled from 2 and 4 ranks", "14 x send, 2 ranks"
    bool is_composed = false;
};

/// Interpolation in bytes: below the smallest sample its time, between samples log-log, beyond the largest linear
/// through the last two. Several samples of one size count by their median, and a time below that of a smaller size is
/// raised to it. Interpolation in ranks: times are scaled by the ring's (n-1)/n and interpolated linearly between the
/// measured counts; outside the measured range the nearest count is scaled. Sends and exchanges are not scaled.
///
/// An operation without samples is composed of others; a core handles outgoing and incoming data one after the other:
///   exchange           2 sends of S
///   all_to_all         2 (n - 1) sends of S / n
///   scatter, gather    n - 1 sends of S / n, by the root
///   broadcast, reduce  half an all-reduce of S, which is a reduce plus a broadcast; without all_reduce samples n - 1
///                      sends of S along a chain
/// Throws InputError, which advises to run `orrery calibrate`, if those samples are missing too.
[[nodiscard]] MeasuredTime measured_time(program::CommKind kind, std::int64_t bytes, std::int64_t ranks,
                                         const topologies::ClusterSpec& cluster);

/// Description of the operations of which the time is composed on this cluster; empty if the operation has samples or
/// cannot be composed.
[[nodiscard]] std::string composition(program::CommKind kind, const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
