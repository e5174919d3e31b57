// An implementation with each operator in a kernel of its own.
#pragma once

#include <utility>

#include "models/implementation.h"

namespace orrery::models::samples {

[[nodiscard]] inline Implementation unfused(Implementation implementation) {
    KernelChoices& kernels = implementation.kernels;
    kernels.fused_residual_norm = kernels.gelu_epilogue = kernels.online_softmax = false;
    return implementation;
}

}  // namespace orrery::models::samples
