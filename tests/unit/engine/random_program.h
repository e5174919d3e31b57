// Random Programs on random meshes, placements and clusters, for tests of properties that hold for all Programs.
#pragma once

#include <cstdint>

#include "sim/program/program.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim::hand_made {

struct RandomJob {
    program::Program program;
    topologies::ClusterSpec cluster;
};

/// All instructions have one global order. Each class issues its part of it, and waits and dependencies point backward
/// in it, so the job cannot deadlock with any streams, axes, host instructions and copies.
[[nodiscard]] RandomJob random_job(std::uint64_t seed);

}  // namespace orrery::sim::hand_made
