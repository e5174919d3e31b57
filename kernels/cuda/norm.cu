// LayerNorm, RMSNorm and the per-head RMSNorm of q and k. Statistics and parameter gradients are summed in double, as
// on the CPU.
#include <cmath>

#include "kernels/cuda/columns.cuh"
#include "kernels/cuda/loops.cuh"

namespace orrery::kernels::cuda {
namespace {

/// Copies the columns of a wider row that are not normalised.
__device__ void copy_other_columns(const NormShape& shape, std::int64_t begin, ConstFloats x, Floats y) {
    if (x.data == y.data) return;
    for (std::int64_t i = shape.width + threadIdx.x; i < shape.stride; i += kThreads) {
        put(y, begin + i, get(x, begin + i));
    }
}

// One block per row, of which a thread takes kCount elements at a time. The stride of a shape is given, also if it is
// the width. A row is read again where it is needed again: it is in the cache then.

/// Calls body(first column) for a thread's elements.
template <int kCount, typename Body>
__device__ void for_own_columns(const NormShape& shape, const Body& body) {
    for (std::int64_t i = static_cast<std::int64_t>(threadIdx.x) * kCount; i < shape.width; i += kThreads * kCount)
        body(i);
}

/// The row that is normalised: x, or the sum of which it is the first part. Each thread adds the elements that it reads
/// afterwards, and reads them as they are stored.
template <int kCount>
__device__ ConstFloats summed_row(const NormShape& shape, std::int64_t begin, ConstFloats x, const AddedRows& added) {
    if (!added.sum.present()) return x;
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        const auto sum = [](float a, float b, float bias) { return a + b + bias; };
        put_some(added.sum, begin + i,
                 apply<kCount>(sum, get_some<kCount>(x, begin + i), get_some<kCount>(added.rows, begin + i),
                               get_some_or_zero<kCount>(added.bias, i)));
    });
    return added.sum;
}

template <int kCount>
__global__ void layer_norm_forward_kernel(NormShape shape, double epsilon, ConstFloats first, AddedRows added,
                                          ConstFloats weight, ConstFloats bias, Floats y, float* stats) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.stride;
    const ConstFloats x = summed_row<kCount>(shape, begin, first, added);
    const auto width = static_cast<double>(shape.width);
    double sum = 0;
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        for (const float value : get_some<kCount>(x, begin + i).value) sum += wide(value);
    });
    const double mean = block_sum(sum, shared) / width;
    double squares = 0;
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        for (const float value : get_some<kCount>(x, begin + i).value) {
            const double centred = wide(value) - mean;
            squares += centred * centred;
        }
    });
    const double variance = block_sum(squares, shared) / width;
    const auto centre = static_cast<float>(mean);
    const auto inverse = static_cast<float>(1.0 / sqrt(variance + epsilon));
    if (threadIdx.x == 0) {
        stats[2 * row] = centre;
        stats[2 * row + 1] = inverse;
    }
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        const auto normed = [&](float value, float factor, float shift) {
            return ((value - centre) * inverse) * factor + shift;
        };
        put_some(y, begin + i,
                 apply<kCount>(normed, get_some<kCount>(x, begin + i), get_some<kCount>(weight, i),
                               get_some<kCount>(bias, i)));
    });
    copy_other_columns(shape, begin, x, y);
}

/// dx = residual + inverse (g - mean(g) - xhat mean(g xhat)) with g = dy w.
template <int kCount>
__global__ void layer_norm_backward_kernel(NormShape shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                                           const float* stats, ConstFloats residual, Floats dx) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.stride;
    const float centre = stats[2 * row];
    const float inverse = stats[2 * row + 1];
    double sum = 0;
    double dot = 0;
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        const auto gradients = get_some<kCount>(dy, begin + i), values = get_some<kCount>(x, begin + i),
                   factors = get_some<kCount>(weight, i);
        for (int j = 0; j < kCount; ++j) {
            const double g = wide(gradients.value[j] * factors.value[j]);
            sum += g;
            dot += g * wide((values.value[j] - centre) * inverse);
        }
    });
    const auto width = static_cast<double>(shape.width);
    const auto mean = static_cast<float>(block_sum(sum, shared) / width);
    const auto along = static_cast<float>(block_sum(dot, shared) / width);
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        const auto result = [&](float gradient, float value, float factor, float before) {
            const float normal = (value - centre) * inverse;
            return before + (gradient * factor - mean - normal * along) * inverse;
        };
        put_some(dx, begin + i,
                 apply<kCount>(result, get_some<kCount>(dy, begin + i), get_some<kCount>(x, begin + i),
                               get_some<kCount>(weight, i), get_some_or_zero<kCount>(residual, begin + i)));
    });
    copy_other_columns(shape, begin, dy, dx);
}

