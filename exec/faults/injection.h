// Fault injection, to test fault handling: the environment variable ORRERY_FAULT makes one rank of a run die, stop,
// hang, throw, compute NaN or be slow at a chosen instruction. Not for users; docs/running.md mentions it.
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
    hang,   // sleeps forever
    spin,   // computes forever
    fail,   // throws JobError
    bug,    // throws BugError
    oom,    // throws std::bad_alloc
    nan,    // the rank's first parameter becomes NaN
    slow,   // computes for 2.5 s more
};

/// Value of Fault::at for a fault before the rank connects to the others.
inline constexpr const char* kAtInit = "init";

struct Fault {
    FaultKind kind{};
    int rank = 0;
    std::int64_t step = 0;
    std::string at;  // substring of the instruction's key, or kAtInit; "": the first instruction of the step
};

/// "KIND:rank=R[,step=S][,at=TEXT]". Throws InputError naming ORRERY_FAULT, the key and what is allowed.
[[nodiscard]] Fault parse_fault(const std::string& text);

/// The fault in ORRERY_FAULT, if it is set and names this rank.
[[nodiscard]] std::optional<Fault> fault_of_rank(int rank);

/// Injects a fault with at=init. Call it before MPI starts.
void strike_at_init(int rank);

/// Injects the fault. For `nan` it only returns true, because the caller has the memory to overwrite.
bool strike(const Fault& fault);

}  // namespace orrery::exec
