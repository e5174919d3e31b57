// Which Programs the executor can run on GPUs. It runs more on CPUs.
#pragma once

#include <string>

#include "sim/program/program.h"

namespace orrery::exec {

/// Throws InputError, which names `source`, if the Program needs an operation that the GPU kernels or NCCL lack.
void check_runs_on_gpu(const program::Program& program, const std::string& source);

}  // namespace orrery::exec
