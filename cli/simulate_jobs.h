// `orrery simulate` of several plans on one cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace orrery::cli {

enum class Allocation { packed, by_turns };

struct JobsOptions {
    std::vector<std::string> plans;
    std::string cluster;
    long long gpus = 0;  // of the cluster; 0: as many as the jobs need
    Allocation allocation = Allocation::packed;
    int steps = 3;
    bool full = false, json = false;
    std::optional<double> memory_margin_gib;  // sim::memory_per_rank_bytes
};

struct SimulatedJobs {
    std::string misfits;  // the plans that do not fit, a line each
    std::string report;
};
/// What the command prints. Throws InputError when a plan cannot be on that cluster or the jobs do not fit.
[[nodiscard]] SimulatedJobs simulate_jobs(const JobsOptions& options);

}  // namespace orrery::cli
