// The GPU kernels. They compute the same as the functions of the same names in kernels/kernels.h, on device memory.
// They are queued on a stream and return at once. Sums have a fixed order, so the same input on the same device gives
// bitwise equal results; CPU results differ by rounding.
//
// Every function throws JobError naming the kernel if the launch fails. Errors of a running kernel are reported at the
// next synchronisation of the stream.
#pragma once

#include <cstdint>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/dropout.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/layout.h"
#include "kernels/cuda/rotary.h"
#include "kernels/cuda/stream.h"
#include "kernels/kernels.h"

namespace orrery::kernels::cuda {

// ---- embeddings and positions ---------------------------------------------------------------------------------------

void embedding_forward(StreamHandle stream, const EmbeddingShape& shape, const std::int32_t* tokens, ConstFloats weight,
                       Floats y);
void embedding_backward(StreamHandle stream, const EmbeddingShape& shape, ConstFloats dy, const std::int32_t* tokens,
                        Floats dweight);
void position_forward(StreamHandle stream, const PositionShape& shape, ConstFloats x, ConstFloats weight, Floats y);
void position_backward(StreamHandle stream, const PositionShape& shape, ConstFloats dy, Floats dweight);

// ---- normalisation --------------------------------------------------------------------------------------------------

void layer_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, ConstFloats x, ConstFloats weight,
                        ConstFloats bias, Floats y, float* stats);
void layer_norm_backward(StreamHandle stream, const NormShape& shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                         const float* stats, ConstFloats residual, Floats dx, Floats dweight, Floats dbias);
void rms_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, ConstFloats x, ConstFloats weight,
                      Floats y, float* stats);
void rms_norm_backward(StreamHandle stream, const NormShape& shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                       const float* stats, ConstFloats residual, Floats dx, Floats dweight);
void head_norm_forward(StreamHandle stream, const HeadShape& shape, double epsilon, ConstFloats qkv,
                       ConstFloats q_weight, ConstFloats k_weight, Floats out, float* stats);
void head_norm_backward(StreamHandle stream, const HeadShape& shape, ConstFloats dout, ConstFloats qkv,
                        ConstFloats q_weight, ConstFloats k_weight, const float* stats, Floats dqkv, Floats dq_weight,
                        Floats dk_weight);

// ---- activations ----------------------------------------------------------------------------------------------------

void gelu_forward(StreamHandle stream, std::int64_t elements, const float* x, float* y);
void gelu_backward(StreamHandle stream, std::int64_t elements, const float* dy, const float* x, float* dx);
void swiglu_forward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* gate_up, float* y);
void swiglu_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* dy, const float* gate_up,
                     float* dgate_up);

// ---- cross entropy --------------------------------------------------------------------------------------------------

void cross_entropy_max(StreamHandle stream, const VocabShard& shape, const float* logits, float* row_max);
void cross_entropy_sum(StreamHandle stream, const VocabShard& shape, const float* logits, const float* row_max,
                       const std::int32_t* targets, float* sums);
void cross_entropy_loss(StreamHandle stream, std::int64_t rows, const float* row_max, const float* sums, float* lse,
                        double* loss);
void cross_entropy_backward(StreamHandle stream, const VocabShard& shape, float scale, const float* lse,
                            const std::int32_t* targets, float* logits);

// ---- flat vectors ---------------------------------------------------------------------------------------------------

/// y[row] = bias, before a GEMM that adds to y.
void set_bias(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* bias, float* y);
void bias_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* dy, float* dbias);
void add(StreamHandle stream, std::int64_t elements, const float* b, float* a);

// ---- optimizers -----------------------------------------------------------------------------------------------------

/// The factor on gradients before use: min(1, clip_norm / (sqrt(*norm) + 1e-6)), or 1 without a norm.
struct Clipping {
    const double* norm = nullptr;  // device memory: sum of squares
    double clip_norm = 0;
};
void adamw(StreamHandle stream, std::int64_t elements, const AdamW& options, Clipping clipping, float* parameters,
           float* m, float* v, float* gradient);
void adam(StreamHandle stream, std::int64_t elements, const AdamW& options, Clipping clipping, float* parameters,
          float* m, float* v, float* gradient);
void sgd_momentum(StreamHandle stream, std::int64_t elements, const SgdMomentum& options, Clipping clipping,
                  float* parameters, float* m, float* gradient);
void scale(StreamHandle stream, std::int64_t elements, Clipping clipping, float* x);

/// Size of the buffer `partial` of sum_of_squares().
inline constexpr std::int64_t kPartialSums = 512;
/// norm[0] += sum of x squared; partial[kPartialSums] may be overwritten.
void sum_of_squares(StreamHandle stream, std::int64_t elements, const float* x, double* partial, double* norm);
/// norm[1] = 1 if norm[0] is not finite, otherwise 0.
void mark_not_finite(StreamHandle stream, double* norm);

}  // namespace orrery::kernels::cuda
