// Activations and gates on an NVIDIA GPU, as in kernels/kernels.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/floats.h"
#include "kernels/cuda/row_count.h"
#include "kernels/cuda/stream.h"

namespace orrery::kernels::cuda {

void gelu_forward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats x, Floats y);
void gelu_backward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats dy, ConstFloats x, Floats dx);
void relu_forward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats x, Floats y);
void relu_backward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats dy, ConstFloats x, Floats dx);
void swiglu_forward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats gate_up, Floats y);
void swiglu_backward(StreamHandle stream, const RowCount& rows, std::int64_t n, ConstFloats dy, ConstFloats gate_up,
                     Floats dgate_up);
void sigmoid_scale_forward(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloats x, ConstFloats logits,
                           Floats y);
void sigmoid_scale_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstFloats dy, ConstFloats x,
                            ConstFloats logits, Floats dx, Floats dlogits);

}  // namespace orrery::kernels::cuda
