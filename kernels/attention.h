// Attention over whole sequences, and over parts of a sequence as context parallelism needs it.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/dropout.h"
#include "kernels/views.h"

namespace orrery::kernels {

/// Query rows per tile: a tile of scores has up to this many rows and up to as many columns as there are keys.
inline constexpr std::int64_t kAttentionBlock = 64;

// ---- whole sequences, packed rows -----------------------------------------------------------------------------------

struct AttentionShape {
    std::int64_t sequence = 0;
    std::int64_t micro_batch = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;  // divides heads
    std::int64_t head_dim = 0;
    std::int64_t sliding_window = 0;  // number of keys a query attends to, including its own; 0: all earlier keys
};
/// Scratch memory of a forward or backward call, in fp32 elements. head_dim is unused; another tiling may need it.
[[nodiscard]] std::int64_t attention_scratch_elements(std::int64_t sequence, std::int64_t head_dim);
/// Causal attention with scale 1/sqrt(d): packed qkv -> o[rows, heads * d], lse[heads, rows] (log of the sum of
/// exponentials of the scaled scores). Keys after the last query of a tile are not read.
void attention_forward(const AttentionShape& shape, const float* qkv, float* o, float* lse, float* scratch);
/// Recomputes the probabilities from lse; dqkv is overwritten.
void attention_backward(const AttentionShape& shape, const float* d_o, const float* qkv, const float* o,
                        const float* lse, float* dqkv, float* scratch);

// ---- parts of a sequence --------------------------------------------------------------------------------------------

/// Attention of some queries over some keys. Query row = (index of its position among `queries`) * micro_batch +
/// sample; the rows of keys and values are ordered the same way. A row has the heads side by side. `keys` need not be
/// in the order of their positions.
struct AttentionPart {
    std::span<const PositionRun> queries;
    std::span<const PositionRun> keys;
    std::int64_t micro_batch = 0;
    std::int64_t heads = 0;
    std::int64_t kv_heads = 0;  // divides heads
    std::int64_t head_dim = 0;
    std::int64_t value_dim = 0;           // of v and o; 0: head_dim
    bool causal = true;                   // true: no key after the query's position; false: all keys
    std::int64_t sliding_window = 0;      // causal only: no key this many or more positions before; 0: no limit
    double scale = 0;                     // of the scores; 0: 1/sqrt(head_dim)
    const float* alibi_slopes = nullptr;  // [heads]; slope * (key position - query position) is added to scaled scores
    /// Dropout of the attention probabilities; none if its `probability` is 0. A mask row is a query of a head, a mask
    /// element the position of a key.
    Dropout dropout;
    std::int64_t first_head = 0;  // global index of the first head, because masks differ by head
    [[nodiscard]] std::int64_t query_rows() const { return positions(queries) * micro_batch; }
    [[nodiscard]] std::int64_t key_rows() const { return positions(keys) * micro_batch; }
    [[nodiscard]] std::int64_t value_width() const { return value_dim > 0 ? value_dim : head_dim; }
    [[nodiscard]] static std::int64_t positions(std::span<const PositionRun> runs) {
        std::int64_t sum = 0;
        for (const PositionRun& run : runs) sum += run.count;
        return sum;
    }
};
/// Scratch memory for a part with so many query and key positions, in fp32 elements.
[[nodiscard]] std::int64_t attention_part_scratch_elements(std::int64_t queries, std::int64_t keys);
/// q[query rows, heads * d], k[key rows, kv_heads * d], v[key rows, kv_heads * value_dim] -> o[query rows, heads *
/// value_dim], lse[heads, query rows]. A query that attends to no key gets o = 0 and lse = -infinity. Keys to which no
/// query of a tile attends are skipped; keys to which all attend are not masked. lse ignores dropout, so that parts can
/// be merged.
void attention_forward(const AttentionPart& part, ConstRows q, ConstRows k, ConstRows v, float* o, float* lse,
                       float* scratch);
/// o and lse are the final values over the keys of all parts; d_o[query rows, heads * value_dim]. dq, dk and dv are
/// overwritten with the contribution of these keys; the sum over the parts is the gradient. Dropout masks are
/// recomputed.
void attention_backward(const AttentionPart& part, const float* d_o, ConstRows q, ConstRows k, ConstRows v,
                        const float* o, const float* lse, Rows dq, Rows dk, Rows dv, float* scratch);
/// Merges a part into a running result, as if the queries had attended to the keys of both at once: part_o and o[rows,
/// heads * value_dim], part_lse and lse[heads, rows]. An lse of -infinity means that there was no key; o must then be
/// 0, as attention_forward() writes it.
void attention_merge(std::int64_t rows, std::int64_t heads, std::int64_t value_dim, const float* part_o,
                     const float* part_lse, float* o, float* lse);

/// Writes the ALiBi slopes of the heads [first, first + count) of `total` (Press et al., arXiv 2108.12409). For a power
/// of two n these are the powers 1..n of 2^(-8/n). For other numbers of heads, the first n slopes are those of the
/// largest power of two n below, and the rest are the odd powers of 2^(-4/n).
void alibi_slopes(std::int64_t total, std::int64_t first, std::int64_t count, float* slopes);

}  // namespace orrery::kernels
