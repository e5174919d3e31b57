// orrery scale --by-technique: how far each technique of parallelism scales alone.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cli/plan_job.h"
#include "models/model_spec.h"
#include "sim/program/technique_curves.h"
#include "topologies/cluster_spec.h"

namespace orrery::cli {

struct TechniqueOptions {
    std::vector<std::int64_t> counts;  // of devices, ascending
    program::ScalingMode mode{};
    std::int64_t batch = 0;  // sequences of a step (strong), or of a step for each device (weak)
    program::CostFigures figures;
};

/// Throws InputError if the job fixes what the techniques differ in.
void check_techniques(const PlanJob& job);

/// The implementation that has every technique, so that the curves differ in nothing else; used unless the job names
/// others.
inline constexpr const char* kEveryTechnique = "orrery";

/// The curves, measured. Each point has the fastest plan of all implementations whose degree of the technique is the
/// number of devices, with all other degrees 1 and the states sharded over all ranks. `of_one`: the cluster of one
/// device.
[[nodiscard]] program::TechniqueCurves technique_curves(const PlanJob& job, const models::ModelSpec& model,
                                                        const topologies::ClusterSpec& of_one,
                                                        const TechniqueOptions& options);

}  // namespace orrery::cli
