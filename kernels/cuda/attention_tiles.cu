// Attention in bf16 by tensor cores: tiles of scores are computed, used and forgotten, as in FlashAttention (Dao, arXiv
// 2205.14135 and 2307.08691). Scores, their sums and the results of products are in fp32; probabilities and gradients
// of scores are rounded to bf16 as factors. The backward pass computes the scores twice, once for the gradient of
// queries and once for those of keys and values, so that each result is summed by one block in a fixed order.
//
// FLOPs that a head of h elements must do for s queries and s causal keys: 2 products of s^2 h forward and 7 backward,
// against which the bytes, some rows of s h, do not count.
#include <algorithm>
#include <cmath>
#include <string>
#include <type_traits>

#include "kernels/cuda/attention_tiles.cuh"

namespace orrery::kernels::cuda {
namespace {

constexpr float kLog2OfE = 1.44269504F;
constexpr float kLn2 = 0.693147181F;

/// Columns of a result that a block computes: more would not fit into the registers. The blocks of the other parts of
/// wider heads compute the same scores.
template <int kWidth>
constexpr int kPartColumns = kWidth < 128 ? kWidth : 128;

/// What the kernels read in chunks of 16 bytes.
struct InChunks {
    bool q = false, k = false, v = false, d_o = false;
};

/// The tile of a block: rows of a head of a sample, of which a warp has 16.
struct OwnTile {
    int first;
    int head, sample;
    int of_warp;  // first row of the warp's in the tile
    __device__ explicit OwnTile(unsigned tile)
        : first(static_cast<int>(tile) * kOwnRows),
          head(static_cast<int>(blockIdx.y)),
          sample(static_cast<int>(blockIdx.z)),
          of_warp(static_cast<int>(threadIdx.x) / kWarp * kStepOfProduct) {}
    /// The row of a sample's position in memory.
    __device__ std::int64_t row(const AttentionProblem& problem, int index) const {
        return static_cast<std::int64_t>(index) * problem.micro_batch + sample;
    }
    __device__ HeadRows rows_of(const AttentionProblem& problem, const ConstFloatRows& all, bool in_chunks,
                                const PositionRuns& positions, int of_head, int width) const {
        return {static_cast<const __nv_bfloat16*>(all.data.data) + sample * all.width + of_head * width,
                problem.micro_batch * all.width, static_cast<int>(positions.positions()), width, in_chunks};
    }
};

__device__ int tiles_of(const PositionRuns& runs, int rows) {
    return (static_cast<int>(runs.positions()) + rows - 1) / rows;
}

/// Scores as logarithms to base 2.
struct Scoring {
    float scale, slope;
    __device__ Scoring(const AttentionProblem& problem, int head)
        : scale(problem.scale * kLog2OfE), slope(problem.slope(head) * kLog2OfE) {}
    __device__ float score(float product, int query, int key) const {
        return product * scale + slope * static_cast<float>(key - query);
    }
};

/// Calls body(n, e) for the elements of a lane of a tile of scores.
template <typename Body>
__device__ void for_each_score(const Body& body) {
#pragma unroll
    for (int n = 0; n < Sums<kOtherRows>::kCount; ++n) {
#pragma unroll
        for (int e = 0; e < 4; ++e) body(n, e);
    }
}

/// Tiles of keys: the one in use, and the next.
template <int kWidth>
struct KeyTiles {
    Tile<kWidth, kOtherRows> k[2], v[2];
};

/// A tile of queries, and how its block goes through the keys.
struct QueryBlock {
    const AttentionProblem& problem;
    OwnTile own;
    TilePositions queries;
    Scoring scoring;
    LaneOfSums lane;
    int query[2];  // positions of the lane's rows; the tile's first one for rows that do not exist

