// LayerNorm, RMSNorm and the per-head RMSNorm of q and k. Statistics and parameter gradients are summed in double, as
// on the CPU.
#include <cmath>

#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {
namespace {

/// Copies the columns of a wider row that are not normalised.
__device__ void copy_other_columns(const NormShape& shape, std::int64_t begin, ConstFloats x, Floats y) {
    if (x.data == y.data) return;
    for (std::int64_t i = shape.width + threadIdx.x; i < shape.stride; i += kThreads) {
        put(y, begin + i, get(x, begin + i));
    }
}

// One block per row. The stride of a shape is given, also if it is the width.

__global__ void layer_norm_forward_kernel(NormShape shape, double epsilon, ConstFloats x, ConstFloats weight,
                                          ConstFloats bias, Floats y, float* stats) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.stride;
    const auto width = static_cast<double>(shape.width);
    double sum = 0;
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) sum += wide(get(x, begin + i));
    const double mean = block_sum(sum, shared) / width;
    double squares = 0;
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        const double centred = wide(get(x, begin + i)) - mean;
        squares += centred * centred;
    }
    const double variance = block_sum(squares, shared) / width;
    const auto centre = static_cast<float>(mean);
    const auto inverse = static_cast<float>(1.0 / sqrt(variance + epsilon));
    if (threadIdx.x == 0) {
        stats[2 * row] = centre;
        stats[2 * row + 1] = inverse;
    }
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        put(y, begin + i, ((get(x, begin + i) - centre) * inverse) * get(weight, i) + get(bias, i));
    }
    copy_other_columns(shape, begin, x, y);
}

/// dx = residual + inverse (g - mean(g) - xhat mean(g xhat)) with g = dy w.
__global__ void layer_norm_backward_kernel(NormShape shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                                           const float* stats, ConstFloats residual, Floats dx) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.stride;
    const float centre = stats[2 * row];
    const float inverse = stats[2 * row + 1];
    double sum = 0;
    double dot = 0;
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        const double g = wide(get(dy, begin + i) * get(weight, i));
        sum += g;
        dot += g * wide((get(x, begin + i) - centre) * inverse);
    }
    const auto width = static_cast<double>(shape.width);
    const auto mean = static_cast<float>(block_sum(sum, shared) / width);
    const auto along = static_cast<float>(block_sum(dot, shared) / width);
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        const float normal = (get(x, begin + i) - centre) * inverse;
        const float gradient = (get(dy, begin + i) * get(weight, i) - mean - normal * along) * inverse;
        put(dx, begin + i, (residual.present() ? get(residual, begin + i) : 0.0F) + gradient);
    }
    copy_other_columns(shape, begin, dy, dx);
}

__global__ void rms_norm_forward_kernel(NormShape shape, double epsilon, ConstFloats x, ConstFloats weight, Floats y,
                                        float* stats) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.stride;
    double squares = 0;
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        const double value = wide(get(x, begin + i));
        squares += value * value;
    }
    const double mean = block_sum(squares, shared) / static_cast<double>(shape.width);
    const auto inverse = static_cast<float>(1.0 / sqrt(mean + epsilon));
    if (threadIdx.x == 0) stats[row] = inverse;
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        put(y, begin + i, (get(x, begin + i) * inverse) * get(weight, i));
    }
    copy_other_columns(shape, begin, x, y);
}

/// The factor on x in the gradient of an RMS norm, from the sum of dy w x.
__device__ float along_input(double dot, float inverse, std::int64_t width) {
    return static_cast<float>(dot * wide(inverse) * wide(inverse) * wide(inverse) / static_cast<double>(width));
}

__global__ void rms_norm_backward_kernel(NormShape shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                                         const float* stats, ConstFloats residual, Floats dx) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.stride;
    const float inverse = stats[row];
    double dot = 0;
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        dot += wide(get(dy, begin + i) * get(weight, i)) * wide(get(x, begin + i));
    }
    const float factor = along_input(block_sum(dot, shared), inverse, shape.width);
    for (std::int64_t i = threadIdx.x; i < shape.width; i += kThreads) {
        const float gradient = (get(dy, begin + i) * get(weight, i)) * inverse - get(x, begin + i) * factor;
        put(dx, begin + i, (residual.present() ? get(residual, begin + i) : 0.0F) + gradient);
    }
    copy_other_columns(shape, begin, dy, dx);
}

