#include "exec/launch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <string_view>
#include <system_error>

#include "exec/faults/rank_page.h"

namespace orrery::exec {
namespace {

/// `otherwise` if the variable is not set or not a number.
int integer_variable(const char* name, int otherwise) {
    const std::string_view text = std::getenv(name) == nullptr ? "" : std::getenv(name);
    int value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    return failed == std::errc{} && end == text.data() + text.size() ? value : otherwise;
}

#ifdef ORRERY_HAS_MPI
constexpr std::array kRankVariables{"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"};
#else
constexpr std::array kRankVariables{"RANK"};
#endif

[[maybe_unused]] bool has_pmi() {
    return std::any_of(kRankVariables.begin(), kRankVariables.end(),
                       [](const char* name) { return std::getenv(name) != nullptr; });
}

/// The number of tasks of this step; older versions of Slurm give only that of the job.
int slurm_tasks() {
    return integer_variable(std::getenv("SLURM_STEP_NUM_TASKS") != nullptr ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS",
                            0);
}

/// Slurm also sets SLURM_PROCID in a batch script, which is a single process outside any srun step.
bool one_of_several_slurm_tasks() {
    return std::getenv("SLURM_PROCID") != nullptr && std::getenv("SLURM_STEP_ID") != nullptr && slurm_tasks() > 1;
}

#ifndef ORRERY_HAS_MPI
/// The number of processes that a launcher has started without the variables by which ranks without MPI meet; 0: no
/// launcher.
int strange_tasks() {
    if (has_pmi()) return 0;
    return one_of_several_slurm_tasks()
               ? slurm_tasks()
               : std::max(integer_variable("OMPI_COMM_WORLD_SIZE", 0), integer_variable("PMI_SIZE", 0));
}
#endif

}  // namespace

bool under_launcher() {
#ifdef ORRERY_HAS_MPI
    return has_pmi() || one_of_several_slurm_tasks();
#else
    return (std::getenv("RANK") != nullptr && std::getenv("WORLD_SIZE") != nullptr) || strange_tasks() > 1;
#endif
}

bool launched_by_us() {
    return std::getenv(kPagesVariable) != nullptr;
}

int launched_rank() {
    for (const char* name : kRankVariables) {
        if (const int rank = integer_variable(name, -1); rank >= 0) return rank;
    }
    return -1;
}

std::string why_tasks_cannot_meet() {
#ifdef ORRERY_HAS_MPI
    if (has_pmi() || !one_of_several_slurm_tasks()) return {};
    return "srun: got " + std::to_string(slurm_tasks()) +
           " tasks without PMIx, so they cannot find each other; allowed: srun --mpi=pmix (srun --mpi=list shows what "
           "this Slurm has)";
#else
    if (strange_tasks() <= 1) return {};
    return "srun or mpirun: got " + std::to_string(strange_tasks()) +
           " tasks, but this orrery was built without MPI, so they cannot find each other; allowed: one task, which "
           "starts the ranks of its machine, or RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT for each, as torchrun "
           "--no-python sets them";
#endif
}

int task_number() {
    return integer_variable("SLURM_PROCID", integer_variable("OMPI_COMM_WORLD_RANK", 0));
}

std::string find_in_path(const std::string& program) {
    const char* path = std::getenv("PATH");
    std::istringstream folders(path == nullptr ? "" : path);
    for (std::string folder; std::getline(folders, folder, ':');) {
        std::string candidate = (folder.empty() ? "." : folder) + "/" + program;
        std::error_code ignored;
        if (access(candidate.c_str(), X_OK) == 0 && !std::filesystem::is_directory(candidate, ignored))
            return candidate;
    }
    return {};
}

std::string own_path() {
    return std::filesystem::read_symlink("/proc/self/exe").string();
}

}  // namespace orrery::exec
