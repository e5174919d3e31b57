#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cuda/loops.cuh"
#include "kernels/cuda/optimizer.h"

namespace orrery::kernels::cuda {
namespace {

/// So that the ranges of a launch fit into its parameters, which may take 4 KiB.
constexpr std::size_t kMostRanges = 64;
constexpr std::int64_t kElementsPerBlock = 16 * kThreads;

/// A range, and the first of the blocks that work on it.
struct PlacedRange {
    std::int64_t parameter, gradient, state, elements;
    unsigned first_block;
    bool decays;
    bool in_fours;  // its elements may be accessed by fours
};
struct Ranges {
    PlacedRange range[kMostRanges];
    unsigned count;
    unsigned blocks;
};

/// The ranges of each launch. is_aligned(range) tells whether all buffers take accesses by fours from there on.
template <typename IsAligned>
std::vector<Ranges> launches_of(std::span<const FlatRange> ranges, const IsAligned& is_aligned) {
    std::vector<Ranges> launches;
    for (const FlatRange& range : ranges) {
        if (range.elements == 0) continue;
        if (launches.empty() || launches.back().count == kMostRanges) launches.push_back({});
        Ranges& last = launches.back();
        last.range[last.count++] = {range.parameter, range.gradient, range.state,      range.elements,
                                    last.blocks,     range.decays,   is_aligned(range)};
        last.blocks += blocks_for(range.elements, kElementsPerBlock);
    }
    return launches;
}

/// Calls body(range, i, count) for the elements i … i + count - 1 of the block's part of its range, where i is a
/// multiple of four and count is four but at the end.
template <typename Body>
__device__ void each_four(const Ranges& ranges, unsigned block, Body body) {
    unsigned r = 0;
    while (r + 1 < ranges.count && block >= ranges.range[r + 1].first_block) ++r;
    const PlacedRange& range = ranges.range[r];
    const std::int64_t first = static_cast<std::int64_t>(block - range.first_block) * kElementsPerBlock;
    const std::int64_t left = range.elements - first;
    const std::int64_t end = first + (left < kElementsPerBlock ? left : kElementsPerBlock);
    for (std::int64_t i = first + 4 * threadIdx.x; i < end; i += 4 * kThreads) {
        body(range, i, end - i < 4 ? static_cast<int>(end - i) : 4);
    }
}

__device__ Four load(ConstFloats x, std::int64_t i, int count, bool in_fours) {
    if (in_fours && count == 4) return get4(x, i);
    Four four{};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        if (j < count) four.value[j] = get(x, i + j);
    }
    return four;
}

__device__ void store(Floats x, std::int64_t i, int count, bool in_fours, const Four& four) {
    if (in_fours && count == 4) return put4(x, i, four);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
        if (j < count) put(x, i + j, four.value[j]);
    }
}

__device__ float factor_of(const Clipping& clipping) {
    if (clipping.norm == nullptr) return 1.0F;
    constexpr double kSmall = 1e-6;  // as in PyTorch's clip_grad_norm_
    return static_cast<float>(fmin(1.0, clipping.clip_norm / (sqrt(*clipping.norm) + kSmall)));
}

/// gradient * factor as it would be stored, since the CPU scales gradients where they are.
__device__ float scaled(float gradient, float factor, DType type) {
    const float product = gradient * factor;
    return type == DType::bf16 ? __bfloat162float(__float2bfloat16_rn(product)) : product;
}

