// Grouped-query attention, one (sample, head) at a time, over tiles of query rows. GEMMs use the BLAS. A tile reads
// only the keys to which its rows may attend.
#include "kernels/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <vector>

#include "kernels/cpu/blas.h"
#include "kernels/cpu/vector.h"
#include "kernels/kernels.h"
#include "kernels/row_mask.h"

namespace orrery::kernels {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

/// Keys with consecutive positions.
struct Segment {
    std::int64_t first = 0;  // position of the first key
    std::int64_t count = 0;
    std::int64_t column = 0;  // of the first key in the tile
    bool whole = false;       // every row of the tile attends to all of these keys
};
/// Keys in consecutive rows, whatever their positions. Each span is one GEMM.
struct Span {
    std::int64_t index = 0;  // of the first key among all keys
    std::int64_t count = 0;
    std::int64_t column = 0;  // of the first key in the tile
};

/// A block of query rows with consecutive positions, and the keys to which any of them attends.
struct Tile {
    std::int64_t query = 0;  // index of the first query among all queries
    std::int64_t first = 0;  // position of the first query
    std::int64_t queries = 0;
    std::int64_t keys = 0;
    std::int64_t window = 0;
    std::vector<Segment> segments;
    std::vector<Span> spans;

    void place(const AttentionPart& part, const PositionRun& run, std::int64_t begin);
};

/// Sets the tile to the queries of `run` from index `begin` on. Keeps `query`.
void Tile::place(const AttentionPart& part, const PositionRun& run, std::int64_t begin) {
    constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max();
    first = run.first + begin;
    queries = std::min(kAttentionBlock, run.count - begin);
    keys = 0;
    window = part.sliding_window;
    segments.clear();
    spans.clear();
    const std::int64_t last = first + queries - 1;
    const std::int64_t earliest = window > 0 ? first - window + 1 : 0;
    const std::int64_t latest = part.causal ? last : kFar;
    std::int64_t index = 0;
    for (const PositionRun& candidate : part.keys) {
        const std::int64_t from = std::max(candidate.first, earliest);
        const std::int64_t until = std::min(candidate.first + candidate.count - 1, latest) + 1;
        if (from < until) {
            const bool seen_by_first = !part.causal || until - 1 <= first;
            const bool seen_by_last = window == 0 || from >= last - window + 1;
            segments.push_back({from, until - from, keys, seen_by_first && seen_by_last});
            const std::int64_t row = index + from - candidate.first;
            if (!spans.empty() && spans.back().index + spans.back().count == row) {
                spans.back().count += until - from;
            } else {
                spans.push_back({row, until - from, keys});
            }
            keys += until - from;
        }
        index += candidate.count;
    }
}

/// Writes `value` to the columns of keys to which a row must not attend.
ORRERY_INLINE void mask(const Tile& tile, float value, float* scores) {
    for (const Segment& segment : tile.segments) {
        if (segment.whole) continue;
        const std::int64_t distance = tile.first - segment.first;
        float* row = scores + segment.column;
        for (std::int64_t i = 0; i < tile.queries; ++i, row += tile.keys) {
            const std::int64_t hidden = tile.window > 0 ? distance + i - tile.window + 1 : 0;
            const std::int64_t begin = std::min(hidden, segment.count);
            for (std::int64_t j = 0; j < begin; ++j) row[j] = value;
            for (std::int64_t j = std::max<std::int64_t>(distance + i + 1, 0); j < segment.count; ++j) row[j] = value;
        }
    }
}

/// Adds the ALiBi bias.
ORRERY_INLINE void add_bias(const Tile& tile, float slope, float* scores) {
    if (slope == 0.0F) return;
    for (const Segment& segment : tile.segments) {
        const auto count = static_cast<std::int32_t>(segment.count);
        float* row = scores + segment.column;
        for (std::int64_t i = 0; i < tile.queries; ++i, row += tile.keys) {
            const auto distance = static_cast<std::int32_t>(segment.first - (tile.first + i));
            for (std::int32_t j = 0; j < count; ++j) row[j] += slope * static_cast<float>(distance + j);
        }
    }
}

/// Scores -> unnormalised probabilities in place (0 where masked), with each row's sum and log-sum-exp. Computes masked
/// columns, too, because full vectors are faster than ragged ends.
ORRERY_VECTOR
void softmax_rows(const Tile& tile, float slope, float* scores, float* sums, float* lse, std::int64_t lse_stride) {
    add_bias(tile, slope, scores);
    mask(tile, kNothing, scores);
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        float* row = scores + i * tile.keys;
        const float top = lane_max(tile.keys, row, kNothing);
        if (top == kNothing) {
            for (std::int64_t j = 0; j < tile.keys; ++j) row[j] = 0.0F;
            sums[i] = 1.0F;
            lse[i * lse_stride] = kNothing;
            continue;
        }
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

/// Scores -> probabilities in place, from the saved log-sum-exp. A row without keys has -infinity there, and all its
/// columns are masked.
ORRERY_VECTOR
void probabilities(const Tile& tile, float slope, const float* lse, std::int64_t lse_stride, float* scores) {
    add_bias(tile, slope, scores);
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        float* row = scores + i * tile.keys;
        const float log_sum = lse[i * lse_stride];
        for (std::int64_t j = 0; j < tile.keys; ++j) row[j] = fast_exp(row[j] - log_sum);
    }
    mask(tile, 0.0F, scores);
}

/// Replaces the gradient of the probabilities, dp, by the gradient of the scores: p (dp - do . o) scale.
ORRERY_VECTOR
void score_gradients(const Tile& tile, std::int64_t value_dim, float scale, const float* p, const float* d_o,
                     const float* o, std::int64_t stride, float* dp) {
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        const float* gradient = d_o + i * stride;
        const float* output = o + i * stride;
        const float dot = lane_sum<float>(value_dim, [&](std::int64_t j) { return gradient[j] * output[j]; });
        const float* p_row = p + i * tile.keys;
        float* row = dp + i * tile.keys;
        ORRERY_INDEPENDENT
        for (std::int64_t j = 0; j < tile.keys; ++j) row[j] = p_row[j] * (row[j] - dot) * scale;
    }
}

