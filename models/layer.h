// A layer as operators over named slots, in execution order. A layer only marks where ranks exchange data, for example
// between token-wise and tensor-sharded regions (Boundary); the lowering chooses the collectives.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "models/implementation.h"
#include "models/model_spec.h"
#include "models/operator.h"
#include "models/token_routing.h"
#include "models/training_choices.h"

namespace orrery::models {

enum class LayerKind : std::uint8_t { embedding, block, expert_block, head };
inline constexpr int kLayerKinds = 4;
[[nodiscard]] std::string_view name_of(LayerKind kind);
[[nodiscard]] constexpr bool is_block(LayerKind kind) {
    return kind == LayerKind::block || kind == LayerKind::expert_block;
}

/// How ranks with parts of a vocabulary compute the softmax over all of it.
enum class SoftmaxStatistics : std::uint8_t {
    reduced,    // all-reduce of the maximum, then of the sums relative to it; with an online softmax as `gathered`
    gathered,   // all-gather of each rank's maximum and of the sums relative to its own maximum, without a reduction
                // first
    corrected,  // gathered while the product for the hidden state's gradient runs; the product is then corrected
};

/// How a layer is sharded and stored on one rank.
struct LayerContext {
    std::int64_t sequence = 0;       // s, length of the whole sequence
    std::int64_t micro_batch = 0;    // b
    std::int64_t tp_degree = 1;      // t
    bool sequence_parallel = false;  // token-wise regions hold s/(t c) positions
    std::int64_t cp_degree = 1;      // c: this rank holds s/c positions
    ContextParallel context_parallel = ContextParallel::ring;
    std::int64_t ep_degree = 1;
    std::int64_t etp_degree = 1;  // ranks over which each expert's width is sharded
    ExpertLoad expert_load;
    std::int64_t padded_vocab = 0;  // a multiple of tp_degree, >= vocab
    DType parameter_dtype = DType::fp32;
    DType activation_dtype = DType::fp32;
    DType gradient_dtype = DType::fp32;
    DType compute_dtype = DType::fp32;  // of matrix products that are not in fp8
    Fp8Scaling fp8 = Fp8Scaling::none;  // for a block's products, but not for the head, the router and attention
    double dropout = 0.0;               // probability; > 0: masks are saved, except in fused attention
    bool tied_to_embedding = false;     // head: its weight is the embedding's weight on this rank
    SoftmaxStatistics softmax_statistics = SoftmaxStatistics::reduced;  // head, if tp_degree is above 1
    Implementation implementation;
};

/// The logits in the activations' type, if the loss converts them to fp32.
inline constexpr const char* kNarrowLogits = "logits.narrow";

enum class SlotRole : std::uint8_t {
    hidden_in,        // the layer's input, kept until the layer's backward has completed
    hidden_out,       // the layer's output: the next layer's hidden_in, or what is sent to the next stage
    hidden_gradient,  // gradient of the hidden state; updated in place from layer to layer
    parameter,
    gradient,     // of the parameter slot named by `parameter_slot`
    saved,        // written in forward, read in backward
    transient,    // lives inside one pass over the layer
    loss,         // one fp64 accumulator a rank
    weight_copy,  // an fp8 copy of a parameter, made by Layer::prepare once a step
};

/// Ranks, besides data-parallel ones, whose gradients of a parameter are partial sums.
enum class GradientSum : std::uint8_t {
    none,
    tp,        // each tensor-parallel rank saw only its tokens (sequence parallelism) or only its heads (qk-norm)
    kv_group,  // tp > kv_heads: the tp / kv_heads neighbours that hold a copy of the same key/value head
};

/// One global tensor inside a parameter slot (q, k and v of a fused qkv are three parts, stacked by rows).
struct ParameterPart {
    std::string name;              // without the layer prefix, e.g. "attention.q.weight"
    std::int64_t global_rows = 0;  // unsharded, unpadded; further rows are padding and stay zero
    std::int64_t global_cols = 1;
    std::int64_t local_rows = 0;
    std::int64_t local_cols = 1;
    bool operator==(const ParameterPart&) const = default;
};
enum class ShardDim : std::uint8_t { replicated, rows, cols };
enum class InitKind : std::uint8_t { zeros, ones, scaled };  // scaled: uniform with standard deviation init_std

struct SlotDecl {
    std::string name;  // e.g. "attention.qkv.weight", "norm1.out"
    SlotRole role{};
    DType dtype = DType::fp32;
    std::vector<std::int64_t> shape{};  // local
    // parameter slots only:
    std::vector<ParameterPart> parts{};
    ShardDim shard = ShardDim::replicated;
    bool over_stages = false;  // sharded over the stages of a pipeline, not over tensor-parallel ranks
    InitKind init = InitKind::scaled;
    double init_std = 0.02;
    bool weight_decay = false;  // matrices and embeddings
    bool tied = false;          // head weight that is the embedding layer's weight on the same rank
    GradientSum gradient_sum = GradientSum::none;
    bool expert = false;  // belongs to the expert mesh: its gradient is reduced over edp, not dp
    // gradient and weight_copy slots only:
    SlotIndex parameter_slot = kNoSlot;