/// The constants of one update, the same as in kernels/cpu/optimizer.cpp.
struct AdamConstants {
    bool decoupled;
    float keep, pull;  // of ranges that decay
    float rate, root, beta1, beta2, rest1, rest2, epsilon;
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

/// The fp32 numbers that are updated, and where they start in a range.
__device__ Floats updated(const UpdatedBuffers& buffers, const PlacedRange& range) {
    return buffers.master == nullptr ? buffers.parameters.from(range.parameter)
                                     : Floats{buffers.master + range.state, DType::fp32};
}

__device__ void store_update(const UpdatedBuffers& buffers, const PlacedRange& range, std::int64_t i, int count,
                             const Four& weights) {
    store(updated(buffers, range), i, count, range.in_fours, weights);
    if (buffers.master != nullptr) {
        store(buffers.parameters.from(range.parameter), i, count, range.in_fours, weights);
    }
    store(buffers.gradient.from(range.gradient), i, count, range.in_fours, Four{});
}

__global__ void adam_kernel(const __grid_constant__ Ranges ranges, AdamConstants c, Clipping clipping,
                            UpdatedBuffers buffers) {
    const float factor = factor_of(clipping);
    each_four(ranges, blockIdx.x, [&](const PlacedRange& range, std::int64_t i, int count) {
        const float keep = range.decays ? c.keep : 1.0F;
        const float pull = range.decays ? c.pull : 0.0F;
        const Floats m = buffers.m.from(range.state);
        const Floats v = buffers.v.from(range.state);
        const Four gradient = load(buffers.gradient.from(range.gradient), i, count, range.in_fours);
        Four weights = load(updated(buffers, range), i, count, range.in_fours);
        Four first = load(m, i, count, range.in_fours);
        Four second = load(v, i, count, range.in_fours);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float clipped = scaled(gradient.value[j], factor, buffers.gradient.type);
            const float g = c.decoupled ? clipped : clipped + pull * weights.value[j];
            first.value[j] = first.value[j] * c.beta1 + g * c.rest1;
            second.value[j] = second.value[j] * c.beta2 + (g * g) * c.rest2;
            const float step = first.value[j] / (sqrtf(second.value[j]) / c.root + c.epsilon);
            weights.value[j] = weights.value[j] * keep - c.rate * step;
        }
        store(m, i, count, range.in_fours, first);
        store(v, i, count, range.in_fours, second);
        store_update(buffers, range, i, count, weights);
    });
}

__global__ void sgd_kernel(const __grid_constant__ Ranges ranges, float rate, float momentum, float decay,
                           Clipping clipping, UpdatedBuffers buffers) {
    const float factor = factor_of(clipping);
    each_four(ranges, blockIdx.x, [&](const PlacedRange& range, std::int64_t i, int count) {
        const float pull = range.decays ? decay : 0.0F;
        const Floats m = buffers.m.from(range.state);
        const Four gradient = load(buffers.gradient.from(range.gradient), i, count, range.in_fours);
        Four weights = load(updated(buffers, range), i, count, range.in_fours);
        Four moment = load(m, i, count, range.in_fours);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
            const float g = scaled(gradient.value[j], factor, buffers.gradient.type);
            moment.value[j] = moment.value[j] * momentum + (g + pull * weights.value[j]);
            weights.value[j] -= rate * moment.value[j];
        }
        store(m, i, count, range.in_fours, moment);
        store_update(buffers, range, i, count, weights);
    });
}

__global__ void scale_kernel(const __grid_constant__ Ranges ranges, Clipping clipping, Floats gradient) {
    const float factor = factor_of(clipping);
    if (factor >= 1.0F) return;
    each_four(ranges, blockIdx.x, [&](const PlacedRange& range, std::int64_t i, int count) {
        const Floats x = gradient.from(range.gradient);
        Four values = load(x, i, count, range.in_fours);
#pragma unroll
        for (int j = 0; j < 4; ++j) values.value[j] *= factor;
        store(x, i, count, range.in_fours, values);
    });
}

__global__ void partial_squares_kernel(const __grid_constant__ Ranges ranges, ConstFloats gradient, bool is_first,
                                       double* partial) {
    __shared__ double shared[kThreads / kWarp];
    double sum = 0;
    for (unsigned block = blockIdx.x; block < ranges.blocks; block += gridDim.x) {
        each_four(ranges, block, [&](const PlacedRange& range, std::int64_t i, int count) {
            const Four values = load(gradient.from(range.gradient), i, count, range.in_fours);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                sum += static_cast<double>(values.value[j]) * static_cast<double>(values.value[j]);
            }
        });
    }
    sum = block_sum(sum, shared);
    if (threadIdx.x == 0) partial[blockIdx.x] = is_first ? sum : partial[blockIdx.x] + sum;
}

