// What a rank's time goes into: kinds of computation, communication by group, and the ways of being idle.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "sim/program/program.h"

namespace orrery::reports {

enum class TimePart : std::uint8_t {
    // Computation.
    attention,        // scores to context, and the merging of its parts
    products,         // other matrix products of the blocks
    expert_products,  // of routed experts
    expert_routing,   // router, permutation, combination
    elementwise,      // norms, activations, residuals, rotation
    casts,            // between types; what is staged for a reduction
    embedding_and_head,
    recomputation,  // operators of the forward pass that the backward pass runs again
    optimizer,      // its step, the gradient norm and scaling
    // Communication, by whose group it crosses.
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
    pp,  // transfers themselves
    // Idle.
    bubble,  // waiting for the pipeline neighbour to be ready
    host,    // launches, waits of the host, what it computes itself
    copies,  // to and from host memory
    idle,    // none of these: the end of the step
};
inline constexpr std::size_t kTimePartCount = static_cast<std::size_t>(TimePart::idle) + 1;
template <typename T>
using PerTimePart = EnumArray<TimePart, T, kTimePartCount>;
inline constexpr auto kTimeParts = enum_values<TimePart, kTimePartCount>();
[[nodiscard]] std::string_view name_of(TimePart part);
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

    /// An operator counts as recomputation when the backward body runs it to write a slot that the same kind of
    /// operator writes in a forward body of such a layer.
    [[nodiscard]] TimePart of_operator(program::BodyId body, program::OperatorIndex op) const {
        return operators_[body][op];
    }
    /// Of a communication or of a local stream other than compute; of a compute instruction, its heaviest operator's.
    [[nodiscard]] TimePart of_instruction(program::BodyId body, program::InstructionIndex instruction) const;
    /// Divides the time of a compute instruction among its operators by their weights. The sum is exact.
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
