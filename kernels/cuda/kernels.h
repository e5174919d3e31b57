// The GPU kernels of dense decoders, in fp32. They compute the same as the functions of the same names in
// kernels/kernels.h, on device memory. They are queued on a stream and return at once. Sums have a fixed order, so the
// same input on the same device gives bitwise equal results; CPU results differ by rounding.
//
// Every function throws JobError naming the kernel if the launch fails. Errors of a running kernel are reported at the
// next synchronisation of the stream.
#pragma once

#include <cstdint>

#include "kernels/cuda/activations.h"
#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/flat.h"
#include "kernels/cuda/optimizer.h"
#include "kernels/cuda/stream.h"
#include "kernels/kernels.h"

namespace orrery::kernels::cuda {

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

// ---- flat vectors and columns ---------------------------------------------------------------------------------------

void residual_add(StreamHandle stream, std::int64_t rows, std::int64_t width, const float* a, const float* b,
                  const float* bias, float* y);
void copy_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstRows x, Rows y);
void add_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstRows x, Rows y);

}  // namespace orrery::kernels::cuda
