// Optimizers, gradient norm and gradient scaling on an NVIDIA GPU, as in kernels/optimizer.h. Each function works on
// all ranges that a rank updates, in one launch unless there are very many.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"
#include "kernels/optimizer.h"

namespace orrery::kernels::cuda {

/// Consecutive elements of the buffers, from these offsets on.
struct FlatRange {
    std::int64_t parameter = 0;
    std::int64_t gradient = 0;
    std::int64_t state = 0;
    std::int64_t elements = 0;
    bool decays = false;
};

struct UpdatedBuffers {
    Floats parameters;
    Floats gradient;  // set to zero
    Floats m, v;
    float* master = nullptr;  // with the offsets of m; null: the parameters are in fp32 and have no copy
};

/// The factor on gradients before use: min(1, clip_norm / (sqrt(*norm) + 1e-6)), or 1 without a norm.
struct Clipping {
    const double* norm = nullptr;  // device memory: sum of squares
    double clip_norm = 0;
};

/// Weight decay applies to the ranges that decay.
void adamw(StreamHandle stream, std::span<const FlatRange> ranges, const AdamW& options, Clipping clipping,
           const UpdatedBuffers& buffers);
void adam(StreamHandle stream, std::span<const FlatRange> ranges, const AdamW& options, Clipping clipping,
          const UpdatedBuffers& buffers);
void sgd_momentum(StreamHandle stream, std::span<const FlatRange> ranges, const SgdMomentum& options, Clipping clipping,
                  const UpdatedBuffers& buffers);
void scale(StreamHandle stream, std::span<const FlatRange> ranges, Clipping clipping, Floats gradient);

/// Size of the buffer `partial` of gradient_norm().
inline constexpr std::int64_t kPartialSums = 512;
/// norm[0] = sum of squares, in double; norm[1] = 1 if that is not finite, otherwise 0. partial[kPartialSums] is
/// overwritten.
void gradient_norm(StreamHandle stream, std::span<const FlatRange> ranges, ConstFloats gradient, double* partial,
                   double* norm);

}  // namespace orrery::kernels::cuda
