// Which of the plans that the executor runs can run on GPUs.
#pragma once

#include <string>
#include <vector>

#include "exec/executable.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// What check_runs_on_gpu() refuses beyond executor_limits(), with what of the hardware or of the kernels sets it.
[[nodiscard]] std::vector<RunLimit> gpu_limits();

/// Throws InputError with `source`, the key, what is not supported and what is, if kernels for GPUs lack something that
/// the Program needs. Needs no GPU.
void check_runs_on_gpu(const program::Program& program, const std::string& source);

}  // namespace orrery::exec
