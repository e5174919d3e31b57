// Measures this machine for the profile of the cluster `local`. Operators are timed through the backend that trains,
// transfers through its transport. All cores are busy meanwhile, as they are in a training run.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "exec/operator_meter.h"
#include "exec/transport/transport.h"
#include "topologies/cluster_spec.h"

namespace orrery::exec {

/// The results of one measuring job. A job of `cores` ranks measures compute and transport; larger jobs measure
/// transport only.
struct Measurements {
    std::int64_t ranks = 0;
    std::int64_t cores = 0;
    double context_bytes = 0;       // resident memory besides the tensors: runtime, libraries, transport
    double memory_bytes_per_s = 0;  // one core's copy rate while all cores copy; bytes read plus bytes written
    double best_flops_per_s = 0;    // of one core, in the fastest GEMM
    double launch_s = 0;            // host time to issue one communication instruction
    std::vector<topologies::MatmulSample> matmuls;
    std::vector<topologies::OperatorSample> operators;
    std::vector<topologies::TransportSample> transfers;
};

/// Collective; the result is complete on rank 0.
[[nodiscard]] Measurements measure(Transport& transport, TimedOperators operators);

[[nodiscard]] std::string to_json_text(const Measurements& measurements);
[[nodiscard]] Measurements measurements_from_json_text(const std::string& text, const std::string& file);

/// Builds the cluster `local` from one job of `cores` ranks and any number of larger jobs, in whose transfer times
/// several ranks share a core. `when` goes into the figures' sources.
[[nodiscard]] topologies::ClusterSpec make_local_cluster(const std::vector<Measurements>& jobs,
                                                         const std::string& when);

}  // namespace orrery::exec
