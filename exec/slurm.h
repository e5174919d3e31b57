// Writes the batch script that starts a job's ranks on a Slurm cluster.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::exec {

/// The settings of a job that are not in its plan. Paths are absolute and contain no control characters. The output
/// folder contains no backslash either, because a backslash switches off sbatch's file name patterns.
struct SlurmJob {
    std::string program;                 // the executable that each task runs
    std::vector<std::string> arguments;  // its arguments, argv without the first
    std::string working_folder;
    std::string output_folder;        // for the job's stdout and stderr
    std::int64_t ranks_per_node = 0;  // on each Slurm node; 0: the number of devices of a node in the plan's cluster
    std::int64_t cpus_per_task = 0;   // 0: one on a cluster of CPUs, two for each GPU
    bool shares_nodes = false;        // with other jobs
    std::string partition, account, time;
    std::vector<std::pair<std::string, std::string>> more;  // other sbatch options without dashes; value "": a flag
};

/// The plan's name, with characters replaced that are not safe in job and file names.
[[nodiscard]] std::string slurm_job_name(const program::Plan& plan);

/// An sbatch script that starts one task per rank, each on the node that the plan assigns. The same arguments give the
/// same text. Throws InputError if ranks_per_node does not divide the devices of the cluster's nodes.
[[nodiscard]] std::string sbatch_script(const program::Plan& plan, const SlurmJob& job);

/// The sbatch options that SlurmJob::more must not contain, because sbatch_script decides them, with the reason.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> sbatch_options_taken(const SlurmJob& job);

}  // namespace orrery::exec
