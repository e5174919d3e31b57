#include "exec/slurm.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "core/error.h"

namespace orrery::exec {
namespace {

constexpr std::string_view kLettersAndDigits = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

bool consists_of(const std::string& text, std::string_view more) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [&](char letter) {
        return kLettersAndDigits.find(letter) != std::string_view::npos || more.find(letter) != std::string_view::npos;
    });
}

std::string for_shell(const std::string& word) {
    if (consists_of(word, "_./=:,+@%-")) return word;
    std::string quoted = "'";
    for (const char letter : word) {
        if (letter == '\'') {
            quoted += "'\"'\"'";
        } else {
            quoted += letter;
        }
    }
    return quoted + "'";
}

/// Quotes for #SBATCH lines, in which, unlike in a shell's double quotes, a backslash always escapes the next
/// character.
std::string for_sbatch(const std::string& value) {
    if (consists_of(value, "_./=:,+@%-")) return value;
    std::string quoted = "\"";
    for (const char letter : value) {
        if (letter == '"' || letter == '\\') quoted += '\\';
        quoted += letter;
    }
    return quoted + "\"";
}

/// Escapes '%', which begins a file name pattern of sbatch.
std::string without_patterns(const std::string& path) {
    std::string result;
    for (const char letter : path) result.append(letter == '%' ? 2 : 1, letter);
    return result;
}

std::string counted(std::int64_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

/// Assigns the ranks to the job's nodes.
struct Layout {
    std::vector<std::int64_t> node_of_rank;  // numbered from 0 without gaps
    std::int64_t nodes = 0;
    std::int64_t ranks_per_node = 0;  // on the node with the most ranks
    bool in_blocks = true;            // rank i is on node i / ranks_per_node
    [[nodiscard]] std::int64_t ranks() const { return static_cast<std::int64_t>(node_of_rank.size()); }
    [[nodiscard]] bool even() const { return ranks() == nodes * ranks_per_node; }
};

std::int64_t devices_per_slurm_node(const topologies::ClusterSpec& cluster, std::int64_t wanted) {
    if (wanted == 0) return cluster.devices_per_node;
    if (!cluster.ranks_may_share_devices() && cluster.devices_per_node % wanted != 0) {
        throw InputError(
            "command line", "--ranks-per-node", std::to_string(wanted),
            "a divisor of " + std::to_string(cluster.devices_per_node) + ", the devices of a node of " + cluster.name);
    }
    return wanted;
}

Layout layout_of(const program::Plan& plan, std::int64_t wanted_ranks_per_node) {
    const std::vector<std::int64_t>& placement = plan.parallelism.placement;
    const std::int64_t per_node = devices_per_slurm_node(plan.cluster, wanted_ranks_per_node);
    Layout layout;
    std::map<std::int64_t, std::int64_t> ranks_on;
    for (std::int64_t rank = 0; rank < plan.parallelism.world_size(); ++rank) {
        std::int64_t device = rank;
        if (!placement.empty()) {
            device = placement[static_cast<std::size_t>(rank)];
        } else if (wanted_ranks_per_node == 0) {
            device = rank % plan.cluster.device_count();  // more ranks than cores: continue on the first node
        }
        layout.node_of_rank.push_back(device / per_node);
        ++ranks_on[device / per_node];
    }
    std::map<std::int64_t, std::int64_t> number;  // nodes without ranks are not requested
    for (const auto& [node, ranks] : ranks_on) {
        number.emplace(node, static_cast<std::int64_t>(number.size()));
        layout.ranks_per_node = std::max(layout.ranks_per_node, ranks);
    }
    layout.nodes = static_cast<std::int64_t>(number.size());
    for (std::int64_t rank = 0; rank < layout.ranks(); ++rank) {
        std::int64_t& node = layout.node_of_rank[static_cast<std::size_t>(rank)];
        node = number.at(node);
        layout.in_blocks = layout.in_blocks && node == rank / layout.ranks_per_node;
    }
    return layout;
}

class Script {
  public:
    Script(const program::Plan& plan, const SlurmJob& job)
        : plan_(plan),
          job_(job),
          layout_(layout_of(plan, job.ranks_per_node)),
          on_gpus_(!plan.cluster.ranks_may_share_devices()),
          // A rank has a compute thread and a progress thread. On a CPU cluster a device is one core, and calibration
          // measures it with both threads on that core.
          cpus_per_task_(job.cpus_per_task > 0 ? job.cpus_per_task : (on_gpus_ ? 2 : 1)),
          slots_per_node_(layout_.ranks_per_node) {
        const std::int64_t cores = on_gpus_ ? 0 : plan.cluster.device.cores_per_node;
        if (cores > 0) slots_per_node_ = std::min(slots_per_node_, std::max<std::int64_t>(1, cores / cpus_per_task_));
    }

    std::string text() {
        introduction();
        directives();
        text_ += "\nset -euo pipefail\n\n";
        meeting_point();
        start();
        return text_;
    }

  private:
    void introduction() {
        text_ += "#!/bin/bash\n";
        text_ += "# " + slurm_job_name(plan_) + ": " + counted(layout_.ranks(), "rank") + " on " +
                 counted(layout_.nodes, "node") + ", " + (layout_.even() ? "" : "up to ") +
                 std::to_string(layout_.ranks_per_node) + " a node.\n";
        text_ += "# Written by orrery run --slurm. Every node must see these paths.\n\n";
    }

    void directive(const std::string& option, const std::string& value) {
        text_ += "#SBATCH --" + option + (value.empty() ? "" : "=" + for_sbatch(value)) + "\n";
    }

    void directives() {
        directive("job-name", slurm_job_name(plan_));
        directive("chdir", job_.working_folder);
        directive("output",
                  without_patterns(job_.output_folder) + (job_.output_folder == "/" ? "" : "/") + "%x-%j.out");
        directive("nodes", std::to_string(layout_.nodes));
        directive("ntasks-per-node", std::to_string(slots_per_node_));
        directive("cpus-per-task", std::to_string(cpus_per_task_));
        if (on_gpus_) directive("gpus-per-node", std::to_string(layout_.ranks_per_node));
        if (!job_.shares_nodes) {
            directive("exclusive", "");
            directive("mem", "0");
        }
        if (!job_.partition.empty()) directive("partition", job_.partition);
        if (!job_.account.empty()) directive("account", job_.account);
        if (!job_.time.empty()) directive("time", job_.time);
        for (const auto& [option, value] : job_.more) directive(option, value);
    }

    void meeting_point() {
        text_ +=
            "# Where ranks that meet over TCP, as those on GPUs do, find rank 0. Jobs that share a node differ in the "
            "port.\n";
        text_ += "mapfile -t hosts < <(scontrol show hostnames \"$SLURM_JOB_NODELIST\")\n";
        text_ += "export MASTER_ADDR=\"${hosts[" + std::to_string(layout_.node_of_rank.front()) + "]}\"\n";
        text_ += "export MASTER_PORT=$((20000 + SLURM_JOB_ID % 10000))\n\n";
    }

    void write_host_file() {
        text_ += "# The plan places its ranks on the nodes in an order of its own: one line a rank.\n";
        text_ += "SLURM_HOSTFILE=$(mktemp)\n";
        text_ += "export SLURM_HOSTFILE\n";
        text_ += "trap 'rm -f \"$SLURM_HOSTFILE\"' EXIT\n";
        text_ += "for node in";
        for (std::size_t rank = 0; rank < layout_.node_of_rank.size(); ++rank) {
            if (rank > 0 && rank % 32 == 0) text_ += " \\\n   ";
            text_ += " " + std::to_string(layout_.node_of_rank[rank]);
        }
        text_ += "; do\n    echo \"${hosts[$node]}\"\ndone >\"$SLURM_HOSTFILE\"\n\n";
    }

    void start() {
        const bool shares_cores = slots_per_node_ < layout_.ranks_per_node;
        std::string distribution = "arbitrary";
        if (!layout_.in_blocks) {
            write_host_file();
        } else if (layout_.even() && !shares_cores) {
            distribution = "block";
        } else {
            distribution = "plane=" + std::to_string(layout_.ranks_per_node);
        }
        if (distribution != "block") {
            text_ += "# srun is told below how many tasks there are and where they go.\n";
            text_ += "unset SLURM_NTASKS_PER_NODE\n\n";
        }
        text_ += "# Task i is rank i of the plan. A rank that fails ends the others.\n";
        text_ += "srun --mpi=pmix --ntasks=" + std::to_string(layout_.ranks()) +
                 " --cpus-per-task=" + std::to_string(cpus_per_task_) + " --distribution=" + distribution +
                 (shares_cores ? " --overcommit" : "") + " --kill-on-bad-exit=1 \\\n    " + for_shell(job_.program);
        for (const std::string& word : job_.arguments) {
            text_ += (word.starts_with("--") ? " \\\n    " : " ") + for_shell(word);
        }
        text_ += "\n";
    }

    const program::Plan& plan_;
    const SlurmJob& job_;
    Layout layout_;
    bool on_gpus_;
    std::int64_t cpus_per_task_;
    std::int64_t slots_per_node_;  // tasks per node requested from Slurm; fewer than the ranks if ranks share cores
    std::string text_;
};

}  // namespace

