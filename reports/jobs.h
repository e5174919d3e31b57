// Several jobs on one cluster: step times when they run together, and alone on the same devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/run_record.h"
#include "topologies/cluster_spec.h"

namespace orrery::reports {

struct JobReport {
    const program::Program* program = nullptr;
    std::vector<std::int64_t> devices;  // of the cluster; ascending
    program::RunRecord alone;           // without later link changes
    program::RunRecord together;
};

struct JobsReport {
    const topologies::ClusterSpec* cluster = nullptr;
    std::vector<JobReport> jobs;
};

/// A row per job; then the link changes, if any, with each job's step times; then notes.
[[nodiscard]] std::string jobs_text(const JobsReport& report);
/// orrery.simulated_jobs/1
[[nodiscard]] std::string jobs_json(const JobsReport& report);

/// "0-7, 16-23"
[[nodiscard]] std::string ranges_of(const std::vector<std::int64_t>& ascending);

}  // namespace orrery::reports
