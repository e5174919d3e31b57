// Operators: the arithmetic a layer consists of, with shapes, the slots they read and write, FLOPs and bytes. The cost
// model reads the shapes; the executor runs exactly these operators through kernels/.
//
// All tensors are row-major. `rows` counts tokens held by this rank for this operator: token index = position *
// micro_batch + sample (sequence-major), so that a sequence shard is one contiguous block of rows.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string_view>

namespace orrery::models {

using SlotIndex = std::int16_t;
inline constexpr SlotIndex kNoSlot = -1;

/// What each kind reads (in[0], in[1], …) and writes (out[0], …), with local shapes. "+=" accumulates. T = rows.
enum class OpKind : std::uint8_t {
    load_tokens,          // -> tokens[T] int32: this rank's input tokens of the micro-batch
    load_targets,         // -> targets[T] int32: the next tokens
    embedding_forward,    // tokens[T], weight[n,k] -> y[T,k]; rows of tokens outside this rank's vocabulary range are 0
    embedding_backward,   // dy[T,k], tokens[T] -> dweight[n,k] +=
    position_forward,     // x[T,k], weight[n,k] -> y[T,k] = x + weight[position]; y may be x
    position_backward,    // dy[T,k] -> dweight[n,k] +=
    layer_norm_forward,   // x[T,k], weight[k], bias[k] -> y[T,k], stats[T,2] (mean, 1/std)
    layer_norm_backward,  // dy[T,k], x[T,k], weight[k], stats[T,2], residual[T,k]|none -> dx[T,k] = residual + grad,
                          //   dweight[k] +=, dbias[k] +=; dx may be residual
    rms_norm_forward,     // x[T,k], weight[k] -> y[T,k], stats[T] (1/rms)
    rms_norm_backward,    // dy, x, weight, stats, residual|none -> dx, dweight +=
    linear_forward,       // x[T,k], weight[n,k], bias[n]|none -> y[T,n] = x weight^T + bias
    linear_backward_input,   // dy[T,n], weight[n,k] -> dx[T,k]
    linear_backward_weight,  // dy[T,n], x[T,k] -> dweight[n,k] +=, dbias[n]|none +=
    head_norm_forward,       // qkv[T,(a+2g)d], q_weight[d], k_weight[d] -> qkv' (q, k normalised per head; v copied),
                             //   stats[T,a+g]
    head_norm_backward,      // dqkv', qkv, q_weight, k_weight, stats -> dqkv, dq_weight +=, dk_weight +=
    rope_forward,            // qkv -> qkv in place: q and k rotated by their position (halves convention: (i, i+d/2))
    rope_backward,           // dqkv -> dqkv in place: the inverse rotation
    attention_forward,       // qkv[T,(a+2g)d] -> o[T,a*d], lse[a,T]; causal; scratch slot holds score tiles.
                             //   unfused implementations write three more: probabilities, dropout mask, dropped
    attention_backward,  // do[T,a*d], qkv, o, lse -> dqkv; scratch as above (unfused reads the three instead of lse)
    gelu_forward,        // x[T,n] -> y[T,n] (tanh form)
    gelu_backward,       // dy, x -> dx; dx may be dy
    swiglu_forward,      // gate_up[T,2n] -> y[T,n] = silu(gate) * up
    swiglu_backward,     // dy[T,n], gate_up[T,2n] -> dgate_up[T,2n]
    residual_add,        // a[T,k], b[T,k], bias[k]|none -> y[T,k] = a + b + bias; a dropout mask may follow as out[1]
    residual_add_backward,   // only with dropout: dy, mask -> db
    bias_backward,           // dy[T,n] -> dbias[n] +=: the bias of a row-parallel product, added after its reduction
    cross_entropy_max,       // logits[T,n] -> row_max[T] over this rank's real vocabulary
    cross_entropy_sum,       // logits, row_max[T], targets[T] -> sums[2,T]: sum of exp(logit - max); target logit - max
    cross_entropy_loss,      // row_max[T], sums[2,T] -> lse[T], loss[1] fp64 += sum of token losses
    cross_entropy_backward,  // logits[T,n], lse[T], targets[T] -> dlogits, in place: (softmax - onehot) * scale
    adamw,  // gradient -> parameters, m, v updated; gradient set to zero (out[3]); out[4]: fp32 master copy or none.
            //   All parameters of the rank, flat: `elements`
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::adamw) + 1;
[[nodiscard]] std::string_view name_of(OpKind kind);

inline constexpr int kMaxOperands = 6;

/// Slot indices by position; positions not given are kNoSlot.
class Operands {
  public:
    constexpr Operands() { slots_.fill(kNoSlot); }
    constexpr Operands(std::initializer_list<SlotIndex> slots) : Operands() {
        std::size_t position = 0;
        for (SlotIndex slot : slots) slots_.at(position++) = slot;
    }
    [[nodiscard]] constexpr SlotIndex operator[](std::size_t position) const { return slots_[position]; }
    [[nodiscard]] constexpr SlotIndex& operator[](std::size_t position) { return slots_[position]; }
    [[nodiscard]] static constexpr std::size_t size() { return kMaxOperands; }
    [[nodiscard]] constexpr auto begin() const { return slots_.begin(); }
    [[nodiscard]] constexpr auto end() const { return slots_.end(); }
    constexpr bool operator==(const Operands&) const = default;

  private:
    std::array<SlotIndex, kMaxOperands> slots_{};
};

struct Operator {
    OpKind kind{};
    bool weight_gradient = false;   // part of W when a schedule splits the backward pass into I and W
    bool sequence_sharded = false;  // rows are this tensor-parallel rank's contiguous share of the sequence
    std::int64_t rows = 0;          // T
    std::int64_t n = 0;         // output width (this rank's share); vocabulary rows for embeddings and cross-entropy
    std::int64_t k = 0;         // input width (this rank's share)
    std::int64_t heads = 0;     // a, this rank's query heads
    std::int64_t kv_heads = 0;  // g, this rank's key/value heads
    std::int64_t head_dim = 0;  // d
    std::int64_t sequence = 0;  // positions attended over; rows = sequence * micro_batch in tensor regions
    std::int64_t micro_batch = 0;
    std::int64_t elements = 0;  // for flat operators
    Operands in{};
    Operands out{};
    SlotIndex scratch = kNoSlot;
    double flops = 0;       // arithmetic done on matrix units or, for element-wise kinds, in vector code
    double bytes_read = 0;  // memory traffic when nothing is cached
    double bytes_written = 0;
    [[nodiscard]] bool is_matmul() const {
        return kind == OpKind::linear_forward || kind == OpKind::linear_backward_input ||
               kind == OpKind::linear_backward_weight;
    }
    [[nodiscard]] bool is_attention() const {
        return kind == OpKind::attention_forward || kind == OpKind::attention_backward;
    }
};

}  // namespace orrery::models
