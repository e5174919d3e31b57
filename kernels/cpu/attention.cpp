// Causal grouped-query attention, one (sample, head) at a time over blocks of query rows. The products go through BLAS;
// a block touches only the keys that its rows may see.
#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"

namespace orrery::kernels {
namespace {

/// One block of query rows and the keys that any of them sees.
struct Tile {
    std::int64_t first_query = 0;
    std::int64_t queries = 0;
    std::int64_t first_key = 0;
    std::int64_t keys = 0;
    std::int64_t window = 0;

    /// Keys of row `i` are columns [begin(i), end(i)) of the tile.
    [[nodiscard]] std::int64_t begin(std::int64_t i) const {
        return window > 0 ? std::max<std::int64_t>(0, first_query + i - window + 1 - first_key) : 0;
    }
    [[nodiscard]] std::int64_t end(std::int64_t i) const { return first_query + i + 1 - first_key; }
};

Tile tile_at(const AttentionShape& shape, std::int64_t first_query) {
    Tile tile;
    tile.first_query = first_query;
    tile.queries = std::min(kAttentionBlock, shape.sequence - first_query);
    tile.window = shape.sliding_window;
    if (tile.window > 0) tile.first_key = std::max<std::int64_t>(0, first_query - tile.window + 1);
    tile.keys = first_query + tile.queries - tile.first_key;
    return tile;
}

/// Writes `value` over the columns that row `i` must not see.
ORRERY_INLINE void mask_row(const Tile& tile, std::int64_t i, float value, float* row) {
    const std::int64_t begin = tile.begin(i);
    for (std::int64_t j = 0; j < begin; ++j) row[j] = value;
    for (std::int64_t j = tile.end(i); j < tile.keys; ++j) row[j] = value;
}

/// Scores -> unnormalised probabilities in place (0 where masked), with each row's sum and log-sum-exp. Whole rows are
/// worked on, masked columns too: full vectors cost less than ragged ends.
ORRERY_VECTOR
void softmax_rows(const Tile& tile, float* scores, float* sums, float* lse, std::int64_t lse_stride) {
    constexpr float kMasked = -std::numeric_limits<float>::infinity();
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        float* row = scores + i * tile.keys;
        mask_row(tile, i, kMasked, row);
        const float top = lane_max(tile.keys, row, kMasked);
        for (std::int64_t j = 0; j < tile.keys; ++j) row[j] = fast_exp(row[j] - top);
        sums[i] = lane_sum<float>(tile.keys, [&](std::int64_t j) { return row[j]; });
        lse[i * lse_stride] = top + std::log(sums[i]);
    }
}

ORRERY_VECTOR
void divide_rows(std::int64_t rows, std::int64_t width, const float* divisors, float* y, std::int64_t stride) {
    for (std::int64_t i = 0; i < rows; ++i) {
        float* row = y + i * stride;
        const float factor = 1.0F / divisors[i];
        for (std::int64_t j = 0; j < width; ++j) row[j] *= factor;
    }
}

/// Scores -> probabilities in place, from the saved log-sum-exp.
ORRERY_VECTOR
void probabilities(const Tile& tile, const float* lse, std::int64_t lse_stride, float* scores) {
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        float* row = scores + i * tile.keys;
        const float log_sum = lse[i * lse_stride];
        for (std::int64_t j = 0; j < tile.keys; ++j) row[j] = fast_exp(row[j] - log_sum);
        mask_row(tile, i, 0.0F, row);
    }
}

/// Gradient of the scores, in place of that of the probabilities: p (dp - do . o) scale.
ORRERY_VECTOR
void score_gradients(const Tile& tile, std::int64_t head_dim, float scale, const float* p, const float* d_o,
                     const float* o, std::int64_t stride, float* dp) {
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        const float* gradient = d_o + i * stride;
        const float* output = o + i * stride;
        const float dot = lane_sum<float>(head_dim, [&](std::int64_t j) { return gradient[j] * output[j]; });
        const float* p_row = p + i * tile.keys;
        float* row = dp + i * tile.keys;
        ORRERY_INDEPENDENT
        for (std::int64_t j = 0; j < tile.keys; ++j) row[j] = p_row[j] * (row[j] - dot) * scale;
    }
}

/// Where one head of one sample lies in packed rows.
struct HeadView {
    std::int64_t q = 0, k = 0, v = 0, o = 0;    // offsets of position 0
    std::int64_t qkv_stride = 0, o_stride = 0;  // from position to position
    std::int64_t lse = 0;                       // offset of position 0; stride micro_batch
};

