// The GPU kernels of attention; see kernels/attention.h. `alibi_slopes` of a part are in device memory.
#pragma once

#include "kernels/attention.h"
#include "kernels/cuda/floats.h"
#include "kernels/cuda/stream.h"

namespace orrery::kernels::cuda {

/// Largest head_dim and value_dim that attention supports.
inline constexpr std::int64_t kWidestHead = 256;

void attention_forward(StreamHandle stream, const AttentionPart& part, ConstFloatRows q, ConstFloatRows k,
                       ConstFloatRows v, Floats o, float* lse);
/// `scratch`: a float for each query row of each head, if d_o is in bf16; otherwise unused.
void attention_backward(StreamHandle stream, const AttentionPart& part, ConstFloats d_o, ConstFloatRows q,
                        ConstFloatRows k, ConstFloatRows v, ConstFloats o, const float* lse, FloatRows dq, FloatRows dk,
                        FloatRows dv, float* scratch);
void attention_merge(StreamHandle stream, std::int64_t rows, std::int64_t heads, std::int64_t value_dim,
                     ConstFloats part_o, const float* part_lse, Floats o, float* lse);

}  // namespace orrery::kernels::cuda
