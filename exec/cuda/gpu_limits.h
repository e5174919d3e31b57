// What the executor runs on GPUs, of all that it runs.
#pragma once

#include <string>

#include "sim/program/program.h"

namespace orrery::exec {

/// Throws InputError, which names `source`, when the Program holds what the GPU's kernels or NCCL do not carry out.
void check_runs_on_gpu(const program::Program& program, const std::string& source);

}  // namespace orrery::exec
