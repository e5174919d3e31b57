// Measures this machine for the profile of the cluster `local`. Every operator is timed through the same backend that
// trains, every transfer through the same transport, with all cores busy, since that is how a training run finds them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/transport/transport.h"
#include "topologies/cluster_spec.h"

namespace orrery::exec {

/// What one measuring job found. A job of `cores` ranks measures compute and transport; jobs of more ranks transport.
struct Measurements {
    std::int64_t ranks = 0;
    std::int64_t cores = 0;
    double context_bytes = 0;       // resident beside the tensors: runtime, libraries, transport
    double memory_bytes_per_s = 0;  // of one core's copy, all cores copying; read and written bytes counted
    double best_flops_per_s = 0;    // of one core
    double launch_s = 0;            // host time to issue one communication instruction
    std::vector<topologies::MatmulSample> matmuls;
    std::vector<topologies::OperatorSample> operators;
    std::vector<topologies::TransportSample> transfers;
};

/// Collective; complete on rank 0. `compute`: time the operators too.
[[nodiscard]] Measurements measure(Transport& transport, bool compute);

[[nodiscard]] std::string to_json_text(const Measurements& measurements);
[[nodiscard]] Measurements measurements_from_json_text(const std::string& text, const std::string& file);

/// The cluster `local` from one job of `cores` ranks and any number of larger ones, whose transfers include the ranks'
/// taking turns on the cores. `when` goes into the figures' sources.
[[nodiscard]] topologies::ClusterSpec make_local_cluster(const std::vector<Measurements>& jobs,
                                                         const std::string& when);

}  // namespace orrery::exec
