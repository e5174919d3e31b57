// Faults on purpose, for tests of what is done about them: the environment variable ORRERY_FAULT makes one rank of a
// run die, stop, hang, throw, compute NaN or be slow at a chosen instruction. Not for users; docs/running.md names it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace orrery::exec {

enum class FaultKind : std::uint8_t {
    kill,   // SIGKILL
    stop,   // SIGSTOP
    crash,  // SIGSEGV
    exit,   // the process ends with exit code 3
    hang,   // sleeps without end
    spin,   // computes without end
    fail,   // throws JobError
    bug,    // throws BugError
    oom,    // throws std::bad_alloc
    nan,    // the rank's first parameter becomes NaN
    slow,   // computes 2.5 s more
};

/// Fault::at: before the rank connects with the others.
inline constexpr const char* kAtInit = "init";

struct Fault {
    FaultKind kind{};
    int rank = 0;
    std::int64_t step = 0;
    std::string at;  // part of the instruction's key; kAtInit; "": the step's first instruction
};

/// "KIND:rank=R[,step=S][,at=TEXT]". Throws InputError naming ORRERY_FAULT, the key and what is allowed.
[[nodiscard]] Fault parse_fault(const std::string& text);

/// By ORRERY_FAULT, when it is set and meant for this rank.
[[nodiscard]] std::optional<Fault> fault_of_rank(int rank);

/// Before MPI starts.
void strike_at_init(int rank);

/// Does what the fault says, except for `nan`, where true is returned: the caller has the memory.
bool strike(const Fault& fault);

}  // namespace orrery::exec
