// The GPU kernels of residual sums, and of dropout; see kernels/dropout.h. The samples of a micro-batch are
// consecutive.
#pragma once

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"
#include "kernels/dropout.h"

namespace orrery::kernels::cuda {

/// y = a + b + bias + second_bias; each bias may be absent. y may be a or b.
void residual_add(StreamHandle stream, std::int64_t rows, std::int64_t width, ConstFloats a, ConstFloats b,
                  ConstFloats bias, ConstFloats second_bias, Floats y);
void residual_add_dropout(StreamHandle stream, const DropoutRows& rows, ConstFloats a, ConstFloats b, ConstFloats bias,
                          ConstFloats second_bias, Floats y, std::uint8_t* mask);
void dropout_backward(StreamHandle stream, std::int64_t elements, double probability, ConstFloats dy,
                      const std::uint8_t* mask, Floats dx);

}  // namespace orrery::kernels::cuda