/// The dropout masks of one head in one sample.
struct HeadMask {
    std::uint64_t key = 0;
    std::int64_t sample = 0;
    std::int32_t threshold = 0;
    float scale = 1;
};

/// Calls element(i, kept) for all probabilities of the tile; i is the index in the tile.
template <typename Element>
ORRERY_INLINE void for_each_kept(const Tile& tile, const HeadMask& mask, const Element& element) {
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        const RowMask row(mask.key, mask.sample, tile.first + i, mask.threshold);
        for (const Segment& segment : tile.segments) {
            const std::int64_t begin = i * tile.keys + segment.column;
            const auto first = static_cast<std::uint32_t>(segment.first);
            const auto count = static_cast<std::uint32_t>(segment.count);
            ORRERY_INDEPENDENT
            for (std::uint32_t j = 0; j < count; ++j) element(begin + j, row.keeps(first + j));
        }
    }
}

/// Applies dropout in place.
ORRERY_VECTOR
void drop(const Tile& tile, const HeadMask& mask, float* p) {
    const float scale = mask.scale;
    for_each_kept(tile, mask, [=](std::int64_t i, bool kept) { p[i] = kept ? p[i] * scale : 0.0F; });
}

/// Writes p with dropout to `dropped`. Negates the dropped elements of p, to mark them for score_gradients_dropped().
ORRERY_VECTOR
void drop_apart(const Tile& tile, const HeadMask& mask, float* p, float* dropped) {
    const float scale = mask.scale;
    for_each_kept(tile, mask, [=](std::int64_t i, bool kept) {
        const float value = p[i];
        dropped[i] = kept ? value * scale : 0.0F;
        p[i] = kept ? value : -value;
    });
}

/// score_gradients() with dropout: dp is the gradient of the probabilities after dropout. do . o still is the sum of p
/// times the gradient of p.
ORRERY_VECTOR
void score_gradients_dropped(const Tile& tile, std::int64_t value_dim, float scale, float keep_scale, const float* p,
                             const float* d_o, const float* o, std::int64_t stride, float* dp) {
    for (std::int64_t i = 0; i < tile.queries; ++i) {
        const float* gradient = d_o + i * stride;
        const float* output = o + i * stride;
        const float dot = lane_sum<float>(value_dim, [&](std::int64_t j) { return gradient[j] * output[j]; });
        const float* p_row = p + i * tile.keys;
        float* row = dp + i * tile.keys;
        ORRERY_INDEPENDENT
        for (std::int64_t j = 0; j < tile.keys; ++j) {
            const float from_output = p_row[j] < 0.0F ? 0.0F : row[j] * keep_scale;
            row[j] = std::fabs(p_row[j]) * (from_output - dot) * scale;
        }
    }
}

