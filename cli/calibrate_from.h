// `orrery calibrate --from RESULTS`: a profile refined by what plans took that ran on the cluster.
#pragma once

#include <string>

#include "topologies/cluster_spec.h"

namespace orrery::cli {

struct RefineOptions {
    std::string results;            // a folder of NAME.plan.json beside NAME.record.json
    std::string cluster = "local";  // that is refined: a preset or a file
};

struct RefinedProfile {
    topologies::ClusterSpec cluster;
    std::string text;  // factors, and errors before and after
};

/// Throws InputError when the folder holds no results, or some of another cluster.
[[nodiscard]] RefinedProfile refined_profile(const RefineOptions& options);

}  // namespace orrery::cli
