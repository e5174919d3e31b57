// The GPU kernels of dense decoders, in fp32. They compute the same as the functions of the same names in
// kernels/kernels.h, on device memory. They are queued on a stream and return at once. Sums have a fixed order, so the
// same input on the same device gives bitwise equal results; CPU results differ by rounding.
//
// Every function throws JobError naming the kernel if the launch fails. Errors of a running kernel are reported at the
// next synchronisation of the stream.
#pragma once

#include <cstdint>

#include "kernels/kernels.h"

namespace orrery::kernels::cuda {

/// A cudaStream_t.
struct StreamHandle {
    void* stream = nullptr;
};

// ---- embeddings and positions ---------------------------------------------------------------------------------------

void embedding_forward(StreamHandle stream, const EmbeddingShape& shape, const std::int32_t* tokens,
                       const float* weight, float* y);
void embedding_backward(StreamHandle stream, const EmbeddingShape& shape, const float* dy, const std::int32_t* tokens,
                        float* dweight);
void position_forward(StreamHandle stream, const PositionShape& shape, const float* x, const float* weight, float* y);
void position_backward(StreamHandle stream, const PositionShape& shape, const float* dy, float* dweight);
/// The tables cosines and sines [positions, d/2] start at position 0 and are in device memory.
void rotate(StreamHandle stream, const HeadShape& shape, std::int64_t micro_batch, std::int64_t first_position,
            const float* cosines, const float* sines, bool inverse, float* qkv);

// ---- normalisation --------------------------------------------------------------------------------------------------

void layer_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, const float* x,
                        const float* weight, const float* bias, float* y, float* stats);
void layer_norm_backward(StreamHandle stream, const NormShape& shape, const float* dy, const float* x,
                         const float* weight, const float* stats, const float* residual, float* dx, float* dweight,
                         float* dbias);
void rms_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, const float* x, const float* weight,
                      float* y, float* stats);
void rms_norm_backward(StreamHandle stream, const NormShape& shape, const float* dy, const float* x,
                       const float* weight, const float* stats, const float* residual, float* dx, float* dweight);

// ---- attention ------------------------------------------------------------------------------------------------------

/// Largest head_dim that attention supports.
inline constexpr std::int64_t kWidestHead = 256;
void attention_forward(StreamHandle stream, const AttentionShape& shape, const float* qkv, float* o, float* lse);
void attention_backward(StreamHandle stream, const AttentionShape& shape, const float* d_o, const float* qkv,
                        const float* o, const float* lse, float* dqkv);

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

// ---- flat vectors and columns ---------------------------------------------------------------------------------------

void residual_add(StreamHandle stream, std::int64_t rows, std::int64_t width, const float* a, const float* b,
                  const float* bias, float* y);
/// y[row] = bias, before a GEMM that adds to y.
void set_bias(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* bias, float* y);
void bias_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* dy, float* dbias);
void copy_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstRows x, Rows y);
void add_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstRows x, Rows y);
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
