// What the operating system says about another process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

namespace orrery::exec {

/// Of a process's first thread, by /proc/PID/task/PID/stat.
struct ProcessFacts {
    bool exists = false;           // and is no zombie
    bool is_stopped = false;       // by SIGSTOP or a debugger
    bool runs = false;             // or would, had it a core or its disk an answer
    std::int64_t cpu_ticks = 0;    // that the thread has had
    std::int64_t start_ticks = 0;  // when it began, since the machine's start
};
[[nodiscard]] ProcessFacts process_facts(pid_t process);

/// Living processes and zombies that have `parent` as parent.
[[nodiscard]] std::vector<pid_t> children_of(pid_t parent);

}  // namespace orrery::exec
