// Several jobs on one cluster: how long their steps take together, and alone on the same devices.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::reports {

struct JobReport {
    const program::Program* program = nullptr;
    std::vector<std::int64_t> devices;  // of the cluster; ascending
    program::RunRecord alone, together;
};

/// A row for each job, then its notes.
[[nodiscard]] std::string jobs_text(const std::string& cluster, const std::vector<JobReport>& jobs);
/// orrery.simulated_jobs/1
[[nodiscard]] std::string jobs_json(const std::string& cluster, const std::vector<JobReport>& jobs);

/// "0-7, 16-23"
[[nodiscard]] std::string ranges_of(const std::vector<std::int64_t>& ascending);

}  // namespace orrery::reports
