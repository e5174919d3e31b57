// Several jobs on one cluster: how long their steps take together, and alone on the same devices.
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
    program::RunRecord alone;           // on links that stay as they are at the start
    program::RunRecord together;
};

struct JobsReport {
    const topologies::ClusterSpec* cluster = nullptr;
    std::vector<JobReport> jobs;
};

/// A row for each job, where links change the changes and each job's steps, then notes.
[[nodiscard]] std::string jobs_text(const JobsReport& report);
/// orrery.simulated_jobs/1
[[nodiscard]] std::string jobs_json(const JobsReport& report);

/// "0-7, 16-23"
[[nodiscard]] std::string ranges_of(const std::vector<std::int64_t>& ascending);

}  // namespace orrery::reports