std::string slurm_job_name(const program::Plan& plan) {
    std::string name;
    for (const char letter : plan.name) name += consists_of({letter}, "._-") ? letter : '-';
    // So that a file of this name is neither hidden nor taken for an option.
    return name.find_first_not_of("._-") == 0 ? name : "orrery" + name;
}

std::string sbatch_script(const program::Plan& plan, const SlurmJob& job) {
    return Script(plan, job).text();
}

std::vector<std::pair<std::string, std::string>> sbatch_options_taken(const SlurmJob& job) {
    const std::string plan = "the plan says it";
    const std::string output = "the job's output lies beside its results";
    std::vector<std::pair<std::string, std::string>> taken{{"job-name", plan},
                                                           {"nodes", plan},
                                                           {"ntasks", plan},
                                                           {"tasks", plan},
                                                           {"ntasks-per-gpu", plan},
                                                           {"gpus", plan},
                                                           {"gpus-per-node", plan},
                                                           {"gpus-per-task", plan},
                                                           {"gpus-per-socket", plan},
                                                           {"ntasks-per-node", "say --ranks-per-node"},
                                                           {"cpus-per-task", "say --cpus-per-task"},
                                                           {"partition", "say --partition"},
                                                           {"account", "say --account"},
                                                           {"time", "say --time"},
                                                           {"chdir", "the job runs where it was written"},
                                                           {"output", output},
                                                           {"distribution", plan},
                                                           {"array", "a plan is one job"},
                                                           {"wrap", "the script is the job"},
                                                           {"parsable", "--submit reads what sbatch prints"},
                                                           {"quiet", "--submit reads what sbatch prints"},
                                                           {"wait", "--submit does not wait"},
                                                           {"test-only", "leave --submit out to submit nothing"}};
    if (!job.shares_nodes) {
        for (const char* option : {"exclusive", "oversubscribe", "mem", "mem-per-cpu", "mem-per-gpu"}) {
            taken.emplace_back(option, "say --share-nodes, else the nodes are the job's own");
        }
    }
    return taken;
}

}  // namespace orrery::exec
