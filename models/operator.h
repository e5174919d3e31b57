// Operators: the arithmetic of a layer, with shapes, the slots that are read and written, FLOPs and bytes. The cost
// model uses the shapes; the executor runs exactly these operators through kernels/.
//
// All tensors are row-major. `rows` counts the tokens of this rank in this operator. Token index = position *
// micro_batch + sample (sequence-major), so that a sequence shard is a contiguous block of rows.
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
    load_tokens,         // -> tokens[T] int32: this rank's input tokens of the micro-batch; with S sources, the tokens
                         //   of S consecutive data-parallel ranks starting with this one, concatenated
    load_targets,        // -> targets[T] int32: the next tokens, with the same layout
    embedding_forward,   // tokens[T], weight[n,k] -> y[T,k]; 0 for tokens outside this rank's vocabulary range
    embedding_backward,  // dy[T,k], tokens[T] -> dweight[n,k] +=
    position_forward,    // x[T,k], weight[n,k] -> y[T,k] = x + weight[position]; y may be x
    position_backward,   // dy[T,k] -> dweight[n,k] +=
    // If rows are wider than k, norms apply to the first k columns and pass the others through, in both directions.
    // A forward norm may add first: with in[3] = added[T,k] and in[4] = a bias[k]|none of it, it writes out[2] =
    // sum[T,k] = x + added + bias, and y is the norm of the sum as it is stored.
    layer_norm_forward,   // x[T,k], weight[k], bias[k] -> y[T,k], stats[T,2] (mean, 1/std)
    layer_norm_backward,  // dy[T,k], x[T,k], weight[k], stats[T,2], residual[T,k]|none -> dx[T,k] = residual + grad,
                          //   dweight[k] +=, dbias[k] +=; dx may be residual or dy
    rms_norm_forward,     // x[T,k], weight[k] -> y[T,k], stats[T] (1/rms)
    rms_norm_backward,    // dy, x, weight, stats, residual|none -> dx, dweight +=
    // Products of one input may share an output: y is written from to_column on, and dy is read from from_column on.
    linear_forward,          // x[T,k], weight[n,k], bias[n]|none -> y[T,n] = x weight^T + bias, gelu(y)[T,n]|none
    linear_backward_input,   // dy[T,n], weight[n,k] -> dx[T,k]
    linear_backward_weight,  // dy[T,n], x[T,k] -> dweight[n,k] +=, dbias[n]|none +=
    head_norm_forward,       // qkv[T,(a+2g)d], q_weight[d], k_weight[d] -> qkv' (q, k normalised per head; v copied),
                             //   stats[T,a+g]
    head_norm_backward,      // dqkv', qkv, q_weight, k_weight, stats -> dqkv, dq_weight +=, dk_weight +=
    rope_forward,            // qkv -> qkv in place: q and k rotated by their position (halves convention: (i, i+d/2))
    rope_backward,           // dqkv -> dqkv in place: the inverse rotation
    // Latent attention: rope_forward is q[T,a(nope|rope)], kv[T,a(nope|value)], latent[T,rank|rope] -> qkv, where the
    // last columns of latent are the key part that all heads share; rope_backward is dqkv -> dq, dkv, dshared[T,rope].
    attention_forward,   // fused: qkv[T,(a+2g)d], kv|none -> o[T,a*d], lse[a,T]; the scratch slot holds score tiles
    attention_backward,  // fused: do[T,a*d], qkv, o, lse, kv|none -> dqkv (dq if the slot is narrower), dkv|none;
                         //   scratch as above
    // Unfused attention, over scores[b,a,s,s']: one product, then softmax, dropout and the second product.
    scores_forward,    // qkv -> scores
    scores_backward,   // dscores, qkv -> dqkv (its q and k parts)
    softmax_forward,   // scores -> probabilities: scale, mask, softmax; may be in place
    softmax_backward,  // dprobabilities, probabilities -> dscores, may be in place
    dropout_forward,   // x -> y, mask
    dropout_backward,  // dy, mask -> dx
    context_forward,   // probabilities, qkv -> o[T,a*d]
    context_backward,  // do, probabilities, qkv -> dprobabilities, dqkv (its v part)
    attention_merge,   // o, lse of one part of the keys; running o, lse -> running o, lse (ring context parallelism)
    // Context parallelism: moves of columns, and the layout changes around an all-to-all between shards of the sequence
    // and shards of the heads (Ulysses). c ranks; rank r holds chunks r and 2c-1-r of the sequence's 2c chunks.
    copy_columns,        // x[T, from_column .. + n] -> y[T, to_column .. + n]
    add_columns,         // x[T, from_column .. + n] -> y[T, to_column .. + n] += x
    repeat_heads,        // qkv[T,(a+2g)d] -> [T,(a+2gC)d]: each key/value head C times in a row; q unchanged
    sum_repeated_heads,  // the gradient of repeat_heads: the sum over the C copies
    cut_heads,           // x[T,w] -> y[c][T,w/c]: block j has the heads of rank j (of q, k and v)
    join_heads,          // inverse of cut_heads
    join_sequence,       // x[c][T/c,w], the rows of each rank -> y[T,w] in the order of positions
    cut_sequence,        // inverse of join_sequence
    relu_forward,        // x[T,n] -> y[T,n]
    relu_backward,       // dy, x -> dx; dx may be dy
    silu_forward,        // x[T,n] -> y[T,n]: the gate, if gating is not fused
    silu_backward,       // dy, x -> dx; dx may be dy
    bias_add,            // x[T,n], bias[n] -> y[T,n], may be in place: a bias that is not fused into another kernel
    multiply,            // a[T,n], b[T,n] -> y[T,n]: unfused gating
    multiply_backward,   // dy, a, b -> da, db
    accumulate,          // x -> y += x: for products that cannot accumulate
    cast,                // x -> y of another type (fp8: with its scale; a second output is the transpose)
    // Experts. A token chooses K of E experts; each choice is a row. counts[S,G] int64: rows of each of the G local
    // experts from each of S sources; R is their sum, whose expected value is `rows`.
    router_forward,    // logits[T,E] -> probabilities[T,K] fp32, experts[T,K] int32: softmax or sigmoid, top-k
    router_backward,   // dprobabilities[T,K], probabilities, experts, logits|none -> dlogits[T,E]
    permute_forward,   // x[T,k], experts[T,K] -> y[T K,k]: a row for each (token, expert) in expert order; where[T,K]
                       //   int32: the row of each choice; counts[E] int64
    permute_backward,  // dy[T K,k], where -> dx[T,k]: the sum over a token's experts
    combine_forward,   // y[T K,k], probabilities[T,K], where -> out[T,k]: weighted sum over a token's experts
    combine_backward,  // dout[T,k], y[T K,k], probabilities, where -> dy[T K,k], dprobabilities[T,K]
    group_by_expert,   // x[R,k] by source and then by expert, counts -> y[R,k] by expert and then by source
    group_by_source,   // inverse of group_by_expert
    expert_linear_forward,          // x[R,k], weight[G,n,k], counts -> y[R,n]; rows of expert g use weight[g]
    expert_linear_backward_input,   // dy[R,n], weight, counts -> dx[R,k]
    expert_linear_backward_weight,  // dy[R,n], x[R,k], counts -> dweight[G,n,k] +=
    gate_rows_forward,              // x[T,k], gate[T,1] -> y[T,k] = x * sigmoid(gate)
    gate_rows_backward,             // dy, x, gate -> dx, dgate[T,1]
    // Activations of experts have one more operand, the counts.
    gelu_forward,     // x[T,n] -> y[T,n] (tanh form)
    gelu_backward,    // dy, x -> dx; dx may be dy
    swiglu_forward,   // gate_up[T,2n] -> y[T,n] = silu(gate) * up
    swiglu_backward,  // dy[T,n], gate_up[T,2n] -> dgate_up[T,2n]
    residual_add,  // a[T,k], b[T,k], two biases[k]|none -> y[T,k] = a + b + biases; a dropout mask may follow as out[1]
    residual_add_backward,  // only with dropout: dy, mask -> db
    bias_backward,          // dy[T,n] -> dbias[n] +=: the bias of a row-parallel product, added after its reduction
    cross_entropy_max,      // logits[T,n] -> row_max[T] over this rank's vocabulary without padding
    cross_entropy_sum,      // logits, row_max[T], targets[T] -> sums[2,T]: sum of exp(logit - max); target logit - max;
                            //   exponentials[T,n]|none = exp(logit - max), may be in place. Without row_max, it is
                            //   computed in the same pass and written to out[2]
    cross_entropy_loss,  // row_max[T], sums[2,T] -> lse[T], loss[1] fp64 += sum of token losses. With S sources, each
                         //   with the maximum of its own n columns: row_max[S,T], sums[S,2,T], targets[T]
    cross_entropy_backward,  // logits[T,n], lse[T], targets[T], row_max[T]|none -> dlogits, in place:
                             //   (softmax - onehot) * scale; with row_max, `logits` are the exponentials above
    cross_entropy_correct,   // dx[T,k], row_max[T], lse[T], targets[T], weight[n,k] -> dx, in place: the product of the
                             //   exponentials becomes that of dlogits, for this rank's part of the vocabulary
    adamw,          // gradient, norm[2]|none (for clipping) -> parameters, m, v updated; gradient set to zero (out[3]);
                    //   out[4]: fp32 master copy or none. All parameters of the rank, flat: `elements`
    sgd_momentum,   // gradient, norm[2]|none -> parameters, momentum updated; gradient set to zero; out as for adamw
                    //   without v
    gradient_norm,  // gradient -> norm[2] fp64: sum of squares; 1 if that is not finite
    gradient_scale,  // norm[2], gradients -> gradients times the factor from the norm: clipping, unscaling
    clear,           // -> `elements` zeros
    copy_to_host,    // copies `bytes_read` from device memory to host memory; on the copy streams only
    copy_from_host,
    host_wait,  // the host waits until everything the instruction depends on has completed
};
inline constexpr int kOpKindCount = static_cast<int>(OpKind::host_wait) + 1;
[[nodiscard]] std::string_view name_of(OpKind kind);