void fill_rows(std::int64_t rows, std::int64_t width, float* y, std::int64_t stride) {
    for (std::int64_t row = 0; row < rows; ++row) fill(width, 0.0F, y + row * stride);
}

/// Derived quantities of a part, used by both passes.
struct Problem {
    const AttentionPart& part;
    std::int64_t d = 0, value_dim = 0;
    std::int64_t query_rows = 0;
    float scale = 0;
    std::int64_t tile_elements = 0;

    explicit Problem(const AttentionPart& of)
        : part(of),
          d(of.head_dim),
          value_dim(of.value_width()),
          query_rows(of.query_rows()),
          scale(static_cast<float>(of.scale != 0 ? of.scale : 1.0 / std::sqrt(static_cast<double>(of.head_dim)))),
          tile_elements(std::min(kAttentionBlock, AttentionPart::positions(of.queries)) *
                        AttentionPart::positions(of.keys)) {
        ORRERY_CHECK(of.causal || of.sliding_window == 0, "a sliding window needs causal attention");
        ORRERY_CHECK(!drops() || static_cast<std::int64_t>(of.dropout.samples.size()) == of.micro_batch,
                     "dropout needs the index of each sample");
    }
    [[nodiscard]] bool drops() const { return part.dropout.probability > 0; }
    [[nodiscard]] HeadMask mask(std::int64_t sample, std::int64_t head) const {
        return {.key = RandomStream(part.dropout.key, "head").bits(static_cast<std::uint64_t>(part.first_head + head)),
                .sample = part.dropout.samples[static_cast<std::size_t>(sample)],
                .threshold = RowMask::threshold(part.dropout.probability),
                .scale = part.dropout.scale()};
    }
    [[nodiscard]] float slope(std::int64_t head) const {
        return part.alibi_slopes != nullptr ? part.alibi_slopes[head] : 0.0F;
    }
    [[nodiscard]] std::int64_t kv_head(std::int64_t head) const { return head / (part.heads / part.kv_heads); }
    [[nodiscard]] std::int64_t stride(ConstRows rows) const { return part.micro_batch * rows.width; }
    [[nodiscard]] std::int64_t o_width() const { return part.heads * value_dim; }
    /// Calls body(tile) for every tile.
    template <typename Body>
    void for_each_tile(Tile& tile, const Body& body) const {
        tile.query = 0;
        for (const PositionRun& run : part.queries) {
            for (std::int64_t begin = 0; begin < run.count; begin += kAttentionBlock) {
                tile.place(part, run, begin);
                body(tile);
                tile.query += tile.queries;
            }
        }
    }
    /// Calls body(sample, head) for every head of every sample.
    template <typename Body>
    void for_each_head(const Body& body) const {
        for (std::int64_t sample = 0; sample < part.micro_batch; ++sample) {
            for (std::int64_t head = 0; head < part.heads; ++head) body(sample, head);
        }
    }
};

struct ForwardOperands {
    ConstRows q, k, v;
    float *o, *lse, *scratch;
};

void forward_head(const Problem& problem, std::int64_t sample, std::int64_t head, const ForwardOperands& at,
                  Tile& shared_tile) {
    const std::int64_t d = problem.d, value_dim = problem.value_dim, kv_head = problem.kv_head(head);
    const std::int64_t q_stride = problem.stride(at.q), k_stride = problem.stride(at.k),
                       v_stride = problem.stride(at.v);
    const std::int64_t o_stride = problem.part.micro_batch * problem.o_width();
    const float* q_head = at.q.data + sample * at.q.width + head * d;
    const float* k = at.k.data + sample * at.k.width + kv_head * d;
    const float* v = at.v.data + sample * at.v.width + kv_head * value_dim;
    float sums[kAttentionBlock];
    problem.for_each_tile(shared_tile, [&](const Tile& tile) {
        const float* q = q_head + tile.query * q_stride;
        float* out = at.o + sample * problem.o_width() + head * value_dim + tile.query * o_stride;
        float* lse = at.lse + head * problem.query_rows + tile.query * problem.part.micro_batch + sample;
        if (tile.keys == 0) {
            fill_rows(tile.queries, value_dim, out, o_stride);
            for (std::int64_t i = 0; i < tile.queries; ++i) lse[i * problem.part.micro_batch] = kNothing;
            return;
        }
        for (const Span& span : tile.spans) {
            multiply(tile.queries, span.count, d, problem.scale, {q, q_stride},
                     {k + span.index * k_stride, k_stride, true}, 0.0F, at.scratch + span.column, tile.keys);
        }
        softmax_rows(tile, problem.slope(head), at.scratch, sums, lse, problem.part.micro_batch);
        if (problem.drops()) drop(tile, problem.mask(sample, head), at.scratch);
        float keep = 0.0F;
        for (const Span& span : tile.spans) {
            multiply(tile.queries, value_dim, span.count, 1.0F, {at.scratch + span.column, tile.keys},
                     {v + span.index * v_stride, v_stride}, keep, out, o_stride);
            keep = 1.0F;
        }
        divide_rows(tile.queries, value_dim, sums, out, o_stride);
    });
}