    /// Causal queries of the end have most to do, and begin first.
    __device__ QueryBlock(const AttentionProblem& all, unsigned parts)
        : problem(all),
          own((gridDim.x - 1 - blockIdx.x) / parts),
          queries(all.queries, own.first, kOwnRows),
          scoring(all, own.head),
          query{position(0), position(1)} {}
    __device__ int kv_head() const { return own.head / (problem.heads / problem.kv_heads); }
    __device__ int row(int half) const { return own.of_warp + lane.row(2 * half); }
    __device__ int position(int half) const { return queries[row(half) < queries.count ? row(half) : 0]; }
    __device__ bool has_rows_of_warp() const { return own.of_warp < queries.count; }
    __device__ HeadRows rows_of_q(const ConstFloatRows& q, bool in_chunks) const {
        return own.rows_of(problem, q, in_chunks, problem.queries, own.head, problem.head_dim);
    }
    __device__ RowMask mask_of(int half) const {
        return problem.mask_of(problem.mask_key(own.head), own.sample, query[half]);
    }

    /// Calls use(positions of keys, whether some queries do not attend to some of them, stage) for the tiles of keys
    /// that matter, in warps that have queries.
    template <int kWidth, typename Use>
    __device__ void for_each_tile(const ConstFloatRows& k, const ConstFloatRows& v, const InChunks& chunks,
                                  KeyTiles<kWidth>& memory, const Use& use) {
        const int tiles = tiles_of(problem.keys, kOtherRows);
        const auto positions_of = [&](int tile) { return TilePositions(problem.keys, tile * kOtherRows, kOtherRows); };
        const auto next = [&](int tile) {
            while (tile < tiles && attends(problem, queries, positions_of(tile)) == Attends::none) ++tile;
            return tile;
        };
        const auto fetch_keys = [&](int tile, int stage) {
            fetch(memory.k[stage], own.rows_of(problem, k, chunks.k, problem.keys, kv_head(), problem.head_dim),
                  tile * kOtherRows);
            fetch(memory.v[stage], own.rows_of(problem, v, chunks.v, problem.keys, kv_head(), problem.value_dim),
                  tile * kOtherRows);
        };
        go_through(tiles, next, fetch_keys, [&](int tile, int stage) {
            if (!has_rows_of_warp()) return;
            const TilePositions keys = positions_of(tile);
            use(keys, keys.count < kOtherRows || attends(problem, queries, keys) != Attends::all, stage);
        });
    }
};

/// The state of softmax of a lane's two rows.
struct Softmax {
    float top[2] = {-INFINITY, -INFINITY};  // the highest score so far
    float sum[2] = {0, 0};                  // of the lane's weights relative to it

