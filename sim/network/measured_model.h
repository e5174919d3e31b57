// The time of a transfer on this very machine, read from what `orrery calibrate` measured.
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

/// In bytes: the time of the smallest sample below it; log-log between samples; on along the last two beyond them.
/// Times never fall as sizes grow: a noisy sample is raised to the one before it. Equal sizes count by their median.
/// In ranks: each measured count's time is scaled by the ring's (n-1)/n, then blended linearly between the neighbouring
/// counts; outside the measured range the nearest count stands alone. A send or exchange is taken as measured, whatever
/// the count.
///
/// An operation without samples is composed of others, since a core moves what goes out and what comes in by turns:
///   exchange           2 sends of S
///   all_to_all         2 (n - 1) sends of S / n
///   scatter, gather    n - 1 sends of S / n, by the root
///   broadcast, reduce  half an all-reduce of S, which is a reduction and a broadcast; without all_reduce samples n - 1
///                      sends of S along the chain
/// Throws InputError, which says to run `orrery calibrate`, when these are missing too.
[[nodiscard]] MeasuredTime measured_time(program::CommKind kind, std::int64_t bytes, std::int64_t ranks,
                                         const topologies::ClusterSpec& cluster);

/// What the operation's time is composed of on this cluster, in words; empty: it has samples, or nothing to be composed
/// of.
[[nodiscard]] std::string composition(program::CommKind kind, const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
