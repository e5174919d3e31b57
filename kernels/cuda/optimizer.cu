// Optimizers over flat parameters, the gradient norm and gradient clipping.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {
namespace {

__device__ float factor_of(const Clipping& clipping) {
    if (clipping.norm == nullptr) return 1.0F;
    constexpr double kSmall = 1e-6;  // as in PyTorch's clip_grad_norm_
    return static_cast<float>(fmin(1.0, clipping.clip_norm / (sqrt(*clipping.norm) + kSmall)));
}

/// The constants of one update, the same as in kernels/cpu/optimizer.cpp.
struct AdamConstants {
    bool decoupled;
    float keep, pull, rate, root, beta1, beta2, rest1, rest2, epsilon;
};

AdamConstants constants_of(const AdamW& options, bool decoupled) {
    const auto steps = static_cast<double>(options.step);
    const double correction1 = 1.0 - std::pow(options.beta1, steps);
    const double correction2 = 1.0 - std::pow(options.beta2, steps);
    return {decoupled,
            static_cast<float>(decoupled ? 1.0 - options.learning_rate * options.weight_decay : 1.0),
            static_cast<float>(decoupled ? 0.0 : options.weight_decay),
            static_cast<float>(options.learning_rate / correction1),
            static_cast<float>(std::sqrt(correction2)),
            static_cast<float>(options.beta1),
            static_cast<float>(options.beta2),
            static_cast<float>(1.0 - options.beta1),
            static_cast<float>(1.0 - options.beta2),
            static_cast<float>(options.epsilon)};
}

__global__ void adam_kernel(std::int64_t elements, AdamConstants c, Clipping clipping, float* parameters, float* m,
                            float* v, float* gradient) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= elements) return;
    const float parameter = parameters[i];
    const float clipped = gradient[i] * factor_of(clipping);
    const float g = c.decoupled ? clipped : clipped + c.pull * parameter;
    const float new_m = m[i] * c.beta1 + g * c.rest1;
    const float new_v = v[i] * c.beta2 + (g * g) * c.rest2;
    m[i] = new_m;
    v[i] = new_v;
    parameters[i] = parameter * c.keep - c.rate * (new_m / (sqrtf(new_v) / c.root + c.epsilon));
    gradient[i] = 0.0F;
}

__global__ void sgd_kernel(std::int64_t elements, float rate, float momentum, float pull, Clipping clipping,
                           float* parameters, float* m, float* gradient) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i >= elements) return;
    const float new_m = m[i] * momentum + (gradient[i] * factor_of(clipping) + pull * parameters[i]);
    m[i] = new_m;
    parameters[i] -= rate * new_m;
    gradient[i] = 0.0F;
}

__global__ void scale_kernel(std::int64_t elements, Clipping clipping, float* x) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < elements) x[i] *= factor_of(clipping);
}

__global__ void partial_squares_kernel(std::int64_t elements, const float* x, double* partial) {
    __shared__ double shared[kThreads / kWarp];
    double sum = 0;
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < elements; i += stride) {
        sum += static_cast<double>(x[i]) * static_cast<double>(x[i]);
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = sum;
}

__global__ void add_partial_kernel(unsigned count, const double* partial, double* norm) {
    __shared__ double shared[kThreads / kWarp];
    double sum = 0;
    for (unsigned i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) norm[0] += sum;
}

__global__ void mark_not_finite_kernel(double* norm) {
    norm[1] = isfinite(norm[0]) ? 0.0 : 1.0;
}

void run_adam(StreamHandle stream, std::int64_t elements, const AdamConstants& constants, Clipping clipping,
              float* parameters, float* m, float* v, float* gradient) {
    if (elements == 0) return;
    launch(stream, blocks_for(elements), kThreads, "adam", adam_kernel, elements, constants, clipping, parameters, m, v,
           gradient);
}

}  // namespace

void adamw(StreamHandle stream, std::int64_t elements, const AdamW& options, Clipping clipping, float* parameters,
           float* m, float* v, float* gradient) {
    run_adam(stream, elements, constants_of(options, true), clipping, parameters, m, v, gradient);
}

void adam(StreamHandle stream, std::int64_t elements, const AdamW& options, Clipping clipping, float* parameters,
          float* m, float* v, float* gradient) {
    run_adam(stream, elements, constants_of(options, false), clipping, parameters, m, v, gradient);
}

void sgd_momentum(StreamHandle stream, std::int64_t elements, const SgdMomentum& options, Clipping clipping,
                  float* parameters, float* m, float* gradient) {
    if (elements == 0) return;
    launch(stream, blocks_for(elements), kThreads, "sgd_momentum", sgd_kernel, elements,
           static_cast<float>(options.learning_rate), static_cast<float>(options.momentum),
           static_cast<float>(options.weight_decay), clipping, parameters, m, gradient);
}

void scale(StreamHandle stream, std::int64_t elements, Clipping clipping, float* x) {
    if (elements == 0) return;
    launch(stream, blocks_for(elements), kThreads, "scale", scale_kernel, elements, clipping, x);
}

void sum_of_squares(StreamHandle stream, std::int64_t elements, const float* x, double* partial, double* norm) {
    const auto blocks = static_cast<unsigned>(std::min<std::int64_t>(kPartialSums, blocks_for(elements)));
    launch(stream, blocks, kThreads, "sum_of_squares", partial_squares_kernel, elements, x, partial);
    launch(stream, 1, kThreads, "sum_of_squares", add_partial_kernel, blocks, partial, norm);
}

void mark_not_finite(StreamHandle stream, double* norm) {
    launch(stream, 1, 1, "mark_not_finite", mark_not_finite_kernel, norm);
}

}  // namespace orrery::kernels::cuda
