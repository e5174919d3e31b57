// The CPU kernels of training, in fp32. They take plain pointers and sizes and know nothing of plans or ranks.
//
// All matrices are row-major, and contiguous unless they are given as Rows (kernels/views.h). `rows` counts tokens;
// token index = position * micro_batch + sample. "+=" marks outputs that accumulate. Pointers must not overlap unless a
// comment allows it. Every kernel is single-threaded and returns bitwise equal results for the same input on the same
// machine. Our sums use a fixed number of lanes, so they do not depend on the vector width either; only the results of
// the BLAS may differ between machines.
#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/dropout.h"
#include "kernels/experts.h"
#include "kernels/layout.h"
#include "kernels/optimizer.h"
#include "kernels/rotary.h"
#include "kernels/views.h"

namespace orrery::kernels {

/// Sets the number of threads of OpenBLAS; has no effect on other BLAS libraries. Call it before the first GEMM and
/// before starting threads. It also makes an OpenBLAS that does not know this processor use its AVX kernels, by setting
/// OPENBLAS_CORETYPE unless the user has set it.
void set_blas_threads(int threads);

// ---- linear layers: y = x weight^T + bias ---------------------------------------------------------------------------

struct LinearShape {
    std::int64_t rows = 0;
    std::int64_t n = 0;  // output width
    std::int64_t k = 0;  // input width
};
/// x[rows,k], weight[n,k], bias[n] or null -> y[rows,n].
void linear_forward(const LinearShape& shape, ConstRows x, const float* weight, const float* bias, Rows y);
/// dy[rows,n], weight[n,k] -> dx[rows,k].
void linear_backward_input(const LinearShape& shape, ConstRows dy, const float* weight, Rows dx);
/// dy[rows,n], x[rows,k] -> dweight[n,k] +=, dbias[n] += unless null.
void linear_backward_weight(const LinearShape& shape, ConstRows dy, ConstRows x, float* dweight, float* dbias);
/// dy[rows,n] -> dbias[n] += column sums, taken in double.
void bias_backward(std::int64_t rows, std::int64_t n, ConstRows dy, float* dbias);

// ---- normalisation --------------------------------------------------------------------------------------------------

struct NormShape {
    std::int64_t rows = 0;
    std::int64_t width = 0;
    std::int64_t stride = 0;  // width of the rows; their other columns are copied: y = x, dx = dy; 0: `width`
    [[nodiscard]] std::int64_t row_width() const { return stride > 0 ? stride : width; }
};
/// stats[rows,2] = (mean, 1 / sqrt(variance + epsilon)), y = (x - mean) / std * weight + bias.
void layer_norm_forward(const NormShape& shape, double epsilon, const float* x, const float* weight, const float* bias,
                        float* y, float* stats);
/// dx = residual + gradient through the norm; residual may be null; dx may be residual or dy. dweight +=, dbias +=.
void layer_norm_backward(const NormShape& shape, const float* dy, const float* x, const float* weight,
                         const float* stats, const float* residual, float* dx, float* dweight, float* dbias);
/// stats[rows] = 1 / sqrt(mean of squares + epsilon), y = x * stats * weight.
void rms_norm_forward(const NormShape& shape, double epsilon, const float* x, const float* weight, float* y,
                      float* stats);
/// Like layer_norm_backward(), without mean and bias.
void rms_norm_backward(const NormShape& shape, const float* dy, const float* x, const float* weight, const float* stats,
                       const float* residual, float* dx, float* dweight);

/// RMS norm of each head of q (with q_weight[d]) and of k (k_weight[d]); v is copied. stats[rows, heads + kv_heads].
void head_norm_forward(const HeadShape& shape, double epsilon, const float* qkv, const float* q_weight,
                       const float* k_weight, float* out, float* stats);
/// dout, qkv (before the norm) -> dqkv; dq_weight[d] +=, dk_weight[d] +=.
void head_norm_backward(const HeadShape& shape, const float* dout, const float* qkv, const float* q_weight,
                        const float* k_weight, const float* stats, float* dqkv, float* dq_weight, float* dk_weight);

// ---- activations ----------------------------------------------------------------------------------------------------

/// y = 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). y may be x.
void gelu_forward(std::int64_t elements, const float* x, float* y);
/// dx may be dy.
void gelu_backward(std::int64_t elements, const float* dy, const float* x, float* dx);
/// gate_up[rows,2n] (gate columns first) -> y[rows,n] = silu(gate) * up.
void swiglu_forward(std::int64_t rows, std::int64_t n, const float* gate_up, float* y);
/// dy[rows,n], gate_up[rows,2n] -> dgate_up[rows,2n]; dgate_up may be gate_up.
void swiglu_backward(std::int64_t rows, std::int64_t n, const float* dy, const float* gate_up, float* dgate_up);
/// y = max(x, 0); NaN stays NaN. y may be x.
void relu_forward(std::int64_t elements, const float* x, float* y);
/// dx = dy where x > 0, otherwise 0; dx may be dy.
void relu_backward(std::int64_t elements, const float* dy, const float* x, float* dx);

// SwiGLU in steps: the gate is one half of the columns of gate_up, so its rows are part of wider rows.

/// y[rows,n] = x / (1 + e^-x); y may be x.
void silu_forward(std::int64_t rows, std::int64_t n, ConstRows x, Rows y);
/// dx may be dy.
void silu_backward(std::int64_t rows, std::int64_t n, ConstRows dy, ConstRows x, Rows dx);
/// y[rows,n] = a * b; y may be a or b.
void multiply_forward(std::int64_t rows, std::int64_t n, ConstRows a, ConstRows b, Rows y);
/// da = dy * b, db = dy * a; each may be any of dy, a and b.
void multiply_backward(std::int64_t rows, std::int64_t n, ConstRows dy, ConstRows a, ConstRows b, Rows da, Rows db);

/// y[rows,n] = x * logistic(logits[row]): a gate with one value per row. y may be x.
void sigmoid_scale_forward(std::int64_t rows, std::int64_t n, const float* x, const float* logits, float* y);
/// dy[rows,n], x[rows,n], logits[rows] -> dx[rows,n], dlogits[rows]; dx may be dy.
void sigmoid_scale_backward(std::int64_t rows, std::int64_t n, const float* dy, const float* x, const float* logits,
                            float* dx, float* dlogits);
/// y = e^x to 2 units in the last place; 0 below -86.9, infinity above 88.7228.
void exponential(std::int64_t elements, const float* x, float* y);

// ---- embeddings and positions ---------------------------------------------------------------------------------------

struct EmbeddingShape {
    std::int64_t rows = 0;
    std::int64_t width = 0;
    std::int64_t vocab_start = 0;  // first token of this shard
    std::int64_t vocab_rows = 0;   // tokens in this shard
};
/// y[r] = weight[token - vocab_start]; rows whose token lies outside the shard are 0.
void embedding_forward(const EmbeddingShape& shape, const std::int32_t* tokens, const float* weight, float* y);
/// dweight[token - vocab_start] += dy[r], in row order.
void embedding_backward(const EmbeddingShape& shape, const float* dy, const std::int32_t* tokens, float* dweight);

struct PositionShape {
    std::int64_t rows = 0;
    std::int64_t width = 0;
    std::int64_t micro_batch = 0;
    std::int64_t first_position = 0;  // of row 0; more than 0 if the rows are a shard of the sequence
};
/// y[r] = x[r] + weight[first_position + r / micro_batch]; y may be x.
void position_forward(const PositionShape& shape, const float* x, const float* weight, float* y);
/// dweight[first_position + r / micro_batch] += dy[r].
void position_backward(const PositionShape& shape, const float* dy, float* dweight);

// ---- cross entropy over a sharded vocabulary ------------------------------------------------------------------------

struct VocabShard {
    std::int64_t rows = 0;
    std::int64_t n = 0;      // stored columns
    std::int64_t valid = 0;  // columns that are not padding
    std::int64_t start = 0;  // token of column 0
};
/// row_max[r] over the valid columns; -infinity if there are none.
void cross_entropy_max(const VocabShard& shape, const float* logits, float* row_max);
/// sums[r] = sum of exp(logit - row_max); sums[rows + r] = target logit - row_max, 0 if the target is in another shard.
/// `exponentials`[rows, n] or null = exp(logit - row_max), 0 in padding columns; may be logits.
void cross_entropy_sum(const VocabShard& shape, const float* logits, const float* row_max, const std::int32_t* targets,
                       float* sums, float* exponentials = nullptr);
/// lse[r] = row_max + log(sum); *loss += sum over rows of log(sum) - (target logit - row_max), in double.
void cross_entropy_loss(std::int64_t rows, const float* row_max, const float* sums, float* lse, double* loss);
/// The same from row_max[parts, rows] and sums[parts, 2, rows], where each part's sums are relative to its own maximum.
/// Part i has the tokens from i * n on.
void cross_entropy_loss_of_parts(std::int64_t rows, std::int64_t parts, std::int64_t n, const float* row_max,
                                 const float* sums, const std::int32_t* targets, float* lse, double* loss);
/// logits <- (exp(logit - lse) - [column is the target]) * scale; padding columns become 0.
void cross_entropy_backward(const VocabShard& shape, float scale, const float* lse, const std::int32_t* targets,
                            float* logits);
/// The same, given the exponentials of cross_entropy_sum() instead of the logits.
void cross_entropy_backward_of_exponentials(const VocabShard& shape, float scale, const float* row_max,
                                            const float* lse, const std::int32_t* targets, float* exponentials);
/// Corrects an input gradient that was computed as dx[rows, width] = exponentials * weight, to the value that it has
/// with the gradient of the logits (cross_entropy_backward) instead of the exponentials. weight[n, width] is the
/// shard's.
void cross_entropy_correct(const VocabShard& shape, std::int64_t width, float scale, const float* row_max,
                           const float* lse, const std::int32_t* targets, const float* weight, float* dx);

// ---- flat vectors ---------------------------------------------------------------------------------------------------

/// y = a + b + bias (bias[width] or null); y may be a or b.
void residual_add(std::int64_t rows, std::int64_t width, const float* a, const float* b, const float* bias, float* y);
/// y = x + bias[n]; y may be x.
void bias_add(std::int64_t rows, std::int64_t n, const float* x, const float* bias, float* y);
void fill(std::int64_t elements, float value, float* y);
void copy(std::int64_t elements, const float* x, float* y);
/// a += b.
void add(std::int64_t elements, const float* b, float* a);
void add(std::int64_t elements, const double* b, double* a);
/// a = max(a, b).
void maximum(std::int64_t elements, const float* b, float* a);
void maximum(std::int64_t elements, const double* b, double* a);
/// bf16 is stored as its bits (core/float16.h).
void cast_to_bf16(std::int64_t elements, const float* x, std::uint16_t* y);
void cast_from_bf16(std::int64_t elements, const std::uint16_t* x, float* y);

}  // namespace orrery::kernels
