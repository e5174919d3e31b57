// Attention without score tiles: one warp per query of a head, or per key of a key/value head, with the head's elements
// distributed over its lanes. Only o and lse are stored for the backward pass, and no scratch memory is needed.

#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {
namespace {

constexpr int kWarpsPerBlock = 4;
constexpr int kMostPerLane = static_cast<int>(kWidestHead) / kWarp;

/// A head's elements, distributed over a warp: lane l holds the elements l, l + 32, …, padded with zeros.
struct Spread {
    float value[kMostPerLane];
};

__device__ Spread load(const float* head, int head_dim) {
    Spread spread;
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) {
        spread.value[i] = lane + i * kWarp < head_dim ? head[lane + i * kWarp] : 0.0F;
    }
    return spread;
}

__device__ void store(const Spread& spread, float factor, float* head, int head_dim) {
    const int lane = static_cast<int>(threadIdx.x) % kWarp;
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) {
        if (lane + i * kWarp < head_dim) head[lane + i * kWarp] = spread.value[i] * factor;
    }
}

/// a . b; every lane gets the result.
__device__ float dot(const Spread& a, const Spread& b) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) sum += a.value[i] * b.value[i];
    return warp_sum(sum);
}

/// a . (b - c); every lane gets the result.
__device__ float dot_difference(const Spread& a, const Spread& b, const Spread& c) {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) sum += a.value[i] * (b.value[i] - c.value[i]);
    return warp_sum(sum);
}

/// sum = sum * keep + factor * x
__device__ void accumulate(Spread& sum, float keep, float factor, const Spread& x) {
#pragma unroll
    for (int i = 0; i < kMostPerLane; ++i) sum.value[i] = sum.value[i] * keep + factor * x.value[i];
}

/// Offsets into packed q, k and v, o and lse, by row and head.
struct Packed {
    AttentionShape shape;
    __device__ std::int64_t row(std::int64_t position, std::int64_t sample) const {
        return position * shape.micro_batch + sample;
    }
    __device__ std::int64_t width() const { return (shape.heads + 2 * shape.kv_heads) * shape.head_dim; }
    __device__ std::int64_t q(std::int64_t row, std::int64_t head) const {
        return row * width() + head * shape.head_dim;
    }
    __device__ std::int64_t k(std::int64_t row, std::int64_t kv_head) const {
        return row * width() + (shape.heads + kv_head) * shape.head_dim;
    }
    __device__ std::int64_t v(std::int64_t row, std::int64_t kv_head) const {
        return k(row, kv_head) + shape.kv_heads * shape.head_dim;
    }
    __device__ std::int64_t o(std::int64_t row, std::int64_t head) const {
        return (row * shape.heads + head) * shape.head_dim;
    }
    __device__ std::int64_t lse(std::int64_t row, std::int64_t head) const {
        return head * shape.sequence * shape.micro_batch + row;
    }
    __device__ float scale() const { return 1.0F / sqrtf(static_cast<float>(shape.head_dim)); }
    __device__ std::int64_t first_key(std::int64_t query) const {
        const std::int64_t window = shape.sliding_window;
        return window > 0 && query >= window ? query - window + 1 : 0;
    }
    __device__ std::int64_t last_query(std::int64_t key) const {
        const std::int64_t window = shape.sliding_window;
        return window > 0 && key + window < shape.sequence ? key + window - 1 : shape.sequence - 1;
    }
};

/// The work item of a warp. my_work() returns false if this warp has none.
struct Work {
    std::int64_t position, sample, head;
};
__device__ bool my_work(const AttentionShape& shape, std::int64_t heads, Work& work) {
    const std::int64_t index = static_cast<std::int64_t>(blockIdx.x) * kWarpsPerBlock + threadIdx.x / kWarp;
    if (index >= heads * shape.sequence * shape.micro_batch) return false;
    work.head = index % heads;
    work.sample = index / heads % shape.micro_batch;
    work.position = index / heads / shape.micro_batch;
    return true;
}

__global__ void attention_forward_kernel(Packed packed, const float* qkv, float* o, float* lse) {
    Work work;
    if (!my_work(packed.shape, packed.shape.heads, work)) return;
    const auto head_dim = static_cast<int>(packed.shape.head_dim);
    const std::int64_t kv_head = work.head / (packed.shape.heads / packed.shape.kv_heads);
    const std::int64_t row = packed.row(work.position, work.sample);
    const Spread q = load(qkv + packed.q(row, work.head), head_dim);
    const float scale = packed.scale();
    Spread sum{};
    float top = -INFINITY;
    float weights = 0;
    for (std::int64_t key = packed.first_key(work.position); key <= work.position; ++key) {
        const std::int64_t key_row = packed.row(key, work.sample);
        const float score = dot(q, load(qkv + packed.k(key_row, kv_head), head_dim)) * scale;
        const float new_top = fmaxf(top, score);
        const float keep = expf(top - new_top);
        const float weight = expf(score - new_top);
        accumulate(sum, keep, weight, load(qkv + packed.v(key_row, kv_head), head_dim));
        weights = weights * keep + weight;
        top = new_top;
    }
    store(sum, 1.0F / weights, o + packed.o(row, work.head), head_dim);
    if (threadIdx.x % kWarp == 0) lse[packed.lse(row, work.head)] = top + logf(weights);
}

