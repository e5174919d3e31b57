// Chooses the backend of a plan's ranks: GPUs if the devices of its cluster are GPUs, otherwise or on request this
// machine's cores.
#pragma once

#include <memory>
#include <string>

#include "exec/backend.h"
#include "exec/transport/transport.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// Throws InputError, which names `source`, if the Program needs GPUs and this build can use none here or too few, or
/// if it needs GPUs and contains operations that run on CPUs only. Throws JobError, with the driver's reason, if there
/// are GPUs and CUDA cannot use them. `ranks_here`: how many of the job's ranks share this
/// machine's GPUs.
void check_backend(const program::Program& program, bool on_cpu, int ranks_here, const std::string& source);

/// Whether the GPUs of this build are those of tests/emulator, which compute as GPUs do in times of no meaning.
[[nodiscard]] bool gpus_are_emulated();

/// Collective over all ranks. Precondition: check_backend() accepts the Program. The transport must outlive the
/// backend. `deterministic`: the same plan, seed and machines give bitwise equal results. CPU runs are always
/// deterministic, because their kernels and collectives sum in a fixed order. For GPUs it pins the algorithms of NCCL
/// by its environment variables; variables that the user has set stay as they are.
[[nodiscard]] std::unique_ptr<Backend> make_backend(const program::Program& program, bool on_cpu, bool deterministic,
                                                    Transport& transport);

}  // namespace orrery::exec
