// Which backend a plan's ranks run on: GPUs where the devices of its cluster are GPUs, this machine's cores otherwise
// or when they are asked for.
#pragma once

#include <memory>
#include <string>

#include "exec/backend.h"
#include "exec/transport/transport.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// Throws InputError, which names `source`, when the Program needs GPUs and this machine has none that this build can
/// use, or when it holds what runs on CPUs only. `ranks_here`: how many of the job's ranks share this machine's GPUs.
void check_backend(const program::Program& program, bool on_cpu, int ranks_here, const std::string& source);

/// Precondition: check_backend() lets the Program through. The transport outlives the backend. `deterministic`: the
/// same plan, seed and machines give the same bits every time. Cores do in any case, since ours are the sums and the
/// collectives; of NCCL and cuBLAS one algorithm each is asked, by the variables of theirs that the user has not set.
[[nodiscard]] std::unique_ptr<Backend> make_backend(const program::Program& program, bool on_cpu, bool deterministic,
                                                    Transport& transport);

}  // namespace orrery::exec
