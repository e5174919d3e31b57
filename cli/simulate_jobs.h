// `orrery simulate` with several plans on one cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace orrery::cli {

enum class Allocation { packed, by_turns };

struct JobsOptions {
    std::vector<std::string> plans;
    std::string cluster;
    long long gpus = 0;  // size of the cluster; 0: as many as the jobs need
    Allocation allocation = Allocation::packed;
    int steps = 3;
    bool full = false, json = false;
    std::optional<double> memory_margin_gib;  // sim::memory_per_rank_bytes
};

struct SimulatedJobs {
    std::string misfits;  // the plans whose memory does not fit, one line each
    std::string report;
};
/// The command's output. Throws InputError if a plan cannot run on that cluster or the jobs need more nodes than it
/// has.
[[nodiscard]] SimulatedJobs simulate_jobs(const JobsOptions& options);

}  // namespace orrery::cli
