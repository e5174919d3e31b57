// Embeddings, positions, rotation, activations, and flat vectors.
#include "kernels/cuda/launch.cuh"

namespace orrery::kernels::cuda {
namespace {

constexpr float kLinear = 1.5957691216057308F;   // 2 sqrt(2/pi)
constexpr float kCubic = 0.07135481627159556F;   // 2 sqrt(2/pi) * 0.044715
constexpr float kCubic3 = 0.21406444881478667F;  // 3 kCubic, for the derivative

/// Calls body(i) for each i in [0, count), with one thread each.
template <typename Body>
__global__ void each_kernel(std::int64_t count, Body body) {
    const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (i < count) body(i);
}

template <typename Body>
void for_each(StreamHandle stream, std::int64_t count, const char* name, Body body) {
    if (count == 0) return;
    launch(stream, blocks_for(count), kThreads, name, each_kernel<Body>, count, body);
}

__device__ float logistic(float x) {
    return 1.0F / (1.0F + expf(-x));
}

/// The logistic function's slope s (1 - s), without the cancellation in 1 - s.
__device__ float logistic_slope(float x) {
    const float e = expf(-fabsf(x));
    const float r = 1.0F / (1.0F + e);
    return e * r * r;
}

/// One block per row. The block of a token's first row adds up all rows of the token, in order.
__global__ void embedding_backward_kernel(EmbeddingShape shape, const float* dy, const std::int32_t* tokens,
                                          float* dweight) {
    const std::int64_t row = blockIdx.x;
    const std::int32_t token = tokens[row];
    const std::int64_t place = token - shape.vocab_start;
    if (place < 0 || place >= shape.vocab_rows) return;
    int seen = 0;
    for (std::int64_t r = threadIdx.x; r < row; r += blockDim.x) seen |= tokens[r] == token ? 1 : 0;
    if (__syncthreads_or(seen) != 0) return;
    for (std::int64_t column = threadIdx.x; column < shape.width; column += blockDim.x) {
        float sum = dweight[place * shape.width + column];
        for (std::int64_t r = row; r < shape.rows; ++r) {
            if (tokens[r] == token) sum += dy[r * shape.width + column];
        }
        dweight[place * shape.width + column] = sum;
    }
}

/// A block sums kWarp columns; threadIdx.x is the column, threadIdx.y selects every kWarp-th row.
__global__ void bias_backward_kernel(std::int64_t rows, std::int64_t n, const float* dy, float* dbias) {
    __shared__ double sums[kWarp][kWarp + 1];
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kWarp + threadIdx.x;
    double sum = 0;
    if (column < n) {
        for (std::int64_t row = threadIdx.y; row < rows; row += kWarp) sum += static_cast<double>(dy[row * n + column]);
    }
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y != 0 || column >= n) return;
    double total = 0;
    for (int y = 0; y < kWarp; ++y) total += sums[y][threadIdx.x];
    dbias[column] += static_cast<float>(total);
}

}  // namespace

void embedding_forward(StreamHandle stream, const EmbeddingShape& shape, const std::int32_t* tokens,
                       const float* weight, float* y) {
    for_each(stream, shape.rows * shape.width, "embedding_forward", [=] __device__(std::int64_t i) {
        const std::int64_t row = i / shape.width;
        const std::int64_t place = tokens[row] - shape.vocab_start;
        const bool here = place >= 0 && place < shape.vocab_rows;
        y[i] = here ? weight[place * shape.width + i % shape.width] : 0.0F;
    });
}

void embedding_backward(StreamHandle stream, const EmbeddingShape& shape, const float* dy, const std::int32_t* tokens,
                        float* dweight) {
    if (shape.rows == 0) return;
    launch(stream, static_cast<unsigned>(shape.rows), kThreads, "embedding_backward", embedding_backward_kernel, shape,
           dy, tokens, dweight);
}

void position_forward(StreamHandle stream, const PositionShape& shape, const float* x, const float* weight, float* y) {
    for_each(stream, shape.rows * shape.width, "position_forward", [=] __device__(std::int64_t i) {
        const std::int64_t position = shape.first_position + i / shape.width / shape.micro_batch;
        y[i] = x[i] + weight[position * shape.width + i % shape.width];
    });
}

void position_backward(StreamHandle stream, const PositionShape& shape, const float* dy, float* dweight) {
    const std::int64_t positions = shape.rows / shape.micro_batch;
    for_each(stream, positions * shape.width, "position_backward", [=] __device__(std::int64_t i) {
        const std::int64_t position = i / shape.width;
        const std::int64_t column = i % shape.width;
        const std::int64_t out = (shape.first_position + position) * shape.width + column;
        float sum = dweight[out];
        for (std::int64_t sample = 0; sample < shape.micro_batch; ++sample) {
            sum += dy[(position * shape.micro_batch + sample) * shape.width + column];
        }
        dweight[out] = sum;
    });
}