    /// Scores become weights relative to the highest; `keep` is what earlier weights must be multiplied by.
    __device__ void add(Sums<kOtherRows>& scores, float (&keep)[2]) {
        float highest[2] = {top[0], top[1]};
        for_each_score([&](int n, int e) { highest[e / 2] = fmaxf(highest[e / 2], scores[n][e]); });
        float base[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            for (int lanes = 1; lanes < 4; lanes *= 2) {  // a row is held by four lanes
                highest[half] = fmaxf(highest[half], __shfl_xor_sync(kAllLanes, highest[half], lanes));
            }
            base[half] = highest[half] == -INFINITY ? 0.0F : highest[half];
            keep[half] = exp2f(top[half] - base[half]);
            top[half] = highest[half];
            sum[half] *= keep[half];
        }
        for_each_score([&](int n, int e) {
            scores[n][e] = exp2f(scores[n][e] - base[e / 2]);
            sum[e / 2] += scores[n][e];
        });
    }
    __device__ void finish() {
#pragma unroll
        for (float& one : sum) {
            for (int lanes = 1; lanes < 4; lanes *= 2) one += __shfl_xor_sync(kAllLanes, one, lanes);
        }
    }
};

template <int kWidth>
struct ForwardMemory {
    Tile<kWidth, kOwnRows> q;
    KeyTiles<kWidth> keys;
};

template <int kWidth>
__global__ void __launch_bounds__(kTileThreads, 1)
    forward_kernel(AttentionProblem problem, AttentionInputs in, InChunks chunks, unsigned parts, Floats o,
                   float* lse) {
    constexpr int kColumns = kPartColumns<kWidth>;
    const int first_column = static_cast<int>(blockIdx.x % parts) * kColumns;
    auto& memory = *static_cast<ForwardMemory<kWidth>*>(ptx::dynamic_shared());
    QueryBlock block(problem, parts);
    const OwnTile& own = block.own;
    fetch(memory.q, block.rows_of_q(in.q, chunks.q), own.first);
    Sums<kColumns> sums;
    Softmax softmax;
    block.for_each_tile(in.k, in.v, chunks, memory.keys, [&](const TilePositions& keys, bool masked, int stage) {
        Sums<kOtherRows> scores;
        multiply(memory.q, own.of_warp, memory.keys.k[stage], problem.head_dim, scores);
        if (!masked && problem.slopes == nullptr) {
            for_each_score([&](int n, int e) { scores[n][e] *= block.scoring.scale; });
        } else {
            for_each_score([&](int n, int e) {
                const int column = block.lane.column(n, e);
                const int query = block.query[e / 2], key = keys[column < keys.count ? column : 0];
                const bool counts = !masked || (column < keys.count && attends(problem, query, key));
                scores[n][e] = counts ? block.scoring.score(scores[n][e], query, key) : -INFINITY;
            });
        }
        float keep[2];
        softmax.add(scores, keep);
        if (problem.masks.drops) {
            const RowMask masks[2] = {block.mask_of(0), block.mask_of(1)};
            for_each_score([&](int n, int e) {
                const int column = block.lane.column(n, e);
                scores[n][e] *= problem.kept(masks[e / 2], keys[column < keys.count ? column : 0]);
            });
        }
#pragma unroll
        for (auto& sum : sums.value) {
#pragma unroll
            for (int e = 0; e < 4; ++e) sum[e] *= keep[e / 2];
        }
        multiply_add(scores, memory.keys.v[stage], first_column, problem.value_dim, sums);
    });
    if (!block.has_rows_of_warp()) return;
    softmax.finish();
    float factors[2];
    for (int half = 0; half < 2; ++half) {
        const bool none = softmax.sum[half] == 0.0F;  // no key
        factors[half] = none ? 0.0F : 1.0F / softmax.sum[half];
        if (first_column > 0 || block.lane.place != 0 || block.row(half) >= block.queries.count) continue;
        lse[own.head * problem.query_rows + own.row(problem, own.first + block.row(half))] =
            none ? -INFINITY : (softmax.top[half] + log2f(softmax.sum[half])) * kLn2;
    }
    const std::int64_t width = static_cast<std::int64_t>(problem.heads) * problem.value_dim;
    const std::int64_t row = own.row(problem, own.first + own.of_warp);
    store(sums, factors, static_cast<__nv_bfloat16*>(o.data) + row * width + own.head * problem.value_dim,
          problem.micro_batch * width, block.queries.count - own.of_warp, first_column, problem.value_dim);
}

/// products[head, row] = do . o, by a warp for each row of a head.
__global__ void row_products_kernel(AttentionProblem problem, ConstFloats d_o, ConstFloats o, float* products) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * blockDim.y + threadIdx.y;
    if (row >= problem.query_rows) return;
    const std::int64_t first = (row * problem.heads + blockIdx.y) * problem.value_dim;
    float sum = 0;
    for (std::int64_t i = threadIdx.x; i < problem.value_dim; i += kWarp)
        sum += get(d_o, first + i) * get(o, first + i);
    sum = warp_sum(sum);
    if (threadIdx.x == 0) products[blockIdx.y * problem.query_rows + row] = sum;
}

__device__ HeadRows rows_of_d_o(const AttentionProblem& problem, const ConstFloats& d_o, bool in_chunks,
                                const OwnTile& own, int head) {
    const std::int64_t width = static_cast<std::int64_t>(problem.heads) * problem.value_dim;
    return own.rows_of(problem, {d_o, width}, in_chunks, problem.queries, head, problem.value_dim);
}

/// What the backward pass knows of a query of a head.
struct QueryState {
    float lse = 0;      // to base 2
    float product = 0;  // do . o
};

/// Whether no position matters for the gradients of a tile of scores.
__device__ bool depends_on_scores_only(const AttentionProblem& problem, bool masked) {
    return !masked && problem.slopes == nullptr && !problem.masks.drops;
}

/// Turns a score and the product do . v of a query and a key into the factor of do in the gradient of v, and that of q
/// and k, but for the scale, in those of k and q.
__device__ void differentiate(const QueryState& query, float kept, float& score, float& product) {
    const float probability = exp2f(score - query.lse);
    product = probability * (kept * product - query.product);
    score = probability * kept;
}

template <int kWidth>
struct QueryGradientMemory {
    Tile<kWidth, kOwnRows> q, d_o;
    KeyTiles<kWidth> keys;
};

template <int kWidth>
__global__ void __launch_bounds__(kTileThreads, 1)
    query_gradient_kernel(AttentionProblem problem, AttentionBackwardInputs in, InChunks chunks, unsigned parts,
                          const float* products, FloatRows dq) {
    constexpr int kColumns = kPartColumns<kWidth>;
    const int first_column = static_cast<int>(blockIdx.x % parts) * kColumns;
    auto& memory = *static_cast<QueryGradientMemory<kWidth>*>(ptx::dynamic_shared());
    QueryBlock block(problem, parts);
    const OwnTile& own = block.own;
    fetch(memory.q, block.rows_of_q(in.q, chunks.q), own.first);
    fetch(memory.d_o, rows_of_d_o(problem, in.d_o, chunks.d_o, own, own.head), own.first);
    QueryState state[2];
    for (int half = 0; half < 2; ++half) {
        if (block.row(half) >= block.queries.count) continue;
        const std::int64_t at = own.head * problem.query_rows + own.row(problem, own.first + block.row(half));
        state[half] = {in.lse[at] * kLog2OfE, products[at]};
    }
    Sums<kColumns> sums;
    block.for_each_tile(in.k, in.v, chunks, memory.keys, [&](const TilePositions& keys, bool masked, int stage) {
        Sums<kOtherRows> scores, of_values;
        multiply(memory.q, own.of_warp, memory.keys.k[stage], problem.head_dim, scores);
        multiply(memory.d_o, own.of_warp, memory.keys.v[stage], problem.value_dim, of_values);
        if (depends_on_scores_only(problem, masked)) {
            for_each_score([&](int n, int e) {
                scores[n][e] *= block.scoring.scale;
                differentiate(state[e / 2], 1.0F, scores[n][e], of_values[n][e]);
            });
        } else {
            for_each_score([&](int n, int e) {
                const int column = block.lane.column(n, e);
                const int query = block.query[e / 2], key = keys[column < keys.count ? column : 0];
                const float kept = problem.masks.drops ? problem.kept(block.mask_of(e / 2), key) : 1.0F;
                scores[n][e] = block.scoring.score(scores[n][e], query, key);
                differentiate(state[e / 2], kept, scores[n][e], of_values[n][e]);
                if (masked && !(column < keys.count && attends(problem, query, key))) of_values[n][e] = 0;
            });
        }
        multiply_add(of_values, memory.keys.k[stage], first_column, problem.head_dim, sums);
    });
    if (!block.has_rows_of_warp()) return;
    const float factors[2] = {problem.scale, problem.scale};
    const std::int64_t row = own.row(problem, own.first + own.of_warp);
    store(sums, factors, static_cast<__nv_bfloat16*>(dq.data.data) + row * dq.width + own.head * problem.head_dim,
          problem.micro_batch * dq.width, block.queries.count - own.of_warp, first_column, problem.head_dim);
}

template <int kWidth>
struct KeyGradientMemory {
    Tile<kWidth, kOwnRows> k, v;
    Tile<kWidth, kOtherRows> q[2], d_o[2];
    float lse[2][kOtherRows], products[2][kOtherRows];
};

/// A tile of keys, and how its block goes through the queries. A tile is one of queries for one of the heads that share
/// the keys.
struct KeyBlock {
    const AttentionProblem& problem;
    OwnTile own;
    TilePositions keys;
    LaneOfSums lane;
    int key[2];  // positions of the lane's rows; the tile's first one for rows that do not exist
    int query_tiles;

