// Random Programs on random meshes, placements and clusters, for properties that must hold of all of them.
#pragma once

#include <cstdint>

#include "sim/program/program.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim::hand_made {

struct RandomJob {
    program::Program program;
    topologies::ClusterSpec cluster;
};

/// What the ranks do follows one global order, of which each class issues its part; waits and dependencies point back
/// in it. So the job cannot deadlock, whatever streams, axes, host instructions and copies it uses.
[[nodiscard]] RandomJob random_job(std::uint64_t seed);

}  // namespace orrery::sim::hand_made
