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

#include "core/dtype.h"
#include "core/index.h"
#include "models/training_choices.h"

namespace orrery::models {

using SlotIndex = Index<struct SlotTag, std::int16_t>;
inline constexpr SlotIndex kNoSlot = -1;

/// What each kind reads (in[0], in[1], …) and writes (out[0], …), with local shapes. "+=" accumulates. T = rows.
enum class OpKind : std::uint8_t {
    load_tokens,         // -> tokens[T] int32: this rank's input tokens of the micro-batch; with S sources those of the
                         //   S data-parallel ranks from this one on, one after the other
    load_targets,        // -> targets[T] int32: the next tokens, likewise
    embedding_forward,   // tokens[T], weight[n,k] -> y[T,k]; rows of tokens outside this rank's vocabulary range are 0
    embedding_backward,  // dy[T,k], tokens[T] -> dweight[n,k] +=
    position_forward,    // x[T,k], weight[n,k] -> y[T,k] = x + weight[position]; y may be x
    position_backward,   // dy[T,k] -> dweight[n,k] +=
    // Of rows that are wider than k the norms take the first k columns; the others pass by, in both directions.
    layer_norm_forward,   // x[T,k], weight[k], bias[k] -> y[T,k], stats[T,2] (mean, 1/std)
    layer_norm_backward,  // dy[T,k], x[T,k], weight[k], stats[T,2], residual[T,k]|none -> dx[T,k] = residual + grad,
                          //   dweight[k] +=, dbias[k] +=; dx may be residual or dy
    rms_norm_forward,     // x[T,k], weight[k] -> y[T,k], stats[T] (1/rms)
    rms_norm_backward,    // dy, x, weight, stats, residual|none -> dx, dweight +=
    // Products of one input write columns of the same rows: y from to_column on, and dy is read from from_column on.
    linear_forward,          // x[T,k], weight[n,k], bias[n]|none -> y[T,n] = x weight^T + bias
    linear_backward_input,   // dy[T,n], weight[n,k] -> dx[T,k]
    linear_backward_weight,  // dy[T,n], x[T,k] -> dweight[n,k] +=, dbias[n]|none +=
    head_norm_forward,       // qkv[T,(a+2g)d], q_weight[d], k_weight[d] -> qkv' (q, k normalised per head; v copied),
                             //   stats[T,a+g]
    head_norm_backward,      // dqkv', qkv, q_weight, k_weight, stats -> dqkv, dq_weight +=, dk_weight +=
    rope_forward,            // qkv -> qkv in place: q and k rotated by their position (halves convention: (i, i+d/2))
    rope_backward,           // dqkv -> dqkv in place: the inverse rotation
    // Latent attention: q[T,a(nope|rope)], kv[T,a(nope|value)] and latent[T,rank|rope], whose last columns are the one
    // key that all heads share, -> qkv; and dqkv -> dq, dkv, dshared[T,rope].
    attention_forward,   // qkv[T,(a+2g)d], kv|none -> o[T,a*d], lse[a,T]; causal; scratch slot holds score tiles.
                         //   unfused implementations write three more: probabilities, dropout mask, dropped
    attention_backward,  // do[T,a*d], qkv, o, lse, kv|none -> dqkv or, where that is narrower, dq; dkv|none; scratch as
                         //   above (unfused reads the three instead of lse)
    // Unfused attention, over scores[b,a,s,s']: one product, then softmax, dropout and the second product.
    scores_forward,    // qkv -> scores
    scores_backward,   // dscores, qkv -> dqkv (its q and k parts)
    softmax_forward,   // scores -> probabilities, may be in place: scale, mask, softmax
    softmax_backward,  // dprobabilities, probabilities -> dscores, may be in place
    dropout_forward,   // x -> y, mask
    dropout_backward,  // dy, mask -> dx
    context_forward,   // probabilities, qkv -> o[T,a*d]
    context_backward,  // do, probabilities, qkv -> dprobabilities, dqkv (its v part)
    attention_merge,   // o, lse of one part of the keys; running o, lse -> running o, lse (ring context parallelism)
    // Context parallelism: columns of wider rows, and the two sides of an all-to-all between shares of the sequence and
    // shares of the heads (Ulysses). c ranks; rank r holds the chunks r and 2c-1-r of 2c of the sequence.
    copy_columns,        // x[T, from_column .. + n] -> y[T, to_column .. + n]
    add_columns,         // the same, added: y +=
    repeat_heads,        // qkv[T,(a+2g)d] -> [T,(a+2gC)d]: each key/value head C times, next to each other; q as it is
    sum_repeated_heads,  // and back: the sum over the C of each
    cut_heads,           // x[T,w] -> y[c][T,w/c]: the heads of rank j (of q, k and v alike) in block j
    join_heads,          // and back
    join_sequence,       // x[c][T/c,w], the rows of each rank -> y[T,w] in the order of positions
    cut_sequence,        // and back
    relu_forward,        // x[T,n] -> y[T,n]
    relu_backward,       // dy, x -> dx; dx may be dy
    silu_forward,        // x[T,n] -> y[T,n]: of the gate, where gating is not fused
    silu_backward,       // dy, x -> dx; dx may be dy
    bias_add,            // x[T,n], bias[n] -> y[T,n], may be in place: where no kernel takes the bias along
    multiply,            // a[T,n], b[T,n] -> y[T,n]: unfused gating
    multiply_backward,   // dy, a, b -> da, db
    accumulate,          // x -> y += x: where a product cannot accumulate
    cast,                // x -> y of another type (fp8: with its scale; a second output is the transpose)
    // Experts. A token has K choices of E experts, each a row of its own. counts[S,G] int64: rows of each of the G
    // local experts that came from each of S sources; R is their sum, of which `rows` is only what is expected.
    router_forward,    // logits[T,E] -> probabilities[T,K] fp32, experts[T,K] int32: softmax or sigmoid, top-k
    router_backward,   // dprobabilities[T,K], probabilities, experts, logits|none -> dlogits[T,E]
    permute_forward,   // x[T,k], experts[T,K] -> y[T K,k]: a row for each (token, expert), in expert order; where each
                       //   choice's row is [T,K] int32, counts[E] int64
    permute_backward,  // dy[T K,k], where -> dx[T,k]: the sum over a token's experts
    combine_forward,   // y[T K,k], probabilities[T,K], where -> out[T,k]: weighted sum over a token's experts
    combine_backward,  // dout[T,k], y[T K,k], probabilities, where -> dy[T K,k], dprobabilities[T,K]
    group_by_expert,   // x[R,k] by source and then by expert, counts -> y[R,k] by expert and then by source
    group_by_source,   // and back
    expert_linear_forward,          // x[R,k], weight[G,n,k], counts -> y[R,n]; rows of expert g by weight[g]
    expert_linear_backward_input,   // dy[R,n], weight, counts -> dx[R,k]
    expert_linear_backward_weight,  // dy[R,n], x[R,k], counts -> dweight[G,n,k] +=
    gate_rows_forward,              // x[T,k], gate[T,1] -> y[T,k] = x * sigmoid(gate)
    gate_rows_backward,             // dy, x, gate -> dx, dgate[T,1]
    // Activations of experts have one operand more, the counts.
    gelu_forward,     // x[T,n] -> y[T,n] (tanh form)
    gelu_backward,    // dy, x -> dx; dx may be dy
    swiglu_forward,   // gate_up[T,2n] -> y[T,n] = silu(gate) * up
    swiglu_backward,  // dy[T,n], gate_up[T,2n] -> dgate_up[T,2n]
    residual_add,  // a[T,k], b[T,k], two biases[k]|none -> y[T,k] = a + b + biases; a dropout mask may follow as out[1]
    residual_add_backward,  // only with dropout: dy, mask -> db
    bias_backward,          // dy[T,n] -> dbias[n] +=: the bias of a row-parallel product, added after its reduction
    cross_entropy_max,      // logits[T,n] -> row_max[T] over this rank's real vocabulary
    cross_entropy_sum,      // logits, row_max[T], targets[T] -> sums[2,T]: sum of exp(logit - max); target logit - max;
                            //   exponentials[T,n]|none = exp(logit - max), may be in place
    cross_entropy_loss,     // row_max[T], sums[2,T] -> lse[T], loss[1] fp64 += sum of token losses. Of S sources, each
                            //   with its own maximum over its n tokens: row_max[S,T], sums[S,2,T], targets[T]
    cross_entropy_backward,  // logits[T,n], lse[T], targets[T], row_max[T]|none -> dlogits, in place:
                             //   (softmax - onehot) * scale
                             //   with row_max, logits are the exponentials above
    cross_entropy_correct,   // dx[T,k], row_max[T], lse[T], targets[T], weight[n,k] -> dx, in place:
                             //   what the exponentials gave becomes what dlogits give
                             //   of this rank's part of the vocabulary
    adamw,  // gradient, norm[2]|none (clips) -> parameters, m, v updated; gradient set to zero (out[3]); out[4]: fp32
            // master copy or none.
            //   All parameters of the rank, flat: `elements`
    sgd_momentum,    // gradient, norm[2]|none -> parameters, momentum updated; gradient set to zero; out as adamw's
                     // without v
    gradient_norm,   // gradient -> norm[2] fp64: sum of squares; 1 where that is not finite
    gradient_scale,  // norm[2], gradients -> gradients times what the norm makes of it: clipping, unscaling
    clear,           // -> `elements` zeros
    copy_to_host,    // `bytes_read` from the device's memory to the host's; on the copy streams only
    copy_from_host,
    host_wait,  // the host waits until everything that the instruction comes after has completed
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::host_wait) + 1;
[[nodiscard]] std::string_view name_of(OpKind kind);

inline constexpr int kMaxOperands = 6;

/// Whose keys attention meets under context parallelism; they come in a slot of their own, [T', k | v], unless they are
/// this rank's.
enum class KeyPart : std::uint8_t {
    own,
    ring,      // of the rank ring_step places before
    gathered,  // of all ranks, in their order
};

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
    bool weight_gradient = false;       // part of W when a schedule splits the backward pass into I and W
    bool overwrites_gradients = false;  // where the kind says that a gradient is added to ("+="), it is set instead
    bool at_end = false;                // of the embedding or the head
    bool again = false;                 // forward work that the backward pass does a second time (recomputation)
    bool offloaded =
        false;  // an update in host memory, or a copy of what it needs: there all that the rank updates lies
                //   together, in the order of the states
    BlockPart part = BlockPart::none;
    DType math = DType::fp32;       // of a layer's operators: products and attention by its peak rate (fp32, …, fp8)
    bool sequence_sharded = false;  // rows are this tensor-parallel rank's contiguous share of the sequence
    std::int64_t rows = 0;          // T
    std::int64_t pieces = 1;        // of a product whose rows come in pieces, which run side by side: so many in all
    std::int64_t n = 0;           // output width (this rank's share); vocabulary rows for embeddings and cross-entropy
    std::int64_t k = 0;           // input width (this rank's share)
    std::int64_t heads = 0;       // a, this rank's query heads
    std::int64_t kv_heads = 0;    // g, this rank's key/value heads
    std::int64_t head_dim = 0;    // d
    std::int64_t value_dim = 0;   // of v and o, where it differs from head_dim (latent attention)
    std::int64_t sequence = 0;    // positions attended over (keys)
    std::int64_t queries = 0;     // attention: positions that attend; equal to sequence without context parallelism
    std::int64_t reach = 0;       // fused attention: keys of a square whose queries meet as many; fewer than
                                  // `sequence` where a window or documents end
    KeyPart keys = KeyPart::own;  // attention: whose keys and values it meets
    std::int64_t ring_step = 0;   // KeyPart::ring
    std::int64_t copies = 0;      // C, of each key/value head
    std::int64_t from_column = 0, to_column = 0;
    std::int64_t groups = 0;   // G, local experts
    std::int64_t sources = 0;  // S, ranks that rows came from, or go to; 0: this one
    std::int64_t micro_batch = 0;
    std::int64_t elements = 0;  // for flat operators
    Operands in{};
    Operands out{};
    SlotIndex scratch = kNoSlot;
    double flops = 0;       // arithmetic done on matrix units or, for element-wise kinds, in vector code
    double bytes_read = 0;  // memory traffic when nothing is cached
    double bytes_written = 0;
    bool operator==(const Operator&) const = default;
    // By the row of its kind (operator_table.h).
    [[nodiscard]] bool is_matmul() const;
    [[nodiscard]] bool is_expert_matmul() const;
    /// Batched products over stored scores.
    [[nodiscard]] bool is_attention_product() const;
    [[nodiscard]] bool is_attention() const;  // fused
    /// Of the whole product, where this is a piece of one.
    [[nodiscard]] std::int64_t whole_rows() const { return rows * pieces; }
    /// The optimizer's update.
    [[nodiscard]] bool is_update() const { return kind == OpKind::adamw || kind == OpKind::sgd_momentum; }
    /// On all parameters, gradients and states that a rank updates: its operands name whole buffers.
    [[nodiscard]] bool works_on_updates() const {
        return is_update() || kind == OpKind::gradient_norm || kind == OpKind::gradient_scale || offloaded;
    }
    [[nodiscard]] bool is_copy() const { return kind == OpKind::copy_to_host || kind == OpKind::copy_from_host; }
    /// Takes operands of any type as they are, where kernels are of one type.
    [[nodiscard]] bool takes_any_type() const {
        return works_on_updates() || is_copy() || kind == OpKind::cast || kind == OpKind::clear;
    }
};

}  // namespace orrery::models