struct BackwardOperands {
    const float* d_o;
    ConstRows q, k, v;
    const float *o, *lse;
    Rows dq, dk, dv;
    float* scratch;
};

void backward_head(const Problem& problem, std::int64_t sample, std::int64_t head, const BackwardOperands& at,
                   Tile& shared_tile) {
    const std::int64_t d = problem.d, value_dim = problem.value_dim, kv_head = problem.kv_head(head);
    const std::int64_t q_stride = problem.stride(at.q), k_stride = problem.stride(at.k),
                       v_stride = problem.stride(at.v);
    const std::int64_t dq_stride = problem.stride(at.dq), dk_stride = problem.stride(at.dk);
    const std::int64_t dv_stride = problem.stride(at.dv);
    const std::int64_t o_stride = problem.part.micro_batch * problem.o_width();
    const std::int64_t o_offset = sample * problem.o_width() + head * value_dim;
    const float* k = at.k.data + sample * at.k.width + kv_head * d;
    const float* v = at.v.data + sample * at.v.width + kv_head * value_dim;
    float* dk = at.dk.data + sample * at.dk.width + kv_head * d;
    float* dv = at.dv.data + sample * at.dv.width + kv_head * value_dim;
    float* p = at.scratch;
    float* dp = at.scratch + problem.tile_elements;
    problem.for_each_tile(shared_tile, [&](const Tile& tile) {
        const std::int64_t rows = tile.queries, keys = tile.keys;
        const Matrix q{at.q.data + sample * at.q.width + head * d + tile.query * q_stride, q_stride};
        const float* gradient = at.d_o + o_offset + tile.query * o_stride;
        float* dq = at.dq.data + sample * at.dq.width + head * d + tile.query * dq_stride;
        if (keys == 0) {
            fill_rows(rows, d, dq, dq_stride);
            return;
        }
        for (const Span& span : tile.spans) {
            multiply(rows, span.count, d, problem.scale, q, {k + span.index * k_stride, k_stride, true}, 0.0F,
                     p + span.column, keys);
        }
        const float* lse = at.lse + head * problem.query_rows + tile.query * problem.part.micro_batch + sample;
        probabilities(tile, problem.slope(head), lse, problem.part.micro_batch, p);
        // With dropout, the second tile holds the dropped probabilities until it is overwritten by their gradients.
        const float* weights = problem.drops() ? dp : p;
        if (problem.drops()) drop_apart(tile, problem.mask(sample, head), p, dp);
        for (const Span& span : tile.spans) {
            multiply(span.count, value_dim, rows, 1.0F, {weights + span.column, keys, true}, {gradient, o_stride}, 1.0F,
                     dv + span.index * dv_stride, dv_stride);
            multiply(rows, span.count, value_dim, 1.0F, {gradient, o_stride},
                     {v + span.index * v_stride, v_stride, true}, 0.0F, dp + span.column, keys);
        }
        const float* output = at.o + o_offset + tile.query * o_stride;
        if (problem.drops()) {
            score_gradients_dropped(tile, value_dim, problem.scale, problem.part.dropout.scale(), p, gradient, output,
                                    o_stride, dp);
        } else {
            score_gradients(tile, value_dim, problem.scale, p, gradient, output, o_stride, dp);
        }
        float keep = 0.0F;
        for (const Span& span : tile.spans) {
            multiply(rows, d, span.count, 1.0F, {dp + span.column, keys}, {k + span.index * k_stride, k_stride}, keep,
                     dq, dq_stride);
            multiply(span.count, d, rows, 1.0F, {dp + span.column, keys, true}, q, 1.0F, dk + span.index * dk_stride,
                     dk_stride);
            keep = 1.0F;
        }
    });
}