    /// Upper bound of the rows, for which memory is laid out, while shape has the expected rows. 0: the shape is exact.
    std::int64_t most_rows = 0;

    [[nodiscard]] std::int64_t elements() const;  // product of shape, checked for overflow
    [[nodiscard]] std::int64_t bytes() const;     // allocated bytes, with most_rows if given; checked for overflow
    bool operator==(const SlotDecl&) const = default;
};
using Slots = IndexedVector<SlotIndex, SlotDecl>;

/// An exchange of data between ranks of one mesh axis: between token-wise and tensor-sharded regions, and where context
/// or expert parallelism moves keys, values or tokens. Emitted only if the axis has more than one rank. `in` and `out`
/// are the same slot if the value is reduced in place.
struct Boundary {
    enum class Kind : std::uint8_t {
        gather,          // in: this rank's shard -> out: all shards
        reduce,          // in: partial sums -> out = in: their sum
        reduce_scatter,  // in: partial sums -> out: this rank's shard of their sum
        reduce_max,      // in = out
        all_to_all,      // in: a part for each rank -> out: a part from each rank
        exchange,        // in: sent to the next rank of the ring -> out: received from the previous one
        broadcast,       // in: the root's value -> out
        reduce_to_root,  // in: partial sums -> out: their sum, on the root
    } kind{};
    enum class Axis : std::uint8_t { tp, cp, ep, etp, pp } axis = Axis::tp;
    SlotIndex in = kNoSlot;
    SlotIndex out = kNoSlot;
    std::int64_t elements = 0;  // gather, reduce_scatter: total over ranks; otherwise size of the buffer (expected)
    std::int32_t root = 0;      // broadcast, reduce_to_root: index among the ranks
    bool receives = false;      // broadcast: this rank is not the root, so it need not wait for its own computation
    // For parts of unequal size: slots with int64 counts of rows of `row_elements`, the same number of counts for each
    // rank. all_to_all: rows sent to and received from each rank; gather, reduce_scatter: rows of each rank, both slots
    // the same.
    SlotIndex send_counts = kNoSlot, receive_counts = kNoSlot;
    std::int64_t row_elements = 0;
    // all_to_all of rows that are copies of tokens, one for each chosen expert: a token travels to each node and to
    // each rank only once, however many of its experts are there. Not set: every row travels.
    std::optional<TokenRouting> tokens_once{};
    DType dtype = DType::fp32;
    BlockPart part = BlockPart::none;
};

using Step = std::variant<Operator, Boundary>;

/// The slots and the two passes of one layer. The order of the backward steps lets a Boundary overlap with the weight
/// gradient that does not depend on it, and completes gradients in a fixed order, the gradient-ready order.
struct Layer {
    LayerKind kind{};
    Slots slots;
    std::vector<Step> prepare;  // once a step, before the first forward: weight copies
    std::vector<Step> forward;
    std::vector<Step> backward;
};

/// Throws InputError if heads, kv_heads, ffn, experts or positions are not divisible as the context requires.
[[nodiscard]] Layer build_layer(const ModelSpec& model, LayerKind kind, const LayerContext& context);

/// The smallest multiple of `multiple` * tp_degree that is at least the vocabulary.
[[nodiscard]] std::int64_t padded_vocabulary(const ModelSpec& model, std::int64_t multiple, std::int64_t tp_degree);

}  // namespace orrery::models