    /// Causal keys of the beginning have most to do, and begin first.
    __device__ KeyBlock(const AttentionProblem& all, unsigned parts)
        : problem(all),
          own(blockIdx.x / parts),
          keys(all.keys, own.first, kOwnRows),
          key{position(0), position(1)},
          query_tiles(tiles_of(all.queries, kOtherRows)) {}
    __device__ int position(int half) const {
        const int row = own.of_warp + lane.row(2 * half);
        return keys[row < keys.count ? row : 0];
    }
    __device__ bool has_rows_of_warp() const { return own.of_warp < keys.count; }
    __device__ int group() const { return problem.heads / problem.kv_heads; }
    __device__ int head_of(int tile) const { return own.head * group() + tile / query_tiles; }
    __device__ TilePositions positions_of(int tile) const {
        return TilePositions(problem.queries, tile % query_tiles * kOtherRows, kOtherRows);
    }

    template <int kWidth>
    __device__ void fetch_queries(const AttentionBackwardInputs& in, const InChunks& chunks, const float* products,
                                  KeyGradientMemory<kWidth>& memory, int tile, int stage) const {
        const int first = tile % query_tiles * kOtherRows, head = head_of(tile);
        fetch(memory.q[stage], own.rows_of(problem, in.q, chunks.q, problem.queries, head, problem.head_dim), first);
        fetch(memory.d_o[stage], rows_of_d_o(problem, in.d_o, chunks.d_o, own, head), first);
        const int row = static_cast<int>(threadIdx.x);
        if (row >= positions_of(tile).count) return;
        const std::int64_t at = head * problem.query_rows + own.row(problem, first + row);
        __pipeline_memcpy_async(&memory.lse[stage][row], in.lse + at, sizeof(float));
        __pipeline_memcpy_async(&memory.products[stage][row], products + at, sizeof(float));
    }
    /// Calls use(positions of queries, head, whether some of them do not attend to some keys, stage) for the tiles of
    /// queries that matter, in warps that have keys.
    template <int kWidth, typename Use>
    __device__ void for_each_tile(const AttentionBackwardInputs& in, const InChunks& chunks, const float* products,
                                  KeyGradientMemory<kWidth>& memory, const Use& use) {
        const int tiles = query_tiles * group();
        const auto next = [&](int tile) {
            while (tile < tiles && attends(problem, positions_of(tile), keys) == Attends::none) ++tile;
            return tile;
        };
        const auto fetch_tile = [&](int tile, int stage) { fetch_queries(in, chunks, products, memory, tile, stage); };
        go_through(tiles, next, fetch_tile, [&](int tile, int stage) {
            if (!has_rows_of_warp()) return;
            const TilePositions queries = positions_of(tile);
            const bool masked = queries.count < kOtherRows || attends(problem, queries, keys) != Attends::all;
            use(queries, head_of(tile), masked, stage);
        });
    }
};

/// blockIdx.x has the tile of keys and the part of their columns, blockIdx.y the head of keys.
template <int kWidth>
__global__ void __launch_bounds__(kTileThreads, 1)
    key_gradient_kernel(AttentionProblem problem, AttentionBackwardInputs in, InChunks chunks, unsigned parts,
                        const float* products, FloatRows dk, FloatRows dv) {
    constexpr int kColumns = kPartColumns<kWidth>;
    const int first_column = static_cast<int>(blockIdx.x % parts) * kColumns;
    auto& memory = *static_cast<KeyGradientMemory<kWidth>*>(ptx::dynamic_shared());
    KeyBlock block(problem, parts);
    const OwnTile& own = block.own;
    fetch(memory.k, own.rows_of(problem, in.k, chunks.k, problem.keys, own.head, problem.head_dim), own.first);
    fetch(memory.v, own.rows_of(problem, in.v, chunks.v, problem.keys, own.head, problem.value_dim), own.first);
    Sums<kColumns> k_sums, v_sums;
    block.for_each_tile(
        in, chunks, products, memory, [&](const TilePositions& queries, int head, bool masked, int stage) {
            Sums<kOtherRows> scores, of_values;
            multiply(memory.k, own.of_warp, memory.q[stage], problem.head_dim, scores);
            multiply(memory.v, own.of_warp, memory.d_o[stage], problem.value_dim, of_values);
            const Scoring scoring(problem, head);
            const auto state_of = [&](int column) {
                return QueryState{memory.lse[stage][column] * kLog2OfE, memory.products[stage][column]};
            };
            if (depends_on_scores_only(problem, masked)) {
                for_each_score([&](int n, int e) {
                    scores[n][e] *= scoring.scale;
                    differentiate(state_of(block.lane.column(n, e)), 1.0F, scores[n][e], of_values[n][e]);
                });
            } else {
                const std::uint64_t mask_key = problem.mask_key(head);
                for_each_score([&](int n, int e) {
                    const bool exists = block.lane.column(n, e) < queries.count;
                    const int column = exists ? block.lane.column(n, e) : 0;
                    const int query = queries[column], key = block.key[e / 2];
                    const float kept =
                        problem.masks.drops ? problem.kept(problem.mask_of(mask_key, own.sample, query), key) : 1.0F;
                    scores[n][e] = scoring.score(scores[n][e], query, key);
                    differentiate(state_of(column), kept, scores[n][e], of_values[n][e]);
                    if (masked && !(exists && attends(problem, query, key))) scores[n][e] = of_values[n][e] = 0;
                });
            }
            multiply_add(scores, memory.d_o[stage], first_column, problem.value_dim, v_sums);
            multiply_add(of_values, memory.q[stage], first_column, problem.head_dim, k_sums);
        });
    if (!block.has_rows_of_warp()) return;
    const float scales[2] = {problem.scale, problem.scale}, ones[2] = {1.0F, 1.0F};
    const std::int64_t row = own.row(problem, own.first + own.of_warp);
    const std::int64_t rows = block.keys.count - own.of_warp;
    store(k_sums, scales, static_cast<__nv_bfloat16*>(dk.data.data) + row * dk.width + own.head * problem.head_dim,
          problem.micro_batch * dk.width, rows, first_column, problem.head_dim);
    store(v_sums, ones, static_cast<__nv_bfloat16*>(dv.data.data) + row * dv.width + own.head * problem.value_dim,
          problem.micro_batch * dv.width, rows, first_column, problem.value_dim);
}

unsigned parts_of(int columns, int at_once) {
    return static_cast<unsigned>((columns + at_once - 1) / at_once);
}

/// Calls use(width of tiles as a constant) for the narrowest tiles that hold the heads.
template <typename Use>
void with_width(const AttentionProblem& problem, const Use& use) {
    const int widest = problem.head_dim < problem.value_dim ? problem.value_dim : problem.head_dim;
    if (widest <= 64) return use(std::integral_constant<int, 64>());
    if (widest <= 128) return use(std::integral_constant<int, 128>());
    use(std::integral_constant<int, static_cast<int>(kWidestHead)>());
}

bool in_chunks(ConstFloatRows rows, int head_width) {
    return reinterpret_cast<std::uintptr_t>(rows.data.data) % sizeof(Chunk) == 0 &&
           rows.width % Chunk::kElements == 0 && head_width % Chunk::kElements == 0;
}

/// That a kernel may ask for on the current device.
std::size_t most_shared_bytes() {
    int device = 0, bytes = 0;
    cudaError_t status = cudaGetDevice(&device);
    if (status == cudaSuccess) {
        status = cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    }
    if (status != cudaSuccess) throw JobError(std::string("cudaDeviceGetAttribute: ") + cudaGetErrorString(status));
    return static_cast<std::size_t>(bytes);
}

dim3 grid_of(std::int64_t rows, std::int64_t micro_batch, int heads, unsigned parts) {
    return {blocks_for(rows / micro_batch, kOwnRows) * parts, static_cast<unsigned>(heads),
            static_cast<unsigned>(micro_batch)};
}

}  // namespace

