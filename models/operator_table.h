// One row for each kind of operator: its name, its work class, its FLOPs and bytes, the gradients it accumulates and
// whether the executor runs it. A new operator needs a kind in operator.h, a row here, a layer that emits it, and, to
// run, a kernel for each backend.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "models/layer.h"
#include "models/operator.h"

namespace orrery::models {

/// Kinds of work that can have a rate of their own; those of operators come first.
enum class WorkClass : std::uint8_t {
    product,            // matrix products of the blocks and the head
    expert_product,     // grouped products of routed experts
    attention,          // fused
    attention_product,  // scores and context of unfused attention
    attention_memory,   // softmax, dropout, layout changes and merges of attention
    norm,
    elementwise,
    embedding,
    loss,  // cross-entropy
    routing,
    optimizer,  // update, norm and clearing of gradients
    cast,
    copy,        // to and from host memory
    host,        // computation on the host
    launch,      // launch overhead of instructions
    host_layer,  // further host time for a block
    tp_layer,    //   for a block that is sharded over tensor-parallel ranks
    host_step,   // time of a step outside of its passes
    communication,
    tp_wait,  // wait at a sum over tensor-parallel ranks, which reach it at different times
    hidden,   // slowdown of computation by the communication of gradients and parameters beside it
};
[[nodiscard]] std::string_view name_of(WorkClass work);

/// The shape of a matrix product on the device: y[m,n], reduced over k. `count` equal products run side by side in one
/// kernel (grouped or batched).
struct ProductShape {
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t count = 1;
    bool operator==(const ProductShape&) const = default;
};

/// The products of one operator, at most two. Does not allocate, since it is evaluated for the time of each operator.
class ProductShapes {
  public:
    ProductShapes() = default;
    explicit ProductShapes(const ProductShape& only) : shapes_{only}, count_(1) {}
    ProductShapes(const ProductShape& first, const ProductShape& second) : shapes_{first, second}, count_(2) {}
    [[nodiscard]] std::size_t size() const { return count_; }
    [[nodiscard]] bool empty() const { return count_ == 0; }
    [[nodiscard]] const ProductShape* begin() const { return shapes_.data(); }
    [[nodiscard]] const ProductShape* end() const { return shapes_.data() + count_; }
    bool operator==(const ProductShapes&) const = default;

  private:
    std::array<ProductShape, 2> shapes_{};
    std::size_t count_ = 0;
};

/// Inputs of FLOP formulas besides the operator.
struct FlopContext {
    double pairs = 0;            // attention: attended (query, key) pairs of one head of one sequence
    double rotary_fraction = 1;  // rotated share of a head's width
};

/// Memory traffic without caches, in bytes.
struct Traffic {
    double read = 0, written = 0;
};

/// An output that the kind accumulates into ("+=" in operator.h), and its number of elements.
struct GradientOutput {
    std::size_t out = 0;
    std::int64_t (*elements)(const Operator& op) = nullptr;
};

/// Whether the executor has kernels for the kind, one for each backend.
enum class Kernels : std::uint8_t { none, of_each_backend };

struct OperatorRow {
    OpKind kind{};
    std::string_view name;
    WorkClass work{};
    Kernels kernels = Kernels::none;
    /// nullptr: no FLOPs, or (flat operators) counted by the lowering.
    double (*flops)(const Operator& op, const FlopContext& context) = nullptr;
    /// nullptr: each operand once, and twice if it is accumulated into. `slots`: those of the layer.
    Traffic (*traffic)(const Operator& op, const Slots& slots) = nullptr;
    std::array<GradientOutput, 2> gradients{};
    /// The operator's matrix products, each with an equal part of its FLOPs. nullptr: none.
    ProductShapes (*products)(const Operator& op) = nullptr;
    /// Products: the kind whose timings are used if a device has none for this kind; none: those of all products.
    std::optional<OpKind> timed_as{};
};
[[nodiscard]] const OperatorRow& row_of(OpKind kind);
[[nodiscard]] std::optional<OpKind> op_kind_named(std::string_view name);
/// False for kinds that are only simulated.
[[nodiscard]] inline bool has_kernels(OpKind kind) {
    return row_of(kind).kernels == Kernels::of_each_backend;
}

/// Bytes of a slot; 0 for kNoSlot.
[[nodiscard]] double slot_bytes(const Slots& slots, SlotIndex index);
[[nodiscard]] Traffic traffic_of(const Operator& op, const Slots& slots);

/// The operator's products; empty if it has none.
///   linear_forward [T,n] over k; linear_backward_input [T,k] over n; linear_backward_weight [n,k] over T
///   expert_linear_*: the same with T / groups (rounded up: the fullest group) instead of T, `groups` times
///   a piece of a product has the shape of the whole product, since its tiles share waves with those of the other
///   pieces unfused attention, for each head of each sequence, with q queries, s keys, head width d and value width e:
///     scores_forward [q,s] over d; context_forward [q,e] over s
///     scores_backward [q,d] over s and [s,d] over q; context_backward [q,s] over e and [s,e] over q
[[nodiscard]] ProductShapes product_shapes(const Operator& op);

}  // namespace orrery::models
