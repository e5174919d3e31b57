// The parts of a rank's time: kinds of computation, communication by group, and causes of idle time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "sim/program/program.h"

namespace orrery::reports {

enum class TimePart : std::uint8_t {
    // Computation.
    attention,        // from scores to context, including the merge of partial results
    products,         // other GEMMs of the layers
    expert_products,  // GEMMs of routed experts
    expert_routing,   // router, permutation, combination
    elementwise,      // norms, activations, residuals, rotary embedding
    casts,            // type conversions; staging for a reduction
    embedding_and_head,
    recomputation,  // operators of the forward pass that the backward pass runs again
    optimizer,      // optimizer step, gradient norm and scaling
    // Communication, by process group.
    tp,
    kv,  // gradients of replicated key/value heads
    cp,
    ep,
    etp,
    dp,            // dense gradients
    edp,           // expert gradients
    dp_gather,     // parameters
    dp_replicate,  // gradient shards between sets of shards
    embedding,     // tied embeddings of two stages
    pipeline,      // all stages: vocabulary parallelism
    model,         // one copy of the model: gradient norm
    world,
    pp,  // pipeline transfers, without waiting
    // Idle.
    bubble,  // waiting for the pipeline neighbour to be ready
    host,    // launches, waits and computation of the host
    copies,  // to and from host memory
    idle,    // any other cause: the end of the step
};
inline constexpr std::size_t kTimePartCount = static_cast<std::size_t>(TimePart::idle) + 1;
template <typename T>
using PerTimePart = EnumArray<TimePart, T, kTimePartCount>;
inline constexpr auto kTimeParts = enum_values<TimePart, kTimePartCount>();
[[nodiscard]] std::string_view name_of(TimePart part);
/// The same for tables: "matrix products", "pipeline bubble".
[[nodiscard]] std::string label_of(TimePart part);
/// The same of a name_of, with "exposed" before communication; other names as they are.
[[nodiscard]] std::string part_label(const std::string& name);
[[nodiscard]] constexpr bool is_compute(TimePart part) {
    return part <= TimePart::optimizer;
}
[[nodiscard]] constexpr bool is_communication(TimePart part) {
    return part >= TimePart::tp && part <= TimePart::pp;
}

/// Picoseconds (or any other integer).
using PartTimes = PerTimePart<std::int64_t>;

/// How long an operator runs, relative to the others of its instruction; >= 0, any unit.
using OperatorWeight = std::function<double(const models::Operator&)>;

/// The parts of all operators and instructions of a Program, which must outlive it.
class PartTable {
  public:
    PartTable(const program::Program& program, const OperatorWeight& weight);

    /// An operator of a backward body is recomputation if it writes a slot that an operator of the same kind writes in
    /// a forward body of the same kind of layer.
    [[nodiscard]] TimePart of_operator(program::BodyId body, program::OperatorIndex op) const {
        return operators_[body][op];
    }
    /// The part of a communication or of a local stream other than compute; for a compute instruction, the part of its
    /// heaviest operator.
    [[nodiscard]] TimePart of_instruction(program::BodyId body, program::InstructionIndex instruction) const;
    /// Divides the time of a compute instruction among its operators by weight. The sum is exact.
    void add_compute(program::BodyId body, program::InstructionIndex instruction, std::int64_t picoseconds,
                     PartTimes& times) const;

  private:
    const program::Program& program_;
    template <typename T>
    using PerOperator = IndexedVector<program::BodyId, IndexedVector<program::OperatorIndex, T>>;
    PerOperator<TimePart> operators_;
    PerOperator<double> weights_;
};

}  // namespace orrery::reports