template <int kCount>
__global__ void rms_norm_forward_kernel(NormShape shape, double epsilon, ConstFloats first, AddedRows added,
                                        ConstFloats weight, Floats y, float* stats) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.stride;
    const ConstFloats x = summed_row<kCount>(shape, begin, first, added);
    double squares = 0;
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        for (const float value : get_some<kCount>(x, begin + i).value) squares += wide(value) * wide(value);
    });
    const double mean = block_sum(squares, shared) / static_cast<double>(shape.width);
    const auto inverse = static_cast<float>(1.0 / sqrt(mean + epsilon));
    if (threadIdx.x == 0) stats[row] = inverse;
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        put_some(y, begin + i,
                 apply<kCount>([&](float value, float factor) { return (value * inverse) * factor; },
                               get_some<kCount>(x, begin + i), get_some<kCount>(weight, i)));
    });
    copy_other_columns(shape, begin, x, y);
}

/// The factor on x in the gradient of an RMS norm, from the sum of dy w x.
__device__ float along_input(double dot, float inverse, std::int64_t width) {
    return static_cast<float>(dot * wide(inverse) * wide(inverse) * wide(inverse) / static_cast<double>(width));
}

template <int kCount>
__global__ void rms_norm_backward_kernel(NormShape shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                                         const float* stats, ConstFloats residual, Floats dx) {
    __shared__ double shared[kThreads / kWarp];
    const std::int64_t row = blockIdx.x;
    const std::int64_t begin = row * shape.stride;
    const float inverse = stats[row];
    double dot = 0;
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        const auto gradients = get_some<kCount>(dy, begin + i), values = get_some<kCount>(x, begin + i),
                   factors = get_some<kCount>(weight, i);
        for (int j = 0; j < kCount; ++j) {
            dot += wide(gradients.value[j] * factors.value[j]) * wide(values.value[j]);
        }
    });
    const float along = along_input(block_sum(dot, shared), inverse, shape.width);
    for_own_columns<kCount>(shape, [&](std::int64_t i) {
        const auto result = [&](float gradient, float value, float factor, float before) {
            return before + ((gradient * factor) * inverse - value * along);
        };
        put_some(dx, begin + i,
                 apply<kCount>(result, get_some<kCount>(dy, begin + i), get_some<kCount>(x, begin + i),
                               get_some<kCount>(weight, i), get_some_or_zero<kCount>(residual, begin + i)));
    });
    copy_other_columns(shape, begin, dy, dx);
}

