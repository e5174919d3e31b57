// Cross entropy, one block per row. Sums are in double, as on the CPU.
#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {
namespace {

__device__ double wide(float x) {
    return static_cast<double>(x);
}

__global__ void cross_entropy_max_kernel(VocabShard shape, const float* logits, float* row_max) {
    __shared__ float shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    float top = -INFINITY;
    for (std::int64_t i = threadIdx.x; i < shape.valid; i += kThreads) top = fmaxf(top, logits[row * shape.n + i]);
    top = warp_max(top);
    if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = top;
    __syncthreads();
    if (threadIdx.x != 0) return;
    for (const float of_warp : shared) top = fmaxf(top, of_warp);
    row_max[row] = top;
}

__global__ void cross_entropy_sum_kernel(VocabShard shape, const float* logits, const float* row_max,
                                         const std::int32_t* targets, float* sums) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const float* values = logits + row * shape.n;
    const float top = row_max[row];
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < shape.valid; i += kThreads) sum += wide(expf(values[i] - top));
    sum = block_sum(sum, shared);
    if (threadIdx.x != 0) return;
    const std::int64_t column = targets[row] - shape.start;
    sums[row] = static_cast<float>(sum);
    sums[shape.rows + row] = column >= 0 && column < shape.valid ? values[column] - top : 0.0F;
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

__global__ void cross_entropy_backward_kernel(VocabShard shape, float scale, const float* lse,
                                              const std::int32_t* targets, float* logits) {
    const std::int64_t row = blockIdx.x;
    float* values = logits + row * shape.n;
    const float log_sum = lse[row];
    const std::int64_t column = targets[row] - shape.start;
    for (std::int64_t i = threadIdx.x; i < shape.n; i += kThreads) {
        const float probability = i < shape.valid ? expf(values[i] - log_sum) * scale : 0.0F;
        values[i] = i == column && i < shape.valid ? probability - scale : probability;
    }
}

unsigned rows_of(std::int64_t rows) {
    return static_cast<unsigned>(rows);
}

}  // namespace

void cross_entropy_max(StreamHandle stream, const VocabShard& shape, const float* logits, float* row_max) {
    launch(stream, rows_of(shape.rows), kThreads, "cross_entropy_max", cross_entropy_max_kernel, shape, logits,
           row_max);
}

void cross_entropy_sum(StreamHandle stream, const VocabShard& shape, const float* logits, const float* row_max,
                       const std::int32_t* targets, float* sums) {
    launch(stream, rows_of(shape.rows), kThreads, "cross_entropy_sum", cross_entropy_sum_kernel, shape, logits, row_max,
           targets, sums);
}

void cross_entropy_loss(StreamHandle stream, std::int64_t rows, const float* row_max, const float* sums, float* lse,
                        double* loss) {
    launch(stream, 1, kThreads, "cross_entropy_loss", cross_entropy_loss_kernel, rows, row_max, sums, lse, loss);
}

void cross_entropy_backward(StreamHandle stream, const VocabShard& shape, float scale, const float* lse,
                            const std::int32_t* targets, float* logits) {
    launch(stream, rows_of(shape.rows), kThreads, "cross_entropy_backward", cross_entropy_backward_kernel, shape, scale,
           lse, targets, logits);
}

}  // namespace orrery::kernels::cuda
