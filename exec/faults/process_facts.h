// What the operating system reports about another process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace orrery::exec {

/// The state of a process's main thread, from /proc/PID/task/PID/stat.
struct ProcessFacts {
    bool exists = false;           // false for a zombie
    bool is_stopped = false;       // by SIGSTOP or a debugger
    bool runs = false;             // runnable or in uninterruptible (disk) sleep
    std::int64_t cpu_ticks = 0;    // CPU time used by the thread
    std::int64_t start_ticks = 0;  // start time of the thread since boot
};
[[nodiscard]] ProcessFacts process_facts(pid_t process);

/// The children of `parent`, including zombies.
[[nodiscard]] std::vector<pid_t> children_of(pid_t parent);

}  // namespace orrery::exec