HeadView view_of(const AttentionShape& shape, std::int64_t sample, std::int64_t head) {
    const std::int64_t d = shape.head_dim;
    const std::int64_t kv_head = head / (shape.heads / shape.kv_heads);
    const std::int64_t qkv_width = (shape.heads + 2 * shape.kv_heads) * d;
    HeadView view;
    view.q = sample * qkv_width + head * d;
    view.k = sample * qkv_width + (shape.heads + kv_head) * d;
    view.v = view.k + shape.kv_heads * d;
    view.o = (sample * shape.heads + head) * d;
    view.qkv_stride = shape.micro_batch * qkv_width;
    view.o_stride = shape.micro_batch * shape.heads * d;
    view.lse = head * shape.sequence * shape.micro_batch + sample;
    return view;
}

float scale_of(const AttentionShape& shape) {
    return static_cast<float>(1.0 / std::sqrt(static_cast<double>(shape.head_dim)));
}

void forward_head(const AttentionShape& shape, const HeadView& at, const float* qkv, float* o, float* lse,
                  float* scratch) {
    const std::int64_t d = shape.head_dim;
    const std::int64_t stride = at.qkv_stride;
    float sums[kAttentionBlock];
    for (std::int64_t first = 0; first < shape.sequence; first += kAttentionBlock) {
        const Tile tile = tile_at(shape, first);
        const float* q = qkv + at.q + first * stride;
        const float* k = qkv + at.k + tile.first_key * stride;
        const float* v = qkv + at.v + tile.first_key * stride;
        float* out = o + at.o + first * at.o_stride;
        multiply(tile.queries, tile.keys, d, scale_of(shape), {q, stride}, {k, stride, true}, 0.0F, scratch, tile.keys);
        softmax_rows(tile, scratch, sums, lse + at.lse + first * shape.micro_batch, shape.micro_batch);
        multiply(tile.queries, d, tile.keys, 1.0F, {scratch, tile.keys}, {v, stride}, 0.0F, out, at.o_stride);
        divide_rows(tile.queries, d, sums, out, at.o_stride);
    }
}

void backward_head(const AttentionShape& shape, const HeadView& at, const float* d_o, const float* qkv, const float* o,
                   const float* lse, float* dqkv, float* scratch) {
    const std::int64_t d = shape.head_dim;
    const std::int64_t stride = at.qkv_stride;
    float* p = scratch;
    float* dp = scratch + std::min(kAttentionBlock, shape.sequence) * shape.sequence;
    for (std::int64_t first = 0; first < shape.sequence; first += kAttentionBlock) {
        const Tile tile = tile_at(shape, first);
        const std::int64_t query = first * stride;
        const std::int64_t key = tile.first_key * stride;
        const std::int64_t rows = tile.queries;
        const std::int64_t keys = tile.keys;
        const float* gradient = d_o + at.o + first * at.o_stride;
        const Matrix q{qkv + at.q + query, stride};
        multiply(rows, keys, d, scale_of(shape), q, {qkv + at.k + key, stride, true}, 0.0F, p, keys);
        probabilities(tile, lse + at.lse + first * shape.micro_batch, shape.micro_batch, p);
        multiply(keys, d, rows, 1.0F, {p, keys, true}, {gradient, at.o_stride}, 1.0F, dqkv + at.v + key, stride);
        multiply(rows, keys, d, 1.0F, {gradient, at.o_stride}, {qkv + at.v + key, stride, true}, 0.0F, dp, keys);
        score_gradients(tile, d, scale_of(shape), p, gradient, o + at.o + first * at.o_stride, at.o_stride, dp);
        multiply(rows, d, keys, 1.0F, {dp, keys}, {qkv + at.k + key, stride}, 0.0F, dqkv + at.q + query, stride);
        multiply(keys, d, rows, 1.0F, {dp, keys, true}, q, 1.0F, dqkv + at.k + key, stride);
    }
}

}  // namespace

std::int64_t attention_scratch_elements(std::int64_t sequence, [[maybe_unused]] std::int64_t head_dim) {
    return 2 * std::min(kAttentionBlock, sequence) * sequence;
}

void attention_forward(const AttentionShape& shape, const float* qkv, float* o, float* lse, float* scratch) {
    for (std::int64_t sample = 0; sample < shape.micro_batch; ++sample) {
        for (std::int64_t head = 0; head < shape.heads; ++head) {
            forward_head(shape, view_of(shape, sample, head), qkv, o, lse, scratch);
        }
    }
}

void attention_backward(const AttentionShape& shape, const float* d_o, const float* qkv, const float* o,
                        const float* lse, float* dqkv, float* scratch) {
    // dk and dv are sums over query blocks and over the query heads of a group.
    const std::int64_t width = (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
    for (std::int64_t row = 0; row < shape.sequence * shape.micro_batch; ++row) {
        fill(2 * shape.kv_heads * shape.head_dim, 0.0F, dqkv + row * width + shape.heads * shape.head_dim);
    }
    for (std::int64_t sample = 0; sample < shape.micro_batch; ++sample) {
        for (std::int64_t head = 0; head < shape.heads; ++head) {
            backward_head(shape, view_of(shape, sample, head), d_o, qkv, o, lse, dqkv, scratch);
        }
    }
}

}  // namespace orrery::kernels
