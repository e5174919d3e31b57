// Finds the element that made a rank's loss or gradient norm NaN or infinite.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "exec/arena.h"
#include "exec/shards.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// Throws JobError if the rank's sum of losses is not finite. The error names the step and the first parameter element
/// updated by this rank that is not finite.
void check_loss(double loss_sum, std::int64_t step, const program::RankClass& rank_class, const Arena& arena,
                const Shards& shards);

/// Throws JobError if this rank's part of the gradient norm is not finite. The error names the step and the first
/// gradient element of this rank that is not finite. `dtype` is the type of the gradients.
void check_gradient_norm(double sum_of_squares, DType dtype, std::int64_t step, const program::RankClass& rank_class,
                         const Arena& arena, const Shards& shards);

}  // namespace orrery::exec