/// Column sums for the gradients of the norm's parameters; threadIdx.x is the column, threadIdx.y selects every
/// kWarp-th row. A row's `stat_count` statistics are (mean, 1/std) or 1/rms.
__global__ void norm_parameters_kernel(NormShape shape, int stat_count, ConstFloats dy, ConstFloats x,
                                       const float* stats, Floats dweight, Floats dbias) {
    __shared__ double weights[kWarp][kWarp + 1];
    __shared__ double biases[kWarp][kWarp + 1];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
    double weight = 0;
    double bias = 0;
    if (column < shape.width) {
        for (std::int64_t row = threadIdx.y; row < shape.rows; row += kWarp) {
            const float centre = stat_count == 2 ? stats[2 * row] : 0.0F;
            const float inverse = stats[stat_count * row + stat_count - 1];
            const std::int64_t at = row * shape.stride + column;
            const float gradient = get(dy, at);
            weight += wide(gradient * ((get(x, at) - centre) * inverse));
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
    put(dweight, column, get(dweight, column) + static_cast<float>(weight));
    if (dbias.present()) put(dbias, column, get(dbias, column) + static_cast<float>(bias));
}

// One warp per head of a row. Heads of q and k are normalised, those of v are copied.

constexpr unsigned kHeadsPerBlock = kThreads / kWarp;

__device__ std::int64_t row_width(const HeadShape& shape) {
    return (shape.heads + 2 * shape.kv_heads) * shape.head_dim;
}

/// The weights of q's and k's heads, whose gradients are Floats.
template <typename Weights>
struct HeadWeights {
    Weights q, k;
    __device__ Weights of(const HeadShape& shape, std::int64_t head) const { return head < shape.heads ? q : k; }
};

/// The head of a row that a warp works on.
struct HeadOfRow {
    std::int64_t row, head;
    std::int64_t begin;  // of its elements
    std::int64_t place;  // of its statistics
    bool exists, is_normed;
    __device__ explicit HeadOfRow(const HeadShape& shape) : row(blockIdx.x) {
        const std::int64_t normed = shape.heads + shape.kv_heads;
        head = static_cast<std::int64_t>(blockIdx.y) * kHeadsPerBlock + threadIdx.y;
        begin = row * row_width(shape) + head * shape.head_dim;
        place = row * normed + head;
        exists = head < normed + shape.kv_heads;
        is_normed = head < normed;
    }
};

__device__ void copy_head(const HeadShape& shape, std::int64_t begin, ConstFloats from, Floats to) {
    for (std::int64_t i = threadIdx.x; i < shape.head_dim; i += kWarp) put(to, begin + i, get(from, begin + i));
}

__global__ void head_norm_forward_kernel(HeadShape shape, double epsilon, ConstFloats qkv,
                                         HeadWeights<ConstFloats> weights, Floats out, float* stats) {
    const HeadOfRow own(shape);
    if (!own.exists) return;
    const std::int64_t begin = own.begin;
    if (!own.is_normed) return copy_head(shape, begin, qkv, out);
    double squares = 0;
    for (std::int64_t i = threadIdx.x; i < shape.head_dim; i += kWarp) {
        const double value = wide(get(qkv, begin + i));
        squares += value * value;
    }
    const double mean = warp_sum(squares) / static_cast<double>(shape.head_dim);
    const auto inverse = static_cast<float>(1.0 / sqrt(mean + epsilon));
    if (threadIdx.x == 0) stats[own.place] = inverse;
    const ConstFloats weight = weights.of(shape, own.head);
    for (std::int64_t i = threadIdx.x; i < shape.head_dim; i += kWarp) {
        put(out, begin + i, (get(qkv, begin + i) * inverse) * get(weight, i));
    }
}

__global__ void head_norm_backward_kernel(HeadShape shape, ConstFloats dout, ConstFloats qkv,
                                          HeadWeights<ConstFloats> weights, const float* stats, Floats dqkv) {
    const HeadOfRow own(shape);
    if (!own.exists) return;
    const std::int64_t begin = own.begin;
    if (!own.is_normed) return copy_head(shape, begin, dout, dqkv);
    const ConstFloats weight = weights.of(shape, own.head);
    const float inverse = stats[own.place];
    double dot = 0;
    for (std::int64_t i = threadIdx.x; i < shape.head_dim; i += kWarp) {
        dot += wide(get(dout, begin + i) * get(weight, i)) * wide(get(qkv, begin + i));
    }
    const float factor = along_input(warp_sum(dot), inverse, shape.head_dim);
    for (std::int64_t i = threadIdx.x; i < shape.head_dim; i += kWarp) {
        put(dqkv, begin + i, (get(dout, begin + i) * get(weight, i)) * inverse - get(qkv, begin + i) * factor);
    }
}

// All heads of q share their weights, and so do those of k. Few columns a block, and many rows side by side, since
// heads are narrow.
constexpr int kHeadColumns = 8;
constexpr int kHeadRows = 128;

/// threadIdx.x is the column, threadIdx.y selects every kHeadRows-th row, blockIdx.y is 0 for q and 1 for k.
__global__ void head_norm_parameters_kernel(HeadShape shape, ConstFloats dout, ConstFloats qkv, const float* stats,
                                            HeadWeights<Floats> gradients) {
    __shared__ double sums[kHeadRows][kHeadColumns + 1];
    const std::int64_t normed = shape.heads + shape.kv_heads;
    const std::int64_t begin = blockIdx.y == 0 ? 0 : shape.heads;
    const std::int64_t end = blockIdx.y == 0 ? shape.heads : normed;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kHeadColumns + threadIdx.x;
    double sum = 0;
    if (column < shape.head_dim) {
        for (std::int64_t row = threadIdx.y; row < shape.rows; row += kHeadRows) {
            for (std::int64_t head = begin; head < end; ++head) {
                const std::int64_t at = row * row_width(shape) + head * shape.head_dim + column;
                sum += wide(get(dout, at) * (get(qkv, at) * stats[row * normed + head]));
            }
        }
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= shape.head_dim) return;
    double total = 0;
    for (int y = 0; y < kHeadRows; ++y) total += sums[y][threadIdx.x];
    const Floats gradient = gradients.of(shape, begin);
    put(gradient, column, get(gradient, column) + static_cast<float>(total));
}

unsigned rows_of(const NormShape& shape) {
    return static_cast<unsigned>(shape.rows);
}
dim3 columns_of(const NormShape& shape) {
    return blocks_for(shape.width, kWarp);
}
constexpr dim3 kColumnBlock(kWarp, kWarp);

NormShape with_stride(const NormShape& shape) {
    return {shape.rows, shape.width, shape.row_width()};
}

void check_residual(const NormShape& shape, ConstFloats residual) {
    ORRERY_CHECK(!residual.present() || shape.row_width() == shape.width,
                 "a residual needs rows without other columns");
}

dim3 heads_of(const HeadShape& shape) {
    return {static_cast<unsigned>(shape.rows), blocks_for(shape.heads + 2 * shape.kv_heads, kHeadsPerBlock)};
}

}  // namespace

void layer_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, ConstFloats x, ConstFloats weight,
                        ConstFloats bias, Floats y, float* stats) {
    launch(stream, rows_of(shape), kThreads, "layer_norm_forward", layer_norm_forward_kernel, with_stride(shape),
           epsilon, x, weight, bias, y, stats);
}

