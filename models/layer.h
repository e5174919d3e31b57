// A layer as operators over named slots, in the order in which they run. What crosses tensor-parallel ranks is not said
// here: a layer only marks where a token-wise region is left for a tensor-sharded one and back (Boundary), and the
// lowering decides which collective that takes.
#pragma once

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "core/dtype.h"
#include "models/implementation.h"
#include "models/model_spec.h"
#include "models/operator.h"
#include "models/training_choices.h"

namespace orrery::models {

enum class LayerKind : std::uint8_t { embedding, block, expert_block, head };
inline constexpr int kLayerKinds = 4;
[[nodiscard]] std::string_view name_of(LayerKind kind);

/// How the ranks over which a vocabulary is cut come by the softmax of the whole.
enum class SoftmaxStatistics : std::uint8_t {
    reduced,    // their maximum first, and then sums that refer to it
    gathered,   // each rank's own maximum and sums that refer to that, which all put together: nothing between them
    corrected,  // gathered beside the product for the gradient of the hidden state, which is corrected by them after it
};

/// How a layer is cut and stored on one rank.
struct LayerContext {
    std::int64_t sequence = 0;       // s, of the whole sequence
    std::int64_t micro_batch = 0;    // b
    std::int64_t tp_degree = 1;      // t
    bool sequence_parallel = false;  // token-wise regions hold s/(t c) positions
    std::int64_t cp_degree = 1;      // c: this rank holds s/c positions
    ContextParallel context_parallel = ContextParallel::ring;
    std::int64_t ep_degree = 1;
    std::int64_t etp_degree = 1;  // ranks over which each expert's width is cut
    ExpertLoad expert_load;
    std::int64_t padded_vocab = 0;  // a multiple of tp_degree, >= vocab
    DType parameter_dtype = DType::fp32;
    DType activation_dtype = DType::fp32;
    DType gradient_dtype = DType::fp32;
    DType compute_dtype = DType::fp32;  // of matrix products that are not in fp8
    Fp8Scaling fp8 = Fp8Scaling::none;  // of a block's products (not the head's, the router's, the attention's)
    double dropout = 0.0;               // > 0: masks are saved (simulated only)
    bool tied_to_embedding = false;     // head: its weight is the embedding's weight on this same rank
    SoftmaxStatistics softmax_statistics = SoftmaxStatistics::reduced;  // head, where tp_degree is more than 1
    Implementation implementation;
};

/// The head's result where the loss makes fp32 of it.
inline constexpr const char* kNarrowLogits = "logits.narrow";

enum class SlotRole : std::uint8_t {
    hidden_in,        // the layer's input, kept by this layer until its backward is done
    hidden_out,       // the layer's output: the next layer's hidden_in, or what is sent to the next stage
    hidden_gradient,  // gradient of the hidden state; updated in place on its way down
    parameter,
    gradient,     // of the parameter slot named by `parameter_slot`
    saved,        // written in forward, read in backward
    transient,    // lives inside one pass over the layer
    loss,         // one fp64 accumulator a rank
    weight_copy,  // an fp8 copy of a parameter, made by Layer::prepare once a step and kept through it
};

/// Over which ranks the gradients of a parameter are parts of a sum, data parallelism apart.
enum class GradientSum : std::uint8_t {
    none,
    tp,        // each tensor-parallel rank saw its tokens only (sequence parallelism), or its heads only (qk-norm)
    kv_group,  // tp > kv_heads: the tp / kv_heads neighbours that hold a copy of the same key/value head
};

/// One global tensor inside a parameter slot (q, k and v of a fused qkv are three parts, stacked by rows).
struct ParameterPart {
    std::string name;              // without the layer prefix, e.g. "attention.q.weight"
    std::int64_t global_rows = 0;  // unsharded, unpadded; rows beyond it are padding and stay zero
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
    bool over_stages = false;  // cut over the stages of a pipeline, not over tensor-parallel ranks
    InitKind init = InitKind::scaled;
    double init_std = 0.02;
    bool weight_decay = false;  // matrices and embeddings
    bool tied = false;          // head weight that lives in the embedding layer of the same rank
    GradientSum gradient_sum = GradientSum::none;
    bool expert = false;  // lives on the expert mesh: its gradient is reduced over edp, not dp
    // gradient and weight_copy slots only:
    SlotIndex parameter_slot = kNoSlot;

    /// Bounded sizes: shape holds the expected rows, memory is laid out for these; 0: the shape is exact.
    std::int64_t most_rows = 0;

    [[nodiscard]] std::int64_t elements() const;  // checked product of shape
    [[nodiscard]] std::int64_t bytes() const;     // what memory holds: at most_rows, times size_of(dtype), checked
    bool operator==(const SlotDecl&) const = default;
};
using Slots = IndexedVector<SlotIndex, SlotDecl>;

/// Ranks of one mesh axis exchange data: where a token-wise region is left for a tensor-sharded one and back, and where
/// context or expert parallelism moves keys, values or tokens. Emitted only when the axis has more than one rank. `in`
/// and `out` are the same slot when the value is only reduced in place.
struct Boundary {
    enum class Kind : std::uint8_t {
        gather,          // in: this rank's shard -> out: all shards
        reduce,          // in: partial sums -> out = in: their sum
        reduce_scatter,  // in: partial sums -> out: this rank's shard of their sum
        reduce_max,      // in = out
        all_to_all,      // in: a part for each rank -> out: a part from each rank
        exchange,        // in: goes to the next rank of the ring -> out: what came from the one before
        broadcast,       // in: of the root -> out
        reduce_to_root,  // in: partial sums -> out: their sum, at the root
    } kind{};
    enum class Axis : std::uint8_t { tp, cp, ep, etp, pp } axis = Axis::tp;
    SlotIndex in = kNoSlot;
    SlotIndex out = kNoSlot;
    std::int64_t elements = 0;  // gather, reduce_scatter: the total over ranks; otherwise of the buffer (expected)
    std::int32_t root = 0;      // broadcast, reduce_to_root: index among the ranks
    bool receives = false;      // broadcast: this rank is not the root, so what it computes need not be awaited
    // Parts that differ, int64 counts of rows of `row_elements`, equally many counts a rank. all_to_all: how many go to
    // and come from each rank; gather, reduce_scatter: how many are each rank's, both slots the same.
    SlotIndex send_counts = kNoSlot, receive_counts = kNoSlot;
    std::int64_t row_elements = 0;
    DType dtype = DType::fp32;
    BlockPart part = BlockPart::none;
};

using Step = std::variant<Operator, Boundary>;

/// The slots and the two passes of one layer. Backward steps are ordered so that a Boundary runs beside the weight
/// gradient that does not need it, and so that gradients become complete in a fixed order: the gradient-ready order.
struct Layer {
    LayerKind kind{};
    Slots slots;
    std::vector<Step> prepare;  // once a step, before the first forward: weight copies
    std::vector<Step> forward;
    std::vector<Step> backward;
};

/// Throws InputError when heads, kv_heads, ffn, experts or positions do not divide as the context asks.
[[nodiscard]] Layer build_layer(const ModelSpec& model, LayerKind kind, const LayerContext& context);

/// The smallest multiple of `multiple` * tp_degree that holds the vocabulary.
[[nodiscard]] std::int64_t padded_vocabulary(const ModelSpec& model, std::int64_t multiple, std::int64_t tp_degree);

}  // namespace orrery::models
