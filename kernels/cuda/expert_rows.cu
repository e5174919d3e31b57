// Permutations of rows by expert.
#include <algorithm>
#include <limits>

#include "kernels/cuda/experts.h"
#include "kernels/cuda/loops.cuh"

namespace orrery::kernels::cuda {
namespace {

/// One block per expert, which reads all choices: to count its own and those of lower experts, and to give its own
/// their rows, in order.
__global__ void sort_by_expert_kernel(std::int64_t choices, const std::int32_t* chosen, std::int64_t* counts,
                                      std::int32_t* rows) {
    __shared__ std::int64_t shared[kThreads / kWarp];
    __shared__ int in_warp[kThreads / kWarp];
    const auto expert = static_cast<std::int32_t>(blockIdx.x);
    const unsigned warp = threadIdx.x / kWarp, lane = threadIdx.x % kWarp;
    std::int64_t lower = 0, own = 0;
    for (std::int64_t i = threadIdx.x; i < choices; i += kThreads) {
        const std::int32_t one = chosen[i];
        lower += one < expert ? 1 : 0;
        own += one == expert ? 1 : 0;
    }
    own = block_sum(own, shared);
    if (threadIdx.x == 0) counts[expert] = own;
    if (own == 0) return;
    std::int64_t next = block_sum(lower, shared);
    for (std::int64_t first = 0; first < choices; first += kThreads) {
        const std::int64_t i = first + threadIdx.x;
        const bool is_own = i < choices && chosen[i] == expert;
        const unsigned lanes = __ballot_sync(kAllLanes, is_own ? 1 : 0);
        __syncthreads();  // until all threads have read the counts of the last turn
        if (lane == 0) in_warp[warp] = __popc(lanes);
        __syncthreads();
        std::int64_t row = next + __popc(lanes & ((1U << lane) - 1));
        for (unsigned w = 0; w < kThreads / kWarp; ++w) {
            if (w < warp) row += in_warp[w];
            next += in_warp[w];
        }
        if (is_own) rows[i] = static_cast<std::int32_t>(row);
    }
}

/// A block's threads copy a row.
__device__ void copy_row(std::int64_t width, bool in_fours, ConstFloats x, Floats y) {
    if (in_fours) {
        for (std::int64_t i = 4 * threadIdx.x; i < width; i += 4 * blockDim.x) put4(y, i, get4(x, i));
    } else {
        for (std::int64_t i = threadIdx.x; i < width; i += blockDim.x) put(y, i, get(x, i));
    }
}

__global__ void permute_forward_kernel(PermuteShape shape, bool in_fours, ConstFloats x, const std::int32_t* rows,
                                       Floats y) {
    const std::int64_t choice = blockIdx.x;
    copy_row(shape.width, in_fours, x.from(choice / shape.top_k * shape.width), y.from(rows[choice] * shape.width));
}

/// One block per token. Without weights they are 1.
__global__ void sum_choices_kernel(PermuteShape shape, ConstFloats y, ConstFloats weights, const std::int32_t* rows,
                                   Floats out) {
    const std::int64_t first = blockIdx.x * shape.top_k;
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        float sum = 0;
        for (std::int64_t choice = first; choice < first + shape.top_k; ++choice) {
            const float value = get(y, rows[choice] * shape.width + i);
            sum += weights.present() ? get(weights, choice) * value : value;
        }
        put(out, blockIdx.x * shape.width + i, sum);
    }
}

/// One block per choice. Each thread reads an element of y before it writes the same one of dy.
__global__ void combine_backward_kernel(PermuteShape shape, ConstFloats dout, ConstFloats y, ConstFloats probabilities,
                                        const std::int32_t* rows, Floats dy, Floats dprobabilities) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t choice = blockIdx.x;
    const ConstFloats gradients = dout.from(choice / shape.top_k * shape.width);
    const std::int64_t begin = rows[choice] * shape.width;
    const float weight = get(probabilities, choice);
    double dot = 0;
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        const float gradient = get(gradients, i);
        dot += static_cast<double>(gradient) * static_cast<double>(get(y, begin + i));
        put(dy, begin + i, weight * gradient);
    }
    dot = block_sum(dot, shared);
    if (threadIdx.x == 0) put(dprobabilities, choice, static_cast<float>(dot));
}

