// Flat vectors and biases on an NVIDIA GPU, as in kernels/kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"

namespace orrery::kernels::cuda {

/// y[row] = bias, before a GEMM that adds to y.
void set_bias(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloats bias, FloatRows y);
/// dbias += column sums.
void bias_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloatRows dy, Floats dbias);
/// a += b.
void add(StreamHandle stream, std::int64_t elements, ConstFloats b, Floats a);
/// y = x, rounded to the type of y.
void cast(StreamHandle stream, std::int64_t elements, ConstFloats x, Floats y);
/// x = high + low to 16 significant bits, where high and low are in bf16 and contiguous; without low, high alone is x
/// rounded.
void cut(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloatRows x, Floats high, Floats low);

}  // namespace orrery::kernels::cuda