/// Column sums for the gradients of the norm's parameters. A row's `stat_count` statistics are (mean, 1/std) or 1/rms.
template <int kColumns>
__global__ void norm_parameters_kernel(NormShape shape, int stat_count, ConstFloats dy, ConstFloats x,
                                       const float* stats, Floats dweight, Floats dbias) {
    using Block = ColumnBlock<kColumns>;
    __shared__ Block of_weights, of_biases;
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + threadIdx.x;
    double weight = 0;
    double bias = 0;
    if (column < shape.width) {
        for (std::int64_t row = threadIdx.y; row < shape.rows; row += blockDim.y) {
            const float centre = stat_count == 2 ? stats[2 * row] : 0.0F;
            const float inverse = stats[stat_count * row + stat_count - 1];
            const std::int64_t at = row * shape.stride + column;
            const float gradient = get(dy, at);
            weight += wide(gradient * ((get(x, at) - centre) * inverse));
            bias += wide(gradient);
        }
    }
    weight = of_weights.total(weight);
    if (dbias.present()) bias = of_biases.total(bias);
    const std::int64_t own = Block::column();
    if (!Block::has_column() || Block::lane() != 0 || own >= shape.width) return;
    put(dweight, own, get(dweight, own) + static_cast<float>(weight));
    if (dbias.present()) put(dbias, own, get(dbias, own) + static_cast<float>(bias));
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
NormShape with_stride(const NormShape& shape) {
    return {shape.rows, shape.width, shape.row_width()};
}

template <typename... Operands>
bool rows_take_four(const NormShape& shape, const Operands&... operands) {
    return shape.row_width() % 4 == 0 && rows_take_four(shape.width, operands...);
}

void parameter_gradients(StreamHandle stream, const NormShape& shape, const char* name, int stat_count, ConstFloats dy,
                         ConstFloats x, const float* stats, Floats dweight, Floats dbias) {
    with_columns(shape.width, [&](auto columns) {
        launch(stream, blocks_for(shape.width, columns()), ColumnBlock<columns()>::threads_for(shape.rows), name,
               norm_parameters_kernel<columns()>, with_stride(shape), stat_count, dy, x, stats, dweight, dbias);
    });
}

/// `residual`: what is added before a norm or after its backward pass.
void check_residual(const NormShape& shape, ConstFloats residual) {
    ORRERY_CHECK(!residual.present() || shape.row_width() == shape.width,
                 "a residual needs rows without other columns");
}

dim3 heads_of(const HeadShape& shape) {
    return {static_cast<unsigned>(shape.rows), blocks_for(shape.heads + 2 * shape.kv_heads, kHeadsPerBlock)};
}

}  // namespace

void layer_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, ConstFloats x, ConstFloats weight,
                        ConstFloats bias, Floats y, float* stats, const AddedRows& added) {
    check_residual(shape, added.rows);
    const bool in_fours = rows_take_four(shape, x, added.rows, added.bias, added.sum, weight, bias, y);
    with_count(in_fours, [&](auto count) {
        launch(stream, rows_of(shape), kThreads, "layer_norm_forward", layer_norm_forward_kernel<count()>,
               with_stride(shape), epsilon, x, added, weight, bias, y, stats);
    });
}

void layer_norm_backward(StreamHandle stream, const NormShape& shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                         const float* stats, ConstFloats residual, Floats dx, Floats dweight, Floats dbias) {
    check_residual(shape, residual);
    // First the parameters, because dx may be dy.
    parameter_gradients(stream, shape, "layer_norm_backward", 2, dy, x, stats, dweight, dbias);
    with_count(rows_take_four(shape, dy, x, weight, residual, dx), [&](auto count) {
        launch(stream, rows_of(shape), kThreads, "layer_norm_backward", layer_norm_backward_kernel<count()>,
               with_stride(shape), dy, x, weight, stats, residual, dx);
    });
}

void rms_norm_forward(StreamHandle stream, const NormShape& shape, double epsilon, ConstFloats x, ConstFloats weight,
                      Floats y, float* stats, const AddedRows& added) {
    check_residual(shape, added.rows);
    with_count(rows_take_four(shape, x, added.rows, added.bias, added.sum, weight, y), [&](auto count) {
        launch(stream, rows_of(shape), kThreads, "rms_norm_forward", rms_norm_forward_kernel<count()>,
               with_stride(shape), epsilon, x, added, weight, y, stats);
    });
}

void rms_norm_backward(StreamHandle stream, const NormShape& shape, ConstFloats dy, ConstFloats x, ConstFloats weight,
                       const float* stats, ConstFloats residual, Floats dx, Floats dweight) {
    check_residual(shape, residual);
    parameter_gradients(stream, shape, "rms_norm_backward", 1, dy, x, stats, dweight, {});
    with_count(rows_take_four(shape, dy, x, weight, residual, dx), [&](auto count) {
        launch(stream, rows_of(shape), kThreads, "rms_norm_backward", rms_norm_backward_kernel<count()>,
               with_stride(shape), dy, x, weight, stats, residual, dx);
    });
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
