// Cross entropy, one block per row. Sums are in double, as on the CPU.
#include <cmath>

#include "kernels/cuda/cross_entropy.h"
#include "kernels/cuda/loops.cuh"

namespace orrery::kernels::cuda {
namespace {

/// The maximum over a block of kThreads; every thread gets it.
__device__ float block_max(float value) {
    __shared__ float shared[kThreads / kWarp];
    value = warp_max(value);
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = value;
    __syncthreads();
    for (const float of_warp : shared) value = fmaxf(value, of_warp);
    return value;
}

__global__ void cross_entropy_max_kernel(VocabShard shape, ConstFloats logits, float* row_max) {
    const std::int64_t row = blockIdx.x;
    float top = -INFINITY;
    for (std::int64_t i = threadIdx.x; i < shape.valid; i += kThreads) top = fmaxf(top, get(logits, row * shape.n + i));
    top = block_max(top);
    if (threadIdx.x == 0) row_max[row] = top;
}

/// The maximum and the sum of a row in one pass. A thread's sum is relative to the largest of the logits that it has
/// seen, and is rescaled when a larger one comes.
template <int kCount>
__global__ void cross_entropy_online_kernel(VocabShard shape, ConstFloats logits, const std::int32_t* targets,
                                            float* row_max, float* sums) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.n;
    float top = -INFINITY;
    double sum = 0;
    for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * kCount; i < shape.valid; i += kThreads * kCount) {
        Some<kCount> some = get_some<kCount>(logits, begin + i);
        float highest = top;
        for (int j = 0; j < kCount; ++j) {
            if (i + j >= shape.valid) some.value[j] = -INFINITY;  // padding
            highest = fmaxf(highest, some.value[j]);
        }
        if (highest > top) {
            sum *= wide(expf(top - highest));
            top = highest;
        }
        for (const float value : some.value) sum += value == -INFINITY ? 0.0 : wide(expf(value - top));
    }
    const float highest = block_max(top);
    // Threads without logits would compute a difference of infinities.
    sum = block_sum(sum == 0.0 ? 0.0 : sum * wide(expf(top - highest)), shared);
    if (threadIdx.x != 0) return;
    row_max[row] = highest;
    sums[row] = static_cast<float>(sum);
    const std::int64_t column = targets[row] - shape.start;
    const bool is_here = column >= 0 && column < shape.valid;
    sums[shape.rows + row] = is_here ? get(logits, begin + column) - highest : 0.0F;
}

/// The thread that reads the target's logit also writes the sum that needs it, because the exponentials may overwrite
/// the logits.
__global__ void cross_entropy_sum_kernel(VocabShard shape, ConstFloats logits, const float* row_max,
                                         const std::int32_t* targets, float* sums, Floats exponentials) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.n;
    const float top = row_max[row];
    const std::int64_t column = targets[row] - shape.start;
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < shape.valid; i += kThreads) {
        const float above = get(logits, begin + i) - top;
        const float exponential = expf(above);
        sum += wide(exponential);
        if (i == column) sums[shape.rows + row] = above;
        if (exponentials.present()) put(exponentials, begin + i, exponential);
    }
    if (exponentials.present()) {
        for (std::int64_t i = shape.valid + threadIdx.x; i < shape.n; i += kThreads) put(exponentials, begin + i, 0.0F);
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x != 0) return;
    sums[row] = static_cast<float>(sum);
    if (column < 0 || column >= shape.valid) sums[shape.rows + row] = 0.0F;
}

/// A single block, so that the order of the sum is fixed.
__global__ void cross_entropy_loss_kernel(std::int64_t rows, const float* row_max, const float* sums, float* lse,
                                          double* loss) {
    __shared__ double shared[kThreads / kWarp];
    double total = 0;
    for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
        const double log_sum = log(wide(sums[row]));
        total += log_sum - wide(sums[rows + row]);
        lse[row] = static_cast<float>(wide(row_max[row]) + log_sum);
    }
    total = block_sum(total, shared);
    if (threadIdx.x == 0) *loss += total;
}

__global__ void cross_entropy_loss_of_parts_kernel(std::int64_t rows, std::int64_t parts, std::int64_t n,
                                                   const float* row_max, const float* sums, const std::int32_t* targets,
                                                   float* lse, double* loss) {
    __shared__ double shared[kThreads / kWarp];
    double total = 0;
    for (std::int64_t row = threadIdx.x; row < rows; row += kThreads) {
        float top = row_max[row];
        for (std::int64_t part = 1; part < parts; ++part) top = fmaxf(top, row_max[part * rows + row]);
        double sum = 0;
        for (std::int64_t part = 0; part < parts; ++part) {
            const double above = wide(row_max[part * rows + row]) - wide(top);
            sum += wide(sums[2 * part * rows + row]) * exp(above);
        }
        const std::int64_t owner = targets[row] / n;
        const double target = wide(sums[(2 * owner + 1) * rows + row]) + wide(row_max[owner * rows + row]) - wide(top);
        const double log_sum = log(sum);
        total += log_sum - target;
        lse[row] = static_cast<float>(wide(top) + log_sum);
    }
    total = block_sum(total, shared);
    if (threadIdx.x == 0) *loss += total;
}

