// Attention in fp32, without score tiles: one warp per query of a head, or per key of a key/value head, with the head's
// elements distributed over its lanes. Only o and lse are stored for the backward pass, and no scratch memory is
// needed. attention_tiles.cu has that in bf16.
#include <cmath>
#include <limits>
#include <type_traits>

#include "kernels/cuda/attention.h"
#include "kernels/cuda/attention_problem.cuh"
#include "kernels/cuda/each.cuh"

namespace orrery::kernels::cuda {
namespace {

constexpr unsigned kWarpsPerBlock = 4;

/// A head's elements, distributed over a warp: lane l holds the elements l, l + 32, …, padded with zeros.
template <int kPerLane>
struct Spread {
    float value[kPerLane];
};

template <int kPerLane>
__device__ Spread<kPerLane> load(ConstFloats x, std::int64_t begin, int width) {
    Spread<kPerLane> spread;
    const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
        spread.value[i] = lane + i * kWarp < width ? get(x, begin + lane + i * kWarp) : 0.0F;
    }
    return spread;
}

template <int kPerLane>
__device__ void store(const Spread<kPerLane>& spread, float factor, Floats y, std::int64_t begin, int width) {
    const int lane = static_cast<int>(threadIdx.x);
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) {
        if (lane + i * kWarp < width) put(y, begin + lane + i * kWarp, spread.value[i] * factor);
    }
}

/// a . b; every lane gets the result.
template <int kPerLane>
__device__ float dot(const Spread<kPerLane>& a, const Spread<kPerLane>& b) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum += a.value[i] * b.value[i];
    return warp_sum(sum);
}

/// a . (factor b - c); every lane gets the result.
template <int kPerLane>
__device__ float dot_difference(const Spread<kPerLane>& a, float factor, const Spread<kPerLane>& b,
                                const Spread<kPerLane>& c) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum += a.value[i] * (factor * b.value[i] - c.value[i]);
    return warp_sum(sum);
}

/// sum = sum * keep + factor * x
template <int kPerLane>
__device__ void accumulate(Spread<kPerLane>& sum, float keep, float factor, const Spread<kPerLane>& x) {
#pragma unroll
    for (int i = 0; i < kPerLane; ++i) sum.value[i] = sum.value[i] * keep + factor * x.value[i];
}

/// Calls body(row, position) for the rows of `runs` that are of this sample and have positions in [first, last].
template <typename Body>
__device__ void for_each_row(const PositionRuns& runs, std::int64_t micro_batch, std::int64_t sample,
                             std::int64_t first, std::int64_t last, const Body& body) {
    std::int64_t index = 0;
    for (std::int64_t i = 0; i < runs.count(); ++i) {
        const PositionRun run = runs[i];
        const std::int64_t begin = run.first < first ? first : run.first;
        const std::int64_t end = run.first + run.count - 1 < last ? run.first + run.count : last + 1;
        for (std::int64_t position = begin; position < end; ++position) {
            body((index + position - run.first) * micro_batch + sample, position);
        }
        index += run.count;
    }
}

constexpr std::int64_t kFar = std::numeric_limits<std::int64_t>::max() - 1;

/// The keys to which a query attends.
template <typename Body>
__device__ void for_each_key(const AttentionProblem& problem, std::int64_t query, std::int64_t sample,
                             const Body& body) {
    const std::int64_t first = problem.window > 0 ? query - problem.window + 1 : 0;
    for_each_row(problem.keys, problem.micro_batch, sample, first, problem.causal ? query : kFar, body);
}
/// The queries that attend to a key.
template <typename Body>
__device__ void for_each_query(const AttentionProblem& problem, std::int64_t key, std::int64_t sample,
                               const Body& body) {
    const std::int64_t last = problem.window > 0 ? key + problem.window - 1 : kFar;
    for_each_row(problem.queries, problem.micro_batch, sample, problem.causal ? key : 0, last, body);
}

/// The work item of a warp: a row of a head. blockIdx.y is the head.
struct Work {
    std::int64_t row, position, sample;
    int head;
    __device__ Work(const PositionRuns& positions, std::int64_t micro_batch)
        : row(static_cast<std::int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.y),
          head(static_cast<int>(blockIdx.y)) {
        const std::int64_t index = position_index(row, micro_batch);
        position = positions.position(index);
        sample = row - index * micro_batch;
    }
};

__device__ float score_of(const AttentionProblem& problem, float product, float slope, std::int64_t query,
                          std::int64_t key) {
    return product * problem.scale + slope * static_cast<float>(key - query);
}