void layer_norm_backward(StreamHandle stream, const NormShape& shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                         const float* stats, ConstFloats residual, Floats dx, Floats dweight, Floats dbias) {
    check_residual(shape, residual);
    // First the parameters, because dx may be dy.
    launch(stream, columns_of(shape), kColumnBlock, "layer_norm_backward", norm_parameters_kernel, with_stride(shape),
           2, dy, x, stats, dweight, dbias);
    launch(stream, rows_of(shape), kThreads, "layer_norm_backward", layer_norm_backward_kernel, with_stride(shape), dy,
           x, weight, stats, residual, dx);
}

void rms_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, ConstFloats x, ConstFloats weight,
                      Floats y, float* stats) {
    launch(stream, rows_of(shape), kThreads, "rms_norm_forward", rms_norm_forward_kernel, with_stride(shape), epsilon,
           x, weight, y, stats);
}

void rms_norm_backward(StreamHandle stream, const NormShape& shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                       const float* stats, ConstFloats residual, Floats dx, Floats dweight) {
    check_residual(shape, residual);
    launch(stream, columns_of(shape), kColumnBlock, "rms_norm_backward", norm_parameters_kernel, with_stride(shape), 1,
           dy, x, stats, dweight, Floats{});
    launch(stream, rows_of(shape), kThreads, "rms_norm_backward", rms_norm_backward_kernel, with_stride(shape), dy, x,
           weight, stats, residual, dx);
}

void head_norm_forward(StreamHandle stream, const HeadShape& shape, double epsilon, ConstFloats qkv,
                       ConstFloats q_weight, ConstFloats k_weight, Floats out, float* stats) {
    launch(stream, heads_of(shape), dim3(kWarp, kHeadsPerBlock), "head_norm_forward", head_norm_forward_kernel, shape,
           epsilon, qkv, HeadWeights<ConstFloats>{q_weight, k_weight}, out, stats);
}

void head_norm_backward(StreamHandle stream, const HeadShape& shape, ConstFloats dout, ConstFloats qkv,
                        ConstFloats q_weight, ConstFloats k_weight, const float* stats, Floats dqkv, Floats dq_weight,
                        Floats dk_weight) {
    launch(stream, heads_of(shape), dim3(kWarp, kHeadsPerBlock), "head_norm_backward", head_norm_backward_kernel, shape,
           dout, qkv, HeadWeights<ConstFloats>{q_weight, k_weight}, stats, dqkv);
    launch(stream, dim3(blocks_for(shape.head_dim, kHeadColumns), 2), dim3(kHeadColumns, kHeadRows),
           "head_norm_backward", head_norm_parameters_kernel, shape, dout, qkv, stats,
           HeadWeights<Floats>{dq_weight, dk_weight});
}

}  // namespace orrery::kernels::cuda
