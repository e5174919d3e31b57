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

namespace orrery::models {

enum class LayerKind : std::uint8_t { embedding, block, head };
[[nodiscard]] std::string_view name_of(LayerKind kind);

/// How a layer is cut and stored on one rank.
struct LayerContext {
    std::int64_t sequence = 0;       // s
    std::int64_t micro_batch = 0;    // b
    std::int64_t tp_degree = 1;      // t
    bool sequence_parallel = false;  // token-wise regions hold s/t positions
    std::int64_t padded_vocab = 0;   // a multiple of tp_degree, >= vocab
    DType parameter_dtype = DType::fp32;
    DType activation_dtype = DType::fp32;
    DType gradient_dtype = DType::fp32;
    double dropout = 0.0;            // > 0: masks are saved (simulated only)
    bool tied_to_embedding = false;  // head: its weight is the embedding's weight on this same rank
    Implementation implementation;
};

enum class SlotRole : std::uint8_t {
    hidden_in,        // the layer's input, kept by this layer until its backward is done
    hidden_out,       // the layer's output: the next layer's hidden_in, or what is sent to the next stage
    hidden_gradient,  // gradient of the hidden state; updated in place on its way down
    parameter,
    gradient,   // of the parameter slot named by `parameter_slot`
    saved,      // written in forward, read in backward
    transient,  // lives inside one pass over the layer
    loss,       // one fp64 accumulator a rank
};

/// One global tensor inside a parameter slot (q, k and v of a fused qkv are three parts, stacked by rows).
struct ParameterPart {
    std::string name;              // without the layer prefix, e.g. "attention.q.weight"
    std::int64_t global_rows = 0;  // unsharded, unpadded; rows beyond it are padding and stay zero
    std::int64_t global_cols = 1;
    std::int64_t local_rows = 0;
    std::int64_t local_cols = 1;
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
    InitKind init = InitKind::scaled;
    double init_std = 0.02;
    bool weight_decay = false;              // matrices and embeddings
    bool tied = false;                      // head weight that lives in the embedding layer of the same rank
    bool gradient_partial_over_tp = false;  // sequence-parallel: each tensor-parallel rank saw its tokens only
    // gradient slots only:
    SlotIndex parameter_slot = kNoSlot;

    [[nodiscard]] std::int64_t elements() const;  // checked product of shape
    [[nodiscard]] std::int64_t bytes() const;     // elements * size_of(dtype), checked
};

/// A crossing between a token-wise region and a tensor-sharded one; emitted only when tp_degree > 1. `in` and `out` are
/// the same slot when the value is only reduced in place.
struct Boundary {
    enum class Kind : std::uint8_t {
        gather_sequence,  // in: [T/t, k] shard -> out: [T, k]            (sequence-parallel only)
        reduce,           // in: [T, k] partial sums -> out = in: [T, k]   (without sequence parallel)
        reduce_scatter,   // in: [T, k] partial sums -> out: [T/t, k] shard (sequence-parallel only)
        reduce_max,       // in = out: [T] fp32 maxima over the vocabulary shards
    } kind{};
    SlotIndex in = kNoSlot;
    SlotIndex out = kNoSlot;
    std::int64_t elements = 0;  // of the full buffer: T*k (or T); for gather and scatter the total over ranks
    DType dtype = DType::fp32;
};

using Step = std::variant<Operator, Boundary>;

/// The slots and the two passes of one layer. Backward steps are ordered so that a Boundary runs beside the weight
/// gradient that does not need it, and so that gradients become complete in a fixed order: the gradient-ready order.
struct Layer {
    LayerKind kind{};
    std::vector<SlotDecl> slots;
    std::vector<Step> forward;
    std::vector<Step> backward;
};

/// Throws InputError when heads, kv_heads, ffn or positions do not divide as the context asks.
[[nodiscard]] Layer build_layer(const ModelSpec& model, LayerKind kind, const LayerContext& context);

/// The smallest multiple of `multiple` * tp_degree that holds the vocabulary.
[[nodiscard]] std::int64_t padded_vocabulary(const ModelSpec& model, std::int64_t multiple, std::int64_t tp_degree);

}  // namespace orrery::models