template <int kPerLane>
__global__ void attention_forward_kernel(AttentionProblem problem, AttentionInputs in, Floats o, float* lse) {
    const Work work(problem.queries, problem.micro_batch);
    if (work.row >= problem.query_rows) return;
    const int kv_head = work.head / (problem.heads / problem.kv_heads);
    const auto q = load<kPerLane>(in.q.data, work.row * in.q.width + work.head * problem.head_dim, problem.head_dim);
    const float slope = problem.slope(work.head);
    const RowMask mask = problem.mask_of(problem.mask_key(work.head), work.sample, work.position);
    Spread<kPerLane> sum{};
    float top = -INFINITY;
    float weights = 0;
    for_each_key(problem, work.position, work.sample, [&](std::int64_t row, std::int64_t key) {
        const auto k = load<kPerLane>(in.k.data, row * in.k.width + kv_head * problem.head_dim, problem.head_dim);
        const auto v = load<kPerLane>(in.v.data, row * in.v.width + kv_head * problem.value_dim, problem.value_dim);
        const float score = score_of(problem, dot(q, k), slope, work.position, key);
        const float new_top = fmaxf(top, score);
        const float keep = expf(top - new_top);
        const float weight = expf(score - new_top);
        accumulate(sum, keep, weight * problem.kept(mask, key), v);
        weights = weights * keep + weight;
        top = new_top;
    });
    const bool none = weights == 0.0F;  // no key
    const std::int64_t out = (work.row * problem.heads + work.head) * problem.value_dim;
    store(sum, none ? 0.0F : 1.0F / weights, o, out, problem.value_dim);
    if (threadIdx.x == 0) lse[work.head * problem.query_rows + work.row] = none ? -INFINITY : top + logf(weights);
}

/// The gradient of a score is p (f do . v - do . o) = p do . (f v - o), where f is the factor of dropout.
template <int kPerLane>
__global__ void attention_query_gradient_kernel(AttentionProblem problem, AttentionBackwardInputs in, FloatRows dq) {
    const Work work(problem.queries, problem.micro_batch);
    if (work.row >= problem.query_rows) return;
    const int kv_head = work.head / (problem.heads / problem.kv_heads);
    const std::int64_t out = (work.row * problem.heads + work.head) * problem.value_dim;
    const auto q = load<kPerLane>(in.q.data, work.row * in.q.width + work.head * problem.head_dim, problem.head_dim);
    const auto d_o = load<kPerLane>(in.d_o, out, problem.value_dim);
    const auto o = load<kPerLane>(in.o, out, problem.value_dim);
    const float log_sum = in.lse[work.head * problem.query_rows + work.row];
    const float slope = problem.slope(work.head);
    const RowMask mask = problem.mask_of(problem.mask_key(work.head), work.sample, work.position);
    Spread<kPerLane> sum{};
    for_each_key(problem, work.position, work.sample, [&](std::int64_t row, std::int64_t key) {
        const auto k = load<kPerLane>(in.k.data, row * in.k.width + kv_head * problem.head_dim, problem.head_dim);
        const auto v = load<kPerLane>(in.v.data, row * in.v.width + kv_head * problem.value_dim, problem.value_dim);
        const float probability = expf(score_of(problem, dot(q, k), slope, work.position, key) - log_sum);
        accumulate(sum, 1.0F, probability * dot_difference(d_o, problem.kept(mask, key), v, o), k);
    });
    store(sum, problem.scale, dq.data, work.row * dq.width + work.head * problem.head_dim, problem.head_dim);
}

template <int kPerLane>
__global__ void attention_key_gradient_kernel(AttentionProblem problem, AttentionBackwardInputs in, FloatRows dk,
                                              FloatRows dv) {
    const Work work(problem.keys, problem.micro_batch);
    if (work.row >= problem.key_rows) return;
    const int group = problem.heads / problem.kv_heads;
    const std::int64_t first = work.head * problem.head_dim, first_value = work.head * problem.value_dim;
    const auto k = load<kPerLane>(in.k.data, work.row * in.k.width + first, problem.head_dim);
    const auto v = load<kPerLane>(in.v.data, work.row * in.v.width + first_value, problem.value_dim);
    Spread<kPerLane> k_sum{};
    Spread<kPerLane> v_sum{};
    for (int head = work.head * group; head < (work.head + 1) * group; ++head) {
        const float slope = problem.slope(head);
        const std::uint64_t mask_key = problem.mask_key(head);
        for_each_query(problem, work.position, work.sample, [&](std::int64_t row, std::int64_t query) {
            const std::int64_t out = (row * problem.heads + head) * problem.value_dim;
            const auto q = load<kPerLane>(in.q.data, row * in.q.width + head * problem.head_dim, problem.head_dim);
            const auto d_o = load<kPerLane>(in.d_o, out, problem.value_dim);
            const auto o = load<kPerLane>(in.o, out, problem.value_dim);
            const float kept =
                problem.masks.drops ? problem.kept(problem.mask_of(mask_key, work.sample, query), work.position) : 1.0F;
            const float score = score_of(problem, dot(q, k), slope, query, work.position);
            const float probability = expf(score - in.lse[head * problem.query_rows + row]);
            accumulate(k_sum, 1.0F, probability * dot_difference(d_o, kept, v, o), q);
            accumulate(v_sum, 1.0F, probability * kept, d_o);
        });
    }
    store(k_sum, problem.scale, dk.data, work.row * dk.width + first, problem.head_dim);
    store(v_sum, 1.0F, dv.data, work.row * dv.width + first_value, problem.value_dim);
}