__global__ void add_partial_kernel(unsigned count, const double* partial, double* norm) {
    __shared__ double shared[kThreads / kWarp];
    double sum = 0;
    for (unsigned i = threadIdx.x; i < count; i += kThreads) sum += partial[i];
    sum = block_sum(sum, shared);
    if (threadIdx.x != 0) return;
    norm[0] = sum;
    norm[1] = isfinite(sum) ? 0.0 : 1.0;
}

std::vector<Ranges> launches_of_update(std::span<const FlatRange> ranges, const UpdatedBuffers& buffers) {
    return launches_of(ranges, [&](const FlatRange& range) {
        const auto state = [&](Floats x) { return !x.present() || takes_four(x.from(range.state)); };
        return takes_four(buffers.parameters.from(range.parameter)) &&
               takes_four(buffers.gradient.from(range.gradient)) && state(buffers.m) && state(buffers.v) &&
               state({buffers.master, DType::fp32});
    });
}

std::vector<Ranges> launches_on_gradient(std::span<const FlatRange> ranges, ConstFloats gradient) {
    return launches_of(ranges, [&](const FlatRange& range) { return takes_four(gradient.from(range.gradient)); });
}

void run_adam(StreamHandle stream, std::span<const FlatRange> ranges, const AdamConstants& constants, Clipping clipping,
              const UpdatedBuffers& buffers) {
    for (const Ranges& one : launches_of_update(ranges, buffers)) {
        launch(stream, one.blocks, kThreads, "adam", adam_kernel, one, constants, clipping, buffers);
    }
}

}  // namespace

void adamw(StreamHandle stream, std::span<const FlatRange> ranges, const AdamW& options, Clipping clipping,
           const UpdatedBuffers& buffers) {
    run_adam(stream, ranges, constants_of(options, true), clipping, buffers);
}

void adam(StreamHandle stream, std::span<const FlatRange> ranges, const AdamW& options, Clipping clipping,
          const UpdatedBuffers& buffers) {
    run_adam(stream, ranges, constants_of(options, false), clipping, buffers);
}

void sgd_momentum(StreamHandle stream, std::span<const FlatRange> ranges, const SgdMomentum& options, Clipping clipping,
                  const UpdatedBuffers& buffers) {
    for (const Ranges& one : launches_of_update(ranges, buffers)) {
        launch(stream, one.blocks, kThreads, "sgd_momentum", sgd_kernel, one, static_cast<float>(options.learning_rate),
               static_cast<float>(options.momentum), static_cast<float>(options.weight_decay), clipping, buffers);
    }
}

void scale(StreamHandle stream, std::span<const FlatRange> ranges, Clipping clipping, Floats gradient) {
    for (const Ranges& one : launches_on_gradient(ranges, gradient)) {
        launch(stream, one.blocks, kThreads, "scale", scale_kernel, one, clipping, gradient);
    }
}

void gradient_norm(StreamHandle stream, std::span<const FlatRange> ranges, ConstFloats gradient, double* partial,
                   double* norm) {
    const std::vector<Ranges> launches = launches_on_gradient(ranges, gradient);
    unsigned blocks = 0;
    for (const Ranges& one : launches) {
        blocks = std::max(blocks, std::min(one.blocks, static_cast<unsigned>(kPartialSums)));
    }
    for (const Ranges& one : launches) {
        launch(stream, blocks, kThreads, "gradient_norm", partial_squares_kernel, one, gradient, &one == &launches[0],
               partial);
    }
    launch(stream, 1, kThreads, "gradient_norm", add_partial_kernel, blocks, partial, norm);
}

}  // namespace orrery::kernels::cuda