__global__ void cross_entropy_backward_kernel(VocabShard shape, float scale, const float* lse,
                                              const std::int32_t* targets, Floats logits) {
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.n;
    const float log_sum = lse[row];
    const std::int64_t column = targets[row] - shape.start;
    for (std::int64_t i = threadIdx.x; i < shape.n; i += kThreads) {
        const float probability = i < shape.valid ? expf(get(logits, begin + i) - log_sum) * scale : 0.0F;
        put(logits, begin + i, i == column && i < shape.valid ? probability - scale : probability);
    }
}

__global__ void cross_entropy_backward_of_exponentials_kernel(VocabShard shape, float scale, const float* row_max,
                                                              const float* lse, const std::int32_t* targets,
                                                              Floats exponentials) {
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.n;
    const float factor = expf(row_max[row] - lse[row]) * scale;
    const std::int64_t column = targets[row] - shape.start;
    for (std::int64_t i = threadIdx.x; i < shape.n; i += kThreads) {
        const float probability = get(exponentials, begin + i) * factor;
        put(exponentials, begin + i, i == column && i < shape.valid ? probability - scale : probability);
    }
}

__global__ void cross_entropy_correct_kernel(VocabShard shape, std::int64_t width, float scale, const float* row_max,
                                             const float* lse, const std::int32_t* targets, ConstFloats weight,
                                             Floats dx) {
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * width;
    const float factor = expf(row_max[row] - lse[row]) * scale;
    const std::int64_t column = targets[row] - shape.start;
    const bool is_here = column >= 0 && column < shape.valid;
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
        const float product = get(dx, begin + i) * factor;
        put(dx, begin + i, is_here ? product - scale * get(weight, column * width + i) : product);
    }
}

unsigned blocks_of(const VocabShard& shape) {
    return static_cast<unsigned>(shape.rows);
}

}  // namespace

void cross_entropy_max(StreamHandle stream, const VocabShard& shape, ConstFloats logits, float* row_max) {
    launch(stream, blocks_of(shape), kThreads, "cross_entropy_max", cross_entropy_max_kernel, shape, logits, row_max);
}

void cross_entropy_sum(StreamHandle stream, const VocabShard& shape, ConstFloats logits, const float* row_max,
                       const std::int32_t* targets, float* sums, Floats exponentials) {
    launch(stream, blocks_of(shape), kThreads, "cross_entropy_sum", cross_entropy_sum_kernel, shape, logits, row_max,
           targets, sums, exponentials);
}

void cross_entropy_online(StreamHandle stream, const VocabShard& shape, ConstFloats logits, const std::int32_t* targets,
                          float* row_max, float* sums) {
    with_count(rows_take_four(shape.n, logits), [&](auto count) {
        launch(stream, blocks_of(shape), kThreads, "cross_entropy_sum", cross_entropy_online_kernel<count()>, shape,
               logits, targets, row_max, sums);
    });
}

void cross_entropy_loss(StreamHandle stream, std::int64_t rows, const float* row_max, const float* sums, float* lse,
                        double* loss) {
    launch(stream, 1, kThreads, "cross_entropy_loss", cross_entropy_loss_kernel, rows, row_max, sums, lse, loss);
}

void cross_entropy_loss_of_parts(StreamHandle stream, std::int64_t rows, std::int64_t parts, std::int64_t n,
                                 const float* row_max, const float* sums, const std::int32_t* targets, float* lse,
                                 double* loss) {
    launch(stream, 1, kThreads, "cross_entropy_loss", cross_entropy_loss_of_parts_kernel, rows, parts, n, row_max, sums,
           targets, lse, loss);
}

void cross_entropy_backward(StreamHandle stream, const VocabShard& shape, float scale, const float* lse,
                            const std::int32_t* targets, Floats logits) {
    launch(stream, blocks_of(shape), kThreads, "cross_entropy_backward", cross_entropy_backward_kernel, shape, scale,
           lse, targets, logits);
}

void cross_entropy_backward_of_exponentials(StreamHandle stream, const VocabShard& shape, float scale,
                                            const float* row_max, const float* lse, const std::int32_t* targets,
                                            Floats exponentials) {
    launch(stream, blocks_of(shape), kThreads, "cross_entropy_backward", cross_entropy_backward_of_exponentials_kernel,
           shape, scale, row_max, lse, targets, exponentials);
}

void cross_entropy_correct(StreamHandle stream, const VocabShard& shape, std::int64_t width, float scale,
                           const float* row_max, const float* lse, const std::int32_t* targets, ConstFloats weight,
                           Floats dx) {
    launch(stream, blocks_of(shape), kThreads, "cross_entropy_correct", cross_entropy_correct_kernel, shape, width,
           scale, row_max, lse, targets, weight, dx);
}

}  // namespace orrery::kernels::cuda
