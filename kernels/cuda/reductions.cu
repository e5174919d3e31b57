// Normalisation, one block per row. Statistics and sums are in double, as on the CPU.
#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {
namespace {

__device__ double wide(float x) {
    return static_cast<double>(x);
}

__global__ void layer_norm_forward_kernel(std::int64_t width, double epsilon, const float* x, const float* weight,
                                          const float* bias, float* y, float* stats) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const float* in = x + row * width;
    float* out = y + row * width;
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) sum += wide(in[i]);
    const double mean = block_sum(sum, shared) / static_cast<double>(width);
    double squares = 0;
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
        const double centred = wide(in[i]) - mean;
        squares += centred * centred;
    }
    const double variance = block_sum(squares, shared) / static_cast<double>(width);
    const auto centre = static_cast<float>(mean);
    const auto inverse = static_cast<float>(1.0 / sqrt(variance + epsilon));
    if (threadIdx.x == 0) {
        stats[2 * row] = centre;
        stats[2 * row + 1] = inverse;
    }
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
        out[i] = ((in[i] - centre) * inverse) * weight[i] + bias[i];
    }
}

/// dx = residual + inverse (g - mean(g) - xhat mean(g xhat)) with g = dy w.
__global__ void layer_norm_backward_kernel(std::int64_t width, const float* dy, const float* x, const float* weight,
                                           const float* stats, const float* residual, float* dx) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * width;
    const float centre = stats[2 * row];
    const float inverse = stats[2 * row + 1];
    double sum = 0;
    double dot = 0;
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
        const double g = wide(dy[begin + i] * weight[i]);
        sum += g;
        dot += g * wide((x[begin + i] - centre) * inverse);
    }
    const auto mean = static_cast<float>(block_sum(sum, shared) / static_cast<double>(width));
    const auto along = static_cast<float>(block_sum(dot, shared) / static_cast<double>(width));
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
        const float normal = (x[begin + i] - centre) * inverse;
        const float gradient = (dy[begin + i] * weight[i] - mean - normal * along) * inverse;
        dx[begin + i] = (residual == nullptr ? 0.0F : residual[begin + i]) + gradient;
    }
}

__global__ void rms_norm_forward_kernel(std::int64_t width, double epsilon, const float* x, const float* weight,
                                        float* y, float* stats) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const float* in = x + row * width;
    double squares = 0;
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) squares += wide(in[i]) * wide(in[i]);
    const double mean = block_sum(squares, shared) / static_cast<double>(width);
    const auto inverse = static_cast<float>(1.0 / sqrt(mean + epsilon));
    if (threadIdx.x == 0) stats[row] = inverse;
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) y[row * width + i] = (in[i] * inverse) * weight[i];
}

__global__ void rms_norm_backward_kernel(std::int64_t width, const float* dy, const float* x, const float* weight,
                                         const float* stats, const float* residual, float* dx) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * width;
    const float inverse = stats[row];
    double dot = 0;
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
        dot += wide(dy[begin + i] * weight[i]) * wide(x[begin + i]);
    }
    const double cube = wide(inverse) * wide(inverse) * wide(inverse);
    const auto factor = static_cast<float>(block_sum(dot, shared) * cube / static_cast<double>(width));
    for (std::int64_t i = threadIdx.x; i < width; i += kThreads) {
        const float gradient = (dy[begin + i] * weight[i]) * inverse - x[begin + i] * factor;
        dx[begin + i] = (residual == nullptr ? 0.0F : residual[begin + i]) + gradient;
    }
}

/// Column sums for the gradients of the norm's parameters; threadIdx.x is the column, threadIdx.y selects every
/// kWarp-th row. `stride` is 2 if stats are (mean, 1/std), 1 if they are 1/rms.
__global__ void norm_parameters_kernel(NormShape shape, int stride, const float* dy, const float* x, const float* stats,
                                       float* dweight, float* dbias) {
    __shared__ double weights[kWarp][kWarp + 1];
    __shared__ double biases[kWarp][kWarp + 1];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
    double weight = 0;
    double bias = 0;
    if (column < shape.width) {
        for (std::int64_t row = threadIdx.y; row < shape.rows; row += kWarp) {
            const float centre = stride == 2 ? stats[2 * row] : 0.0F;
            const float inverse = stats[stride * row + stride - 1];
            const float gradient = dy[row * shape.width + column];
            weight += wide(gradient * ((x[row * shape.width + column] - centre) * inverse));
            bias += wide(gradient);
        }
    }
    weights[threadIdx.y][threadIdx.x] = weight;
    biases[threadIdx.y][threadIdx.x] = bias;
    __syncthreads();
    if (threadIdx.y != 0 || column >= shape.width) return;
    weight = bias = 0;
    for (int y = 0; y < kWarp; ++y) {
        weight += weights[y][threadIdx.x];
        bias += biases[y][threadIdx.x];
    }
    dweight[column] += static_cast<float>(weight);
    if (dbias != nullptr) dbias[column] += static_cast<float>(bias);
}

unsigned blocks_of(std::int64_t rows) {
    return static_cast<unsigned>(rows);
}

}  // namespace

void layer_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, const float* x,
                        const float* weight, const float* bias, float* y, float* stats) {
    launch(stream, blocks_of(shape.rows), kThreads, "layer_norm_forward", layer_norm_forward_kernel, shape.width,
           epsilon, x, weight, bias, y, stats);
}

void layer_norm_backward(StreamHandle stream, const NormShape& shape, const float* dy, const float* x,
                         const float* weight, const float* stats, const float* residual, float* dx, float* dweight,
                         float* dbias) {
    launch(stream, blocks_for(shape.width, kWarp), dim3(kWarp, kWarp), "layer_norm_backward", norm_parameters_kernel,
           shape, 2, dy, x, stats, dweight, dbias);
    launch(stream, blocks_of(shape.rows), kThreads, "layer_norm_backward", layer_norm_backward_kernel, shape.width, dy,
           x, weight, stats, residual, dx);
}

void rms_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, const float* x, const float* weight,
                      float* y, float* stats) {
    launch(stream, blocks_of(shape.rows), kThreads, "rms_norm_forward", rms_norm_forward_kernel, shape.width, epsilon,
           x, weight, y, stats);
}

void rms_norm_backward(StreamHandle stream, const NormShape& shape, const float* dy, const float* x,
                       const float* weight, const float* stats, const float* residual, float* dx, float* dweight) {
    launch(stream, blocks_for(shape.width, kWarp), dim3(kWarp, kWarp), "rms_norm_backward", norm_parameters_kernel,
           shape, 1, dy, x, stats, dweight, nullptr);
    launch(stream, blocks_of(shape.rows), kThreads, "rms_norm_backward", rms_norm_backward_kernel, shape.width, dy, x,
           weight, stats, residual, dx);
}

}  // namespace orrery::kernels::cuda
