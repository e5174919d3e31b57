// Private to the CUDA kernels: attention as an argument of kernels.
#pragma once

#include <cmath>
#include <cstdint>

#include "core/error.h"
#include "core/random.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/dropout.cuh"
#include "kernels/cuda/positions.h"

namespace orrery::kernels::cuda {

/// An AttentionPart for kernels.
struct AttentionProblem {
    PositionRuns queries, keys;
    std::int64_t micro_batch = 0, query_rows = 0, key_rows = 0;
    int heads = 0, kv_heads = 0, head_dim = 0, value_dim = 0;
    bool causal = true;
    std::int64_t window = 0;
    float scale = 0;
    const float* slopes = nullptr;
    Masks masks;  // their key is that of the heads' keys
    std::int64_t first_head = 0;

    explicit AttentionProblem(const AttentionPart& part)
        : queries(part.queries),
          keys(part.keys),
          micro_batch(part.micro_batch),
          query_rows(part.query_rows()),
          key_rows(part.key_rows()),
          heads(static_cast<int>(part.heads)),
          kv_heads(static_cast<int>(part.kv_heads)),
          head_dim(static_cast<int>(part.head_dim)),
          value_dim(static_cast<int>(part.value_width())),
          causal(part.causal),
          window(part.sliding_window),
          scale(static_cast<float>(part.scale != 0 ? part.scale : 1.0 / std::sqrt(static_cast<double>(head_dim)))),
          slopes(part.alibi_slopes),
          masks(part.dropout, part.micro_batch),
          first_head(part.first_head) {
        ORRERY_CHECK(part.head_dim <= kWidestHead && part.value_width() <= kWidestHead,
                     "attention on CUDA takes heads of up to 256 elements");
        ORRERY_CHECK(causal || window == 0, "a sliding window needs causal attention");
        masks.key = RandomStream(part.dropout.key, "head").key();
    }
    __device__ float slope(int head) const { return slopes != nullptr ? slopes[head] : 0.0F; }
    /// The key of a head's masks.
    __device__ std::uint64_t mask_key(int head) const {
        return mix64(masks.key ^ mix64(static_cast<std::uint64_t>(first_head + head)));
    }
    __device__ RowMask mask_of(std::uint64_t key, std::int64_t sample, std::int64_t query) const {
        return {key, masks.first_sample + sample, query, masks.threshold};
    }
    /// The factor on the probability of a key.
    __device__ float kept(const RowMask& mask, std::int64_t key) const {
        if (!masks.drops) return 1.0F;
        return mask.keeps(static_cast<std::uint32_t>(key)) ? masks.scale : 0.0F;
    }
};

struct AttentionInputs {
    ConstFloatRows q, k, v;
};

struct AttentionBackwardInputs {
    ConstFloatRows q, k, v;
    ConstFloats d_o, o;
    const float* lse;
};

/// attention_forward() and attention_backward() of operands that are all in bf16; see attention_tiles.cu.
void attention_forward_tiles(StreamHandle stream, const AttentionProblem& problem, const AttentionInputs& in, Floats o,
                             float* lse);
/// Returns false, and queues nothing, if a block of this device has too little shared memory: of some GPUs for heads
/// wider than 128.
[[nodiscard]] bool attention_backward_tiles(StreamHandle stream, const AttentionProblem& problem,
                                            const AttentionBackwardInputs& in, float* scratch, FloatRows dq,
                                            FloatRows dk, FloatRows dv);

}  // namespace orrery::kernels::cuda
