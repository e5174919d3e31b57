// `orrery run PLAN --slurm`: options of a job on a Slurm cluster; writes and submits the sbatch script.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/plan.h"

namespace CLI {  // NOLINT(readability-identifier-naming): the library's own name
class App;
}

namespace orrery::cli {

struct SlurmOptions {
    bool wanted = false, submit = false, share_nodes = false;
    std::string partition, account, time;
    std::int64_t ranks_per_node = 0, cpus_per_task = 0;  // 0: derived from the plan
    std::vector<std::string> more;                       // KEY=VALUE
};

void add_slurm_options(CLI::App& command, SlurmOptions& options);

/// An absolute path that can be written into a script; "" stays "". Throws InputError, calling the path `key`, if it
/// contains control characters.
[[nodiscard]] std::string scriptable_path(const std::string& key, const std::string& path);

/// Prints the sbatch script of a job that runs this executable with `arguments` for each rank of the plan. With
/// --submit writes it into `folder` and submits it. The job's output goes into `folder`.
void start_on_slurm(const SlurmOptions& options, const program::Plan& plan, const std::vector<std::string>& arguments,
                    const std::string& folder);

}  // namespace orrery::cli
