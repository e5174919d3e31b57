// Parts of attention for tests, without positions.
#pragma once

#include <cstdint>

#include "kernels/attention.h"

namespace orrery::kernels {

inline AttentionPart shape(std::int64_t micro_batch, std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim,
                           std::int64_t value_dim = 0) {
    return {.queries = {},
            .keys = {},
            .micro_batch = micro_batch,
            .heads = heads,
            .kv_heads = kv_heads,
            .head_dim = head_dim,
            .value_dim = value_dim};
}
inline AttentionPart windowed(AttentionPart part, std::int64_t window) {
    part.sliding_window = window;
    return part;
}
inline AttentionPart bidirectional(AttentionPart part) {
    part.causal = false;
    return part;
}
inline AttentionPart scaled(AttentionPart part, double scale) {
    part.scale = scale;
    return part;
}

}  // namespace orrery::kernels
