// Starts ranks with mpirun.
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>

#include "core/error.h"
#include "exec/faults/job_folder.h"
#include "exec/faults/rank_page.h"
#include "exec/faults/supervisor.h"
#include "exec/launch.h"

namespace orrery::exec {
namespace {

/// Makes only async-signal-safe calls after fork, because the parent may have threads.
pid_t fork_reader(pid_t target, const volatile long* address, long expected) {
    const pid_t child = fork();
    if (child != 0) return child;
    long copy = 0;
    iovec local{&copy, sizeof copy};
    iovec remote{const_cast<long*>(address), sizeof copy};
    const bool read = process_vm_readv(target, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(sizeof copy);
    _exit(read && copy == expected ? 0 : 1);
}

void default_variable(const char* name, const char* value) {
    setenv(name, value, 0);  // 0: keep the user's value
}

}  // namespace

bool single_copy_allowed() {
    static const volatile long witness = 0x6f727265;
    int ready[2];
    if (pipe2(ready, O_CLOEXEC) != 0) return false;
    const pid_t target = fork();
    if (target == 0) {
        // Open MPI does the same in each rank, for Yama's "descendants only" rule.
#ifdef PR_SET_PTRACER
        prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
#endif
        const char byte = 1;
        if (write(ready[1], &byte, 1) != 1) _exit(1);
        pause();
        _exit(0);
    }
    close(ready[1]);
    bool allowed = false;
    char byte = 0;
    if (target > 0 && read(ready[0], &byte, 1) == 1) {
        const pid_t reader = fork_reader(target, &witness, witness);
        int status = 1;
        allowed = reader > 0 && waitpid(reader, &status, 0) == reader && status == 0;
    }
    close(ready[0]);
    if (target > 0) {
        kill(target, SIGKILL);
        waitpid(target, nullptr, 0);
    }
    return allowed;
}

std::vector<std::string> mpirun_command(const std::string& mpirun, int ranks, const std::string& program,
                                        const std::vector<std::string>& arguments) {
    ORRERY_CHECK(ranks >= 1, "ranks " + std::to_string(ranks));
    std::vector<std::string> command{mpirun, "--quiet", "--oversubscribe",     "--bind-to",
                                     "none", "-np",     std::to_string(ranks), program};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return command;
}

int launch_ranks(const LaunchOptions& options) {
    const std::string mpirun = find_in_path("mpirun");
    if (mpirun.empty()) {
        throw InputError("PATH: no mpirun found to start " + std::to_string(options.ranks) +
                         " ranks; allowed: a PATH with mpirun (Debian: apt install openmpi-bin), or start this "
                         "command under srun");
    }
    const JobFolder folder;
    JobPages pages(options.ranks);
    setenv(kPagesVariable, pages.path().c_str(), 1);
    if (geteuid() == 0) {
        default_variable("OMPI_ALLOW_RUN_AS_ROOT", "1");
        default_variable("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    }
    // All ranks are on this machine and use shared memory, so no remote shell and no network device is looked for.
    default_variable("OMPI_MCA_plm", "isolated");
    // The same in a batch script: do not use the nodes of its allocation.
    default_variable("OMPI_MCA_ras", "^slurm,tm,lsf,gridengine,alps");
    default_variable("OMPI_MCA_pml", "ob1");
    default_variable("OMPI_MCA_btl", "self,vader");
    default_variable("OMPI_MCA_btl_vader_single_copy_mechanism", single_copy_allowed() ? "cma" : "none");
    default_variable("OMPI_MCA_btl_vader_backing_directory", folder.path().c_str());
    default_variable("OMPI_MCA_orte_tmpdir_base", folder.path().c_str());
    return supervise(starter_command("mpirun", mpirun_command(mpirun, options.ranks, own_path(), options.arguments)),
                     pages, {.timeout_s = options.timeout_s, .program = options.program, .show = options.show});
}

}  // namespace orrery::exec