/// The gradient of a score is p (do . v - do . o) = p do . (v - o).
__global__ void attention_query_gradient_kernel(Packed packed, const float* d_o, const float* qkv, const float* o,
                                                const float* lse, float* dqkv) {
    Work work;
    if (!my_work(packed.shape, packed.shape.heads, work)) return;
    const auto head_dim = static_cast<int>(packed.shape.head_dim);
    const std::int64_t kv_head = work.head / (packed.shape.heads / packed.shape.kv_heads);
    const std::int64_t row = packed.row(work.position, work.sample);
    const Spread q = load(qkv + packed.q(row, work.head), head_dim);
    const Spread dout = load(d_o + packed.o(row, work.head), head_dim);
    const Spread out = load(o + packed.o(row, work.head), head_dim);
    const float log_sum = lse[packed.lse(row, work.head)];
    const float scale = packed.scale();
    Spread dq{};
    for (std::int64_t key = packed.first_key(work.position); key <= work.position; ++key) {
        const std::int64_t key_row = packed.row(key, work.sample);
        const Spread k = load(qkv + packed.k(key_row, kv_head), head_dim);
        const Spread v = load(qkv + packed.v(key_row, kv_head), head_dim);
        const float probability = expf(dot(q, k) * scale - log_sum);
        accumulate(dq, 1.0F, probability * dot_difference(dout, v, out), k);
    }
    store(dq, scale, dqkv + packed.q(row, work.head), head_dim);
}

__global__ void attention_key_gradient_kernel(Packed packed, const float* d_o, const float* qkv, const float* o,
                                              const float* lse, float* dqkv) {
    Work work;
    if (!my_work(packed.shape, packed.shape.kv_heads, work)) return;
    const auto head_dim = static_cast<int>(packed.shape.head_dim);
    const std::int64_t group = packed.shape.heads / packed.shape.kv_heads;
    const std::int64_t key_row = packed.row(work.position, work.sample);
    const Spread k = load(qkv + packed.k(key_row, work.head), head_dim);
    const Spread v = load(qkv + packed.v(key_row, work.head), head_dim);
    const float scale = packed.scale();
    Spread dk{};
    Spread dv{};
    for (std::int64_t head = work.head * group; head < (work.head + 1) * group; ++head) {
        for (std::int64_t query = work.position; query <= packed.last_query(work.position); ++query) {
            const std::int64_t row = packed.row(query, work.sample);
            const Spread q = load(qkv + packed.q(row, head), head_dim);
            const Spread dout = load(d_o + packed.o(row, head), head_dim);
            const Spread out = load(o + packed.o(row, head), head_dim);
            const float probability = expf(dot(q, k) * scale - lse[packed.lse(row, head)]);
            accumulate(dk, 1.0F, probability * dot_difference(dout, v, out), q);
            accumulate(dv, 1.0F, probability, dout);
        }
    }
    store(dk, scale, dqkv + packed.k(key_row, work.head), head_dim);
    store(dv, 1.0F, dqkv + packed.v(key_row, work.head), head_dim);
}

unsigned blocks(const AttentionShape& shape, std::int64_t heads) {
    return blocks_for(heads * shape.sequence * shape.micro_batch, kWarpsPerBlock);
}

}  // namespace

void attention_forward(StreamHandle stream, const AttentionShape& shape, const float* qkv, float* o, float* lse) {
    ORRERY_CHECK(shape.head_dim <= kWidestHead, "attention on CUDA takes heads of up to 256 elements");
    launch(stream, blocks(shape, shape.heads), kWarpsPerBlock * kWarp, "attention_forward", attention_forward_kernel,
           Packed{shape}, qkv, o, lse);
}

void attention_backward(StreamHandle stream, const AttentionShape& shape, const float* d_o, const float* qkv,
                        const float* o, const float* lse, float* dqkv) {
    ORRERY_CHECK(shape.head_dim <= kWidestHead, "attention on CUDA takes heads of up to 256 elements");
    launch(stream, blocks(shape, shape.heads), kWarpsPerBlock * kWarp, "attention_backward",
           attention_query_gradient_kernel, Packed{shape}, d_o, qkv, o, lse, dqkv);
    launch(stream, blocks(shape, shape.kv_heads), kWarpsPerBlock * kWarp, "attention_backward",
           attention_key_gradient_kernel, Packed{shape}, d_o, qkv, o, lse, dqkv);
}

}  // namespace orrery::kernels::cuda