AttentionPart whole_sequence(const AttentionShape& shape, const PositionRun& run) {
    return {.queries = {&run, 1},
            .keys = {&run, 1},
            .micro_batch = shape.micro_batch,
            .heads = shape.heads,
            .kv_heads = shape.kv_heads,
            .head_dim = shape.head_dim,
            .sliding_window = shape.sliding_window};
}
/// Views of q, k and v in packed rows.
template <typename View, typename Pointer>
struct PackedViews {
    View q, k, v;
    PackedViews(const AttentionShape& shape, Pointer qkv) {
        const std::int64_t d = shape.head_dim, width = (shape.heads + 2 * shape.kv_heads) * d;
        q = {qkv, width};
        k = {qkv + shape.heads * d, width};
        v = {qkv + (shape.heads + shape.kv_heads) * d, width};
    }
};

}  // namespace

std::int64_t attention_part_scratch_elements(std::int64_t queries, std::int64_t keys) {
    return 2 * std::min(kAttentionBlock, queries) * keys;
}
std::int64_t attention_scratch_elements(std::int64_t sequence, [[maybe_unused]] std::int64_t head_dim) {
    return attention_part_scratch_elements(sequence, sequence);
}

void attention_forward(const AttentionPart& part, ConstRows q, ConstRows k, ConstRows v, float* o, float* lse,
                       float* scratch) {
    const Problem problem(part);
    const ForwardOperands operands{q, k, v, o, lse, scratch};
    Tile tile;
    problem.for_each_head([&](std::int64_t sample, std::int64_t head) {  //
        forward_head(problem, sample, head, operands, tile);
    });
}

void attention_backward(const AttentionPart& part, const float* d_o, ConstRows q, ConstRows k, ConstRows v,
                        const float* o, const float* lse, Rows dq, Rows dk, Rows dv, float* scratch) {
    const Problem problem(part);
    // Zeroed, because dk and dv are summed over tiles and over the query heads of a group.
    fill_rows(part.key_rows(), part.kv_heads * problem.d, dk.data, dk.width);
    fill_rows(part.key_rows(), part.kv_heads * problem.value_dim, dv.data, dv.width);
    const BackwardOperands operands{d_o, q, k, v, o, lse, dq, dk, dv, scratch};
    Tile tile;
    problem.for_each_head([&](std::int64_t sample, std::int64_t head) {  //
        backward_head(problem, sample, head, operands, tile);
    });
}

void attention_forward(const AttentionShape& shape, const float* qkv, float* o, float* lse, float* scratch) {
    const PositionRun run{0, shape.sequence};
    const PackedViews<ConstRows, const float*> in(shape, qkv);
    attention_forward(whole_sequence(shape, run), in.q, in.k, in.v, o, lse, scratch);
}

void attention_backward(const AttentionShape& shape, const float* d_o, const float* qkv, const float* o,
                        const float* lse, float* dqkv, float* scratch) {
    const PositionRun run{0, shape.sequence};
    const PackedViews<ConstRows, const float*> in(shape, qkv);
    const PackedViews<Rows, float*> out(shape, dqkv);
    attention_backward(whole_sequence(shape, run), d_o, in.q, in.k, in.v, o, lse, out.q, out.k, out.v, scratch);
}

ORRERY_VECTOR
void attention_merge(std::int64_t rows, std::int64_t heads, std::int64_t value_dim, const float* part_o,
                     const float* part_lse, float* o, float* lse) {
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t head = 0; head < heads; ++head) {
            const float added = part_lse[head * rows + row];
            const float before = lse[head * rows + row];
            if (added == kNothing) continue;
            const double top = static_cast<double>(std::max(added, before));
            const double weight = std::exp(static_cast<double>(before) - top);
            const double part_weight = std::exp(static_cast<double>(added) - top);
            const double sum = weight + part_weight;
            const float keep = static_cast<float>(weight / sum);
            const float take = static_cast<float>(part_weight / sum);
            lse[head * rows + row] = static_cast<float>(top + std::log(sum));
            const std::int64_t at = (row * heads + head) * value_dim;
            ORRERY_INDEPENDENT
            for (std::int64_t i = 0; i < value_dim; ++i) o[at + i] = o[at + i] * keep + part_o[at + i] * take;
        }
    }
}

void alibi_slopes(std::int64_t total, std::int64_t first, std::int64_t count, float* slopes) {
    const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(total)));
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t head = first + i;
        const double exponent =
            head < power ? -8.0 * static_cast<double>(head + 1) : -4.0 * static_cast<double>(2 * (head - power) + 1);
        slopes[i] = static_cast<float>(std::exp2(exponent / static_cast<double>(power)));
    }
}

}  // namespace orrery::kernels
