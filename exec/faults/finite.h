// Finding where a rank's numbers went wrong, once its loss or the norm of its gradients is no number any more.
#pragma once

#include <cstdint>

#include "core/dtype.h"
#include "exec/arena.h"
#include "exec/shards.h"
#include "sim/program/program.h"

namespace orrery::exec {

/// Throws JobError naming the step and the first of the parameters that this rank updates that is not finite. For the
/// sum of losses that a rank has just added to.
void check_loss(double loss_sum, std::int64_t step, const program::RankClass& rank_class, const Arena& arena,
                const Shards& shards);

/// Throws JobError naming the step and the first of the gradients, elements of `dtype`, that is not finite. For the sum
/// of squares that this rank adds to the norm of all.
void check_gradient_norm(double sum_of_squares, DType dtype, std::int64_t step, const program::RankClass& rank_class,
                         const Arena& arena, const Shards& shards);

}  // namespace orrery::exec
