// `orrery calibrate --from RESULTS`: refines a profile with measured runs on the cluster.
#pragma once

#include <string>

#include "topologies/cluster_spec.h"

namespace orrery::cli {

struct RefineOptions {
    std::string results;            // a folder with NAME.plan.json and NAME.record.json for each run
    std::string cluster = "local";  // the profile to refine: a preset or a file
};

struct RefinedProfile {
    topologies::ClusterSpec cluster;
    std::string text;  // factors, and errors before and after
};

/// Throws InputError if the folder has no results, or results of another cluster.
[[nodiscard]] RefinedProfile refined_profile(const RefineOptions& options);

}  // namespace orrery::cli