/// One warp per row of a head.
__global__ void attention_merge_kernel(std::int64_t rows, std::int64_t heads, std::int64_t value_dim,
                                       ConstFloats part_o, const float* part_lse, Floats o, float* lse) {
    const std::int64_t row = static_cast<std::int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.y;
    if (row >= rows) return;
    const std::int64_t head = blockIdx.y;
    const float added = part_lse[head * rows + row];
    const float before = lse[head * rows + row];
    if (added == -INFINITY) return;
    const auto top = static_cast<double>(fmaxf(added, before));
    const double weight = exp(static_cast<double>(before) - top);
    const double part_weight = exp(static_cast<double>(added) - top);
    const double sum = weight + part_weight;
    const auto keep = static_cast<float>(weight / sum);
    const auto take = static_cast<float>(part_weight / sum);
    __syncwarp();  // until all lanes have read the old lse
    if (threadIdx.x == 0) lse[head * rows + row] = static_cast<float>(top + log(sum));
    const std::int64_t at = (row * heads + head) * value_dim;
    for (std::int64_t i = threadIdx.x; i < value_dim; i += kWarp) {
        put(o, at + i, get(o, at + i) * keep + get(part_o, at + i) * take);
    }
}

constexpr dim3 kBlock(kWarp, kWarpsPerBlock);

dim3 grid_of(std::int64_t rows, std::int64_t heads) {
    return {blocks_for(rows, kWarpsPerBlock), static_cast<unsigned>(heads)};
}

/// Calls use(elements of a lane as a constant) for the narrowest spread that holds the heads.
template <typename Use>
void with_spread(const AttentionProblem& problem, const Use& use) {
    const int widest = problem.head_dim < problem.value_dim ? problem.value_dim : problem.head_dim;
    if (widest <= 2 * kWarp) return use(std::integral_constant<int, 2>());
    if (widest <= 4 * kWarp) return use(std::integral_constant<int, 4>());
    use(std::integral_constant<int, static_cast<int>(kWidestHead) / kWarp>());
}

template <typename... Operands>
bool are_bf16(const Operands&... operands) {
    return ((operands.type == DType::bf16) && ...);
}

}  // namespace

void attention_forward(StreamHandle stream, const AttentionPart& part, ConstFloatRows q, ConstFloatRows k,
                       ConstFloatRows v, Floats o, float* lse) {
    const AttentionProblem problem(part);
    if (are_bf16(q.data, k.data, v.data, o)) return attention_forward_tiles(stream, problem, {q, k, v}, o, lse);
    with_spread(problem, [&](auto per_lane) {
        launch(stream, grid_of(problem.query_rows, problem.heads), kBlock, "attention_forward",
               attention_forward_kernel<per_lane()>, problem, AttentionInputs{q, k, v}, o, lse);
    });
}

void attention_backward(StreamHandle stream, const AttentionPart& part, ConstFloats d_o, ConstFloatRows q,
                        ConstFloatRows k, ConstFloatRows v, ConstFloats o, const float* lse, FloatRows dq, FloatRows dk,
                        FloatRows dv, float* scratch) {
    const AttentionProblem problem(part);
    const AttentionBackwardInputs in{q, k, v, d_o, o, lse};
    if (are_bf16(q.data, k.data, v.data, o, d_o, dq.data, dk.data, dv.data) &&
        attention_backward_tiles(stream, problem, in, scratch, dq, dk, dv)) {
        return;
    }
    with_spread(problem, [&](auto per_lane) {
        launch(stream, grid_of(problem.query_rows, problem.heads), kBlock, "attention_backward",
               attention_query_gradient_kernel<per_lane()>, problem, in, dq);
        launch(stream, grid_of(problem.key_rows, problem.kv_heads), kBlock, "attention_backward",
               attention_key_gradient_kernel<per_lane()>, problem, in, dk, dv);
    });
}

void attention_merge(StreamHandle stream, std::int64_t rows, std::int64_t heads, std::int64_t value_dim,
                     ConstFloats part_o, const float* part_lse, Floats o, float* lse) {
    launch(stream, grid_of(rows, heads), kBlock, "attention_merge", attention_merge_kernel, rows, heads, value_dim,
           part_o, part_lse, o, lse);
}

}  // namespace orrery::kernels::cuda