void rotate(StreamHandle stream, const HeadShape& shape, std::int64_t micro_batch, std::int64_t first_position,
            const float* cosines, const float* sines, bool inverse, float* qkv) {
    const std::int64_t half = shape.head_dim / 2;
    const std::int64_t pairs = (shape.heads + shape.kv_heads) * half;  // of a row: q and k
    const std::int64_t width = shape.row_width();
    const std::int64_t head_dim = shape.head_dim;
    for_each(stream, shape.rows * pairs, "rotate", [=] __device__(std::int64_t i) {
        const std::int64_t row = i / pairs;
        const std::int64_t head = i % pairs / half;
        const std::int64_t pair = i % half;
        const std::int64_t entry = (first_position + row / micro_batch) * half + pair;
        float* first = qkv + row * width + head * head_dim + pair;
        const float cosine = cosines[entry];
        const float sine = inverse ? -sines[entry] : sines[entry];
        const float a = first[0];
        const float b = first[half];
        first[0] = a * cosine - b * sine;
        first[half] = b * cosine + a * sine;
    });
}

void gelu_forward(StreamHandle stream, std::int64_t elements, const float* x, float* y) {
    for_each(stream, elements, "gelu_forward", [=] __device__(std::int64_t i) {
        const float value = x[i];
        y[i] = value * logistic(value * (kLinear + kCubic * (value * value)));
    });
}

void gelu_backward(StreamHandle stream, std::int64_t elements, const float* dy, const float* x, float* dx) {
    for_each(stream, elements, "gelu_backward", [=] __device__(std::int64_t i) {
        const float value = x[i];
        const float square = value * value;
        const float inner = value * (kLinear + kCubic * square);
        dx[i] = dy[i] * (logistic(inner) + value * logistic_slope(inner) * (kLinear + kCubic3 * square));
    });
}

void swiglu_forward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* gate_up, float* y) {
    for_each(stream, rows * n, "swiglu_forward", [=] __device__(std::int64_t i) {
        const std::int64_t at = i / n * 2 * n + i % n;
        const float gate = gate_up[at];
        y[i] = gate * logistic(gate) * gate_up[at + n];
    });
}

void swiglu_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* dy, const float* gate_up,
                     float* dgate_up) {
    for_each(stream, rows * n, "swiglu_backward", [=] __device__(std::int64_t i) {
        const std::int64_t at = i / n * 2 * n + i % n;
        const float gate = gate_up[at];
        const float up = gate_up[at + n];
        const float share = logistic(gate);
        dgate_up[at] = dy[i] * up * (share + gate * logistic_slope(gate));
        dgate_up[at + n] = dy[i] * gate * share;
    });
}

void residual_add(StreamHandle stream, std::int64_t rows, std::int64_t width, const float* a, const float* b,
                  const float* bias, float* y) {
    for_each(stream, rows * width, "residual_add",
             [=] __device__(std::int64_t i) { y[i] = a[i] + b[i] + (bias == nullptr ? 0.0F : bias[i % width]); });
}

void set_bias(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* bias, float* y) {
    for_each(stream, rows * n, "set_bias", [=] __device__(std::int64_t i) { y[i] = bias[i % n]; });
}

void bias_backward(StreamHandle stream, std::int64_t rows, std::int64_t n, const float* dy, float* dbias) {
    launch(stream, blocks_for(n, kWarp), dim3(kWarp, kWarp), "bias_backward", bias_backward_kernel, rows, n, dy, dbias);
}

void copy_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstRows x, Rows y) {
    for_each(stream, rows * n, "copy_columns",
             [=] __device__(std::int64_t i) { y.data[i / n * y.width + i % n] = x.data[i / n * x.width + i % n]; });
}

void add_columns(StreamHandle stream, std::int64_t rows, std::int64_t n, ConstRows x, Rows y) {
    for_each(stream, rows * n, "add_columns",
             [=] __device__(std::int64_t i) { y.data[i / n * y.width + i % n] += x.data[i / n * x.width + i % n]; });
}

void add(StreamHandle stream, std::int64_t elements, const float* b, float* a) {
    for_each(stream, elements, "add", [=] __device__(std::int64_t i) { a[i] += b[i]; });
}

}  // namespace orrery::kernels::cuda
