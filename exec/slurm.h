// Starting a job's ranks on a cluster that Slurm runs.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::exec {

/// What a plan does not say about its job. Paths are absolute and hold no control characters; the output folder holds
/// no backslash either, with which sbatch's file name patterns mean something else.
struct SlurmJob {
    std::string program;                 // the executable that each task runs
    std::vector<std::string> arguments;  // its arguments, argv without the first
    std::string working_folder;
    std::string output_folder;        // of what the job prints
    std::int64_t ranks_per_node = 0;  // of Slurm's nodes; 0: the devices of the cluster's nodes
    std::int64_t cpus_per_task = 0;   // 0: one core, or two threads' worth beside each GPU
    bool shares_nodes = false;        // with other jobs
    std::string partition, account, time;
    std::vector<std::pair<std::string, std::string>> more;  // other options of sbatch, without dashes; "": a flag
};

/// The plan's name with only what is safe in job and file names.
[[nodiscard]] std::string slurm_job_name(const program::Plan& plan);

/// An sbatch script that starts one task a rank, each on the node that the plan gives it. The same arguments give the
/// same text. Throws InputError when ranks_per_node cuts the cluster's nodes unevenly.
[[nodiscard]] std::string sbatch_script(const program::Plan& plan, const SlurmJob& job);

/// What sbatch_script sets for this job, so that nobody else may: (option of sbatch, where its value comes from).
[[nodiscard]] std::vector<std::pair<std::string, std::string>> sbatch_options_taken(const SlurmJob& job);

}  // namespace orrery::exec
