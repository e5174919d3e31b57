// Attention over whole sequences, and over the parts of one that context parallelism leaves to a rank.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/dropout.h"
#include "kernels/views.h"

namespace orrery::kernels {

/// Query rows handled at once: a tile of scores is this tall and at most as wide as there are keys.
inline constexpr std::int64_t kAttentionBlock = 64;

// ---- whole sequences, packed rows -----------------------------------------------------------------------------------

struct AttentionShape {
    std::int64_t sequence = 0;
    std::int64_t micro_batch = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;  // divides heads
    std::int64_t head_dim = 0;
    std::int64_t sliding_window = 0;  // a query sees this many keys, itself included; 0: all earlier ones
};
/// fp32 elements of scratch that one call of either pass needs (head_dim is accepted so that another blocking may use
/// it).
[[nodiscard]] std::int64_t attention_scratch_elements(std::int64_t sequence, std::int64_t head_dim);
/// Causal attention with scale 1/sqrt(d): packed qkv -> o[rows, heads * d], lse[heads, rows] (log of the sum of
/// exponentials of the scaled scores). Only keys up to the end of a block of queries are touched.
void attention_forward(const AttentionShape& shape, const float* qkv, float* o, float* lse, float* scratch);
/// Recomputes the probabilities from lse; dqkv is overwritten.
void attention_backward(const AttentionShape& shape, const float* d_o, const float* qkv, const float* o,
                        const float* lse, float* dqkv, float* scratch);

// ---- parts of a sequence --------------------------------------------------------------------------------------------

/// Some queries over some keys. Query row = (index of its position among `queries`) * micro_batch + sample, and so for
/// the rows of keys and values; heads lie side by side. `keys` need not be in the order of their positions.
struct AttentionPart {
    std::span<const PositionRun> queries;
    std::span<const PositionRun> keys;
    std::int64_t micro_batch = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;  // divides heads
    std::int64_t head_dim = 0;
    std::int64_t value_dim = 0;           // of v and o; 0: head_dim
    bool causal = true;                   // a query sees no key after its own position; false: it sees all
    std::int64_t sliding_window = 0;      // causal only: sees no key this many positions before it; 0: no such bound
    double scale = 0;                     // of the scores; 0: 1/sqrt(head_dim)
    const float* alibi_slopes = nullptr;  // [heads]; slope * (key position - query position) is added to scaled scores
    /// Of the probabilities, where its own is not 0: a row is a head's query, an element the position of a key.
    Dropout dropout;
    std::int64_t first_head = 0;  // global index of the first of `heads`: masks differ by head
    [[nodiscard]] std::int64_t query_rows() const { return positions(queries) * micro_batch; }
    [[nodiscard]] std::int64_t key_rows() const { return positions(keys) * micro_batch; }
    [[nodiscard]] std::int64_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
    [[nodiscard]] static std::int64_t positions(std::span<const PositionRun> runs) {
        std::int64_t sum = 0;
        for (const PositionRun& run : runs) sum += run.count;
        return sum;
    }
};
/// fp32 elements of scratch for a part of so many positions that attend and are attended to.
[[nodiscard]] std::int64_t attention_part_scratch_elements(std::int64_t queries, std::int64_t keys);
/// q[query rows, heads * d], k[key rows, kv_heads * d], v[key rows, kv_heads * value_dim] -> o[query rows, heads *
/// value_dim], lse[heads, query rows]. A query that sees none of the keys gets o = 0 and lse = -infinity. Keys that no
/// query of a block sees cost nothing, those that all of them see are not masked. lse is that of all probabilities,
/// dropped or not, so that parts can be merged.
void attention_forward(const AttentionPart& part, ConstRows q, ConstRows k, ConstRows v, float* o, float* lse,
                       float* scratch);
/// o and lse are the final ones, over the keys of all parts; d_o[query rows, heads * value_dim]. dq, dk and dv are
/// overwritten with what these keys contribute: the sum over parts is the gradient. Masks of dropout are made again.
void attention_backward(const AttentionPart& part, const float* d_o, ConstRows q, ConstRows k, ConstRows v,
                        const float* o, const float* lse, Rows dq, Rows dk, Rows dv, float* scratch);
/// Adds a part to a running result, as if the keys of both had been seen at once: part_o and o[rows, heads *
/// value_dim], part_lse and lse[heads, rows]. -infinity on either side means that no key was seen there; o is then 0,
/// as attention_forward leaves it.
void attention_merge(std::int64_t rows, std::int64_t heads, std::int64_t value_dim, const float* part_o,
                     const float* part_lse, float* o, float* lse);

/// slopes[count] of the heads [first, first + count) of `total` (Press et al., arXiv 2108.12409): the powers 1..n of
/// 2^(-8/n) for a power of two n; with other numbers of heads the largest such n below, then the odd powers of
/// 2^(-4/n).
void alibi_slopes(std::int64_t total, std::int64_t first, std::int64_t count, float* slopes);

}  // namespace orrery::kernels