void attention_forward_tiles(StreamHandle stream, const AttentionProblem& problem, const AttentionInputs& in, Floats o,
                             float* lse) {
    const InChunks chunks{.q = in_chunks(in.q, problem.head_dim),
                          .k = in_chunks(in.k, problem.head_dim),
                          .v = in_chunks(in.v, problem.value_dim)};
    with_width(problem, [&](auto width) {
        const unsigned parts = parts_of(problem.value_dim, kPartColumns<width()>);
        launch_with_shared(stream, grid_of(problem.query_rows, problem.micro_batch, problem.heads, parts), kTileThreads,
                           sizeof(ForwardMemory<width()>), "attention_forward", forward_kernel<width()>, problem, in,
                           chunks, parts, o, lse);
    });
}

bool attention_backward_tiles(StreamHandle stream, const AttentionProblem& problem, const AttentionBackwardInputs& in,
                              float* scratch, FloatRows dq, FloatRows dk, FloatRows dv) {
    constexpr unsigned kRowsOfBlock = 8;
    bool fits = false;
    with_width(problem, [&](auto width) {
        fits =
            std::max(sizeof(QueryGradientMemory<width()>), sizeof(KeyGradientMemory<width()>)) <= most_shared_bytes();
    });
    if (!fits) return false;
    const InChunks chunks{
        .q = in_chunks(in.q, problem.head_dim),
        .k = in_chunks(in.k, problem.head_dim),
        .v = in_chunks(in.v, problem.value_dim),
        .d_o = in_chunks({in.d_o, static_cast<std::int64_t>(problem.heads) * problem.value_dim}, problem.value_dim)};
    launch(stream, dim3(blocks_for(problem.query_rows, kRowsOfBlock), static_cast<unsigned>(problem.heads)),
           dim3(kWarp, kRowsOfBlock), "attention_backward", row_products_kernel, problem, in.d_o, in.o, scratch);
    with_width(problem, [&](auto width) {
        unsigned parts = parts_of(problem.head_dim, kPartColumns<width()>);
        launch_with_shared(stream, grid_of(problem.query_rows, problem.micro_batch, problem.heads, parts), kTileThreads,
                           sizeof(QueryGradientMemory<width()>), "attention_backward", query_gradient_kernel<width()>,
                           problem, in, chunks, parts, scratch, dq);
        parts = std::max(parts, parts_of(problem.value_dim, kPartColumns<width()>));
        launch_with_shared(stream, grid_of(problem.key_rows, problem.micro_batch, problem.kv_heads, parts),
                           kTileThreads, sizeof(KeyGradientMemory<width()>), "attention_backward",
                           key_gradient_kernel<width()>, problem, in, chunks, parts, scratch, dk, dv);
    });
    return true;
}

}  // namespace orrery::kernels::cuda