/// The blocks of one blockIdx.x copy the rows of one source for one expert.
__global__ void regroup_kernel(ReceivedRows shape, bool to_experts, bool in_fours, ConstFloats x, Floats y) {
    __shared__ std::int64_t shared[kThreads / kWarp];
    const std::int64_t own = blockIdx.x;
    const std::int64_t expert = own % shape.experts;
    if (blockIdx.y >= shape.counts[own]) return;
    std::int64_t by_source = 0, by_expert = 0;  // first row in either order
    for (std::int64_t i = threadIdx.x; i < shape.sources * shape.experts; i += kThreads) {
        const std::int64_t of = i % shape.experts;
        if (i < own) by_source += shape.counts[i];
        if (of < expert || (of == expert && i < own)) by_expert += shape.counts[i];
    }
    by_source = block_sum(by_source, shared);
    by_expert = block_sum(by_expert, shared);
    const std::int64_t from = to_experts ? by_source : by_expert, to = to_experts ? by_expert : by_source;
    for (std::int64_t row = blockIdx.y; row < shape.counts[own]; row += gridDim.y) {
        copy_row(shape.width, in_fours, x.from((from + row) * shape.width), y.from((to + row) * shape.width));
    }
}

void regroup(StreamHandle stream, const ReceivedRows& shape, std::int64_t most_rows, bool to_experts, ConstFloats x,
             Floats y) {
    constexpr std::int64_t kMostBlocks = 256;  // of one source and expert
    const std::int64_t pairs = shape.sources * shape.experts;
    if (pairs == 0) return;
    const auto blocks = static_cast<unsigned>(std::clamp<std::int64_t>(most_rows / pairs, 1, kMostBlocks));
    launch(stream, dim3(static_cast<unsigned>(pairs), blocks), kThreads,
           to_experts ? "group_by_expert" : "group_by_source", regroup_kernel, shape, to_experts,
           rows_take_four(shape.width, x, y), x, y);
}

unsigned choices_of(const PermuteShape& shape) {
    return static_cast<unsigned>(shape.tokens * shape.top_k);
}

}  // namespace

void sort_by_expert(StreamHandle stream, std::int64_t choices, std::int64_t experts, const std::int32_t* chosen,
                    std::int64_t* counts, std::int32_t* rows) {
    ORRERY_CHECK(choices <= std::numeric_limits<std::int32_t>::max(), "too many rows for 32-bit indices");
    launch(stream, static_cast<unsigned>(experts), kThreads, "sort_by_expert", sort_by_expert_kernel, choices, chosen,
           counts, rows);
}

void permute_forward(StreamHandle stream, const PermuteShape& shape, ConstFloats x, const std::int32_t* rows,
                     Floats y) {
    launch(stream, choices_of(shape), kThreads, "permute_forward", permute_forward_kernel, shape,
           rows_take_four(shape.width, x, y), x, rows, y);
}

void permute_backward(StreamHandle stream, const PermuteShape& shape, ConstFloats dy, const std::int32_t* rows,
                      Floats dx) {
    launch(stream, static_cast<unsigned>(shape.tokens), kThreads, "permute_backward", sum_choices_kernel, shape, dy,
           ConstFloats{}, rows, dx);
}

void combine_forward(StreamHandle stream, const PermuteShape& shape, ConstFloats y, ConstFloats probabilities,
                     const std::int32_t* rows, Floats out) {
    launch(stream, static_cast<unsigned>(shape.tokens), kThreads, "combine_forward", sum_choices_kernel, shape, y,
           probabilities, rows, out);
}

void combine_backward(StreamHandle stream, const PermuteShape& shape, ConstFloats dout, ConstFloats y,
                      ConstFloats probabilities, const std::int32_t* rows, Floats dy, Floats dprobabilities) {
    launch(stream, choices_of(shape), kThreads, "combine_backward", combine_backward_kernel, shape, dout, y,
           probabilities, rows, dy, dprobabilities);
}

void group_by_expert(StreamHandle stream, const ReceivedRows& shape, std::int64_t most_rows, ConstFloats x, Floats y) {
    regroup(stream, shape, most_rows, true, x, y);
}

void group_by_source(StreamHandle stream, const ReceivedRows& shape, std::int64_t most_rows, ConstFloats x, Floats y) {
    regroup(stream, shape, most_rows, false, x, y);
}

}  // namespace orrery::kernels::cuda
