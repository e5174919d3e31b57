// The GPU kernels. They compute the same as the functions of the same names in kernels/kernels.h, on device memory.
// They are queued on a stream and return at once. Sums have a fixed order, so the same input on the same device gives
// bitwise equal results; CPU results differ by rounding.
//
// Every function throws JobError naming the kernel if the launch fails. Errors of a running kernel are reported at the
// next synchronisation of the stream.
#pragma once

#include <cstdint>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/experts.h"
#include "kernels/cuda/flat.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/sort_rows.h"
#include "kernels/cuda/stream.h"
#include "kernels/kernels.h"

namespace orrery::kernels::cuda {

// ---- embeddings and positions ---------------------------------------------------------------------------------------

void embedding_forward(StreamHandle stream, const EmbeddingShape& shape, const std::int32_t* tokens, ConstFloats weight,
                       Floats y);
/// `scratch`: sort_bytes(rows) bytes.
void embedding_backward(StreamHandle stream, const EmbeddingShape& shape, ConstFloats dy, const std::int32_t* tokens,
                        Floats dweight, void* scratch);
void position_forward(StreamHandle stream, const PositionShape& shape, ConstFloats x, ConstFloats weight, Floats y);
void position_backward(StreamHandle stream, const PositionShape& shape, ConstFloats dy, Floats dweight);

// ---- normalisation --------------------------------------------------------------------------------------------------

/// What a norm adds to its input first: sum = x + rows + bias, of which the result is the norm. All absent: nothing.
struct AddedRows {
    ConstFloats rows;
    ConstFloats bias;  // a row, or absent
    Floats sum;        // may be x or rows
};
void layer_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, ConstFloats x, ConstFloats weight,
                        ConstFloats bias, Floats y, float* stats, const AddedRows& added = {});
void layer_norm_backward(StreamHandle stream, const NormShape& shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                         const float* stats, ConstFloats residual, Floats dx, Floats dweight, Floats dbias);
void rms_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, ConstFloats x, ConstFloats weight,
                      Floats y, float* stats, const AddedRows& added = {});
void rms_norm_backward(StreamHandle stream, const NormShape& shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                       const float* stats, ConstFloats residual, Floats dx, Floats dweight);
void head_norm_forward(StreamHandle stream, const HeadShape& shape, double epsilon, ConstFloats qkv,
                       ConstFloats q_weight, ConstFloats k_weight, Floats out, float* stats);
void head_norm_backward(StreamHandle stream, const HeadShape& shape, ConstFloats dout, ConstFloats qkv,
                        ConstFloats q_weight, ConstFloats k_weight, const float* stats, Floats dqkv, Floats dq_weight,
                        Floats dk_weight);

}  // namespace orrery::kernels::cuda
