// One row for each kind of operator: its name, what its time is booked under, its FLOPs and bytes, the gradients it
// adds to and which backends run it. A new operator is a kind in operator.h, a row here, the layer that emits it, and a
// kernel for each backend that runs it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "models/layer.h"
#include "models/operator.h"

namespace orrery::models {

/// What a step spends time on, as far as one rate may hold for it: the work of operators first.
enum class WorkClass : std::uint8_t {
    product,            // of the blocks and the head
    expert_product,     // of routed experts
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
    host,        // what the host computes itself
    launch,      // issuing instructions
    host_layer,  // what the host needs for a block besides
    tp_layer,    //   where it is cut over tensor-parallel ranks
    host_step,   // what a step costs outside of its passes
    communication,
    tp_wait,  // of ranks that reach a sum over tensor-parallel ranks at different times
    hidden,   // what communication of gradients and parameters takes from the computation beside it
};
[[nodiscard]] std::string_view name_of(WorkClass work);

/// y[m,n] reduced over k: the shape that a matrix product really has on the device. `count` equal ones run side by side
/// in one kernel (grouped or batched).
struct ProductShape {
    std::int64_t m = 0, n = 0, k = 0;
    std::int64_t count = 1;
    bool operator==(const ProductShape&) const = default;
};

/// Those of one operator, at most two; no allocation, since they are asked for with each operator's time.
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

/// What FLOPs depend on besides the operator.
struct FlopContext {
    double pairs = 0;            // attention: (query, key) that one head of one sequence attends over
    double rotary_fraction = 1;  // of a head's width
};

/// Memory traffic when nothing is cached, in bytes.
struct Traffic {
    double read = 0, written = 0;
};

/// An output that the kind adds to ("+=" in operator.h), and how many elements it has.
struct GradientOutput {
    std::size_t out = 0;
    std::int64_t (*elements)(const Operator& op) = nullptr;
};

/// Backends with a kernel for the kind; others than these are simulated only.
enum class RunsOn : std::uint8_t { nothing, cpu, cpu_and_cuda };

struct OperatorRow {
    OpKind kind{};
    std::string_view name;
    WorkClass work{};
    RunsOn runs_on = RunsOn::nothing;
    /// nullptr: none, or (flat operators) counted by the lowering.
    double (*flops)(const Operator& op, const FlopContext& context) = nullptr;
    /// nullptr: each operand once, and once more where it is added to. `slots`: those of the layer.
    Traffic (*traffic)(const Operator& op, const Slots& slots) = nullptr;
    std::array<GradientOutput, 2> gradients{};
    /// Matrix products that it consists of; each does an equal part of its FLOPs. nullptr: none.
    ProductShapes (*products)(const Operator& op) = nullptr;
    /// Products: whose timings serve where a device has none of this kind; none: those of all products.
    std::optional<OpKind> timed_as{};
};
[[nodiscard]] const OperatorRow& row_of(OpKind kind);
[[nodiscard]] std::optional<OpKind> op_kind_named(std::string_view name);
[[nodiscard]] inline bool has_cpu_kernel(OpKind kind) {
    return row_of(kind).runs_on != RunsOn::nothing;
}
[[nodiscard]] inline bool has_cuda_kernel(OpKind kind) {
    return row_of(kind).runs_on == RunsOn::cpu_and_cuda;
}

/// Bytes of a slot; 0 for kNoSlot.
[[nodiscard]] double slot_bytes(const Slots& slots, SlotIndex index);
[[nodiscard]] Traffic traffic_of(const Operator& op, const Slots& slots);

/// The operator's products; empty where it has none.
///   linear_forward [T,n] over k; linear_backward_input [T,k] over n; linear_backward_weight [n,k] over T
///   expert_linear_*: the same with T / groups (rounded up: the fullest group) in T's place, `groups` times
///   a piece of a product has the whole product's shape: its tiles fill the waves together with those of the others
///   unfused attention, for each head of each sequence, with q queries, s keys, head width d and value width e:
///     scores_forward [q,s] over d; context_forward [q,e] over s
///     scores_backward [q,d] over s and [s,d] over q; context_backward [q,s] over e and [s,e] over q
[[nodiscard]] ProductShapes product_shapes(const Operator& op);

}  // namespace orrery::models