inline constexpr int kMaxOperands = 6;

/// The keys that attention sees under context parallelism. Keys of other ranks are in a slot of their own, [T', k | v].
enum class KeyPart : std::uint8_t {
    own,
    ring,      // those of the rank `ring_step` places before
    gathered,  // those of all ranks, in rank order
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
    bool overwrites_gradients = false;  // gradients that the kind accumulates ("+=") are overwritten instead
    bool at_end = false;                // belongs to the embedding or the head
    bool again = false;                 // recomputation: forward work that is repeated in the backward pass
    bool offloaded =
        false;  // an update in host memory, or a copy for one; in host memory everything that the rank updates is
                //   contiguous, in the order of the states
    BlockPart part = BlockPart::none;
    DType math = DType::fp32;       // compute type of products and attention, which selects the peak rate
    bool sequence_sharded = false;  // rows are this tensor-parallel rank's contiguous share of the sequence
    std::int64_t rows = 0;          // T
    std::int64_t pieces = 1;        // number of pieces of a product whose rows arrive in pieces, which run side by side
    std::int64_t n = 0;           // output width (this rank's share); vocabulary rows for embeddings and cross-entropy
    std::int64_t k = 0;           // input width (this rank's share)
    std::int64_t heads = 0;       // a, this rank's query heads
    std::int64_t kv_heads = 0;    // g, this rank's key/value heads
    std::int64_t head_dim = 0;    // d
    std::int64_t value_dim = 0;   // head dimension of v and o if it differs from head_dim (latent attention)
    std::int64_t sequence = 0;    // number of key positions
    std::int64_t queries = 0;     // attention: number of query positions; equals sequence without context parallelism
    std::int64_t reach = 0;       // fused attention: side of the square in which a query attends to equally many keys;
                                  // less than `sequence` with a window or documents
    KeyPart keys = KeyPart::own;  // attention: which keys and values it sees
    std::int64_t ring_step = 0;   // KeyPart::ring
    std::int64_t copies = 0;      // C, copies of each key/value head
    std::int64_t from_column = 0, to_column = 0;
    std::int64_t groups = 0;   // G, local experts
    std::int64_t sources = 0;  // S, ranks that rows come from or go to; 0: only this rank
    std::int64_t micro_batch = 0;
    std::int64_t elements = 0;  // for flat operators
    Operands in{};
    Operands out{};
    SlotIndex scratch = kNoSlot;
    double flops = 0;       // on matrix units or, for element-wise kinds, in vector code
    double bytes_read = 0;  // memory traffic without caches
    double bytes_written = 0;
    bool operator==(const Operator&) const = default;
    // From the kind's row in operator_table.h:
    [[nodiscard]] bool is_matmul() const;
    [[nodiscard]] bool is_expert_matmul() const;
    /// A batched product over stored scores (unfused attention).
    [[nodiscard]] bool is_attention_product() const;
    [[nodiscard]] bool is_attention() const;  // fused
    /// Rows of the whole product if this is a piece of one.
    [[nodiscard]] std::int64_t whole_rows() const { return rows * pieces; }
    /// The optimizer's update.
    [[nodiscard]] bool is_update() const { return kind == OpKind::adamw || kind == OpKind::sgd_momentum; }
    /// Works on all parameters, gradients and states that a rank updates: its operands are whole buffers.
    [[nodiscard]] bool works_on_updates() const {
        return is_update() || kind == OpKind::gradient_norm || kind == OpKind::gradient_scale || offloaded;
    }
    [[nodiscard]] bool is_copy() const { return kind == OpKind::copy_to_host || kind == OpKind::copy_from_host; }
    /// Does the work of two kinds in one kernel: a residual sum and the norm of it, a product and the GELU of it, or
    /// the maximum and the sum of the loss.
    [[nodiscard]] bool is_fused() const;
    /// Accepts operands of any type, where other kernels support one type only.
    [[nodiscard]] bool takes_any_type() const {
        return works_on_updates() || is_copy() || kind == OpKind::cast || kind == OpKind::clear;
    }
};

}  // namespace orrery::models
