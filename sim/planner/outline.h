// Private to the planner: bounds of a candidate's memory and step that are summed up from its layers, in microseconds.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "sim/network/collectives.h"
#include "sim/planner/layer_costs.h"
#include "sim/program/mesh.h"

namespace orrery::sim {

/// Of torch DataParallel, whose candidates are few, nothing is said: zeros.
struct Outline {
    /// The fullest rank holds at least this, context included: parameters, gradients and optimizer states, and what
    /// layers save for the micro-batches that its schedule keeps alive. Transient values, windows and boundary buffers
    /// are left out.
    std::int64_t least_memory_bytes = 0;
    std::int64_t least_state_bytes = 0;  // of it, without activations
    /// No step is shorter. With W a stage's computation for one micro-batch, m micro-batches, O the optimizer and D the
    /// reduction of gradients, the largest, over pipeline ranks r, of
    ///   sum over i < r of (F_i + B_i) of first chunks  +  m W_r  +  O_r             backward passes in one
    ///   the first micro-batch through all stages and back to r, what r has not computed by then, and O_r
    ///   m W_r + O_r + what of D_r lasts longer than what it may run beside
    ///   m G_r, m R_r                                                                gathers and reductions, zero2,
    ///   zero3
    double least_step_s = 0;
};

class Outliner {
  public:
    /// Keeps references.
    Outliner(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost);

    /// Full recomputation: of choice.recompute_layers blocks of each chunk, which are settled.
    [[nodiscard]] Outline outline(const Choice& choice);
    /// The fewest blocks of each chunk whose recomputation brings least_memory_bytes under the limit, at least one; all
    /// when none does.
    [[nodiscard]] std::int64_t fewest_recomputed(const Choice& choice, std::int64_t limit_bytes);
    /// Blocks of the largest chunk.
    [[nodiscard]] std::int64_t largest_chunk(const Choice& choice) const;
    [[nodiscard]] std::int64_t lowered() const { return static_cast<std::int64_t>(costs_.size()); }

  private:
    /// One model chunk of a rank.
    struct ChunkSum {
        std::size_t stage = 0;  // virtual
        double forward_s = 0, backward_s = 0, input_gradient_s = 0;
        std::int64_t saved_bytes = 0, dense = 0, expert = 0;
        std::int64_t gathered = 0;  // parameters that are gathered before each pass
        std::int64_t gathered_experts = 0;
    };
    struct Groups {
        GroupPlacement dense, expert;
    };
    /// Sums over the layers before each layer.
    struct Prefix {
        std::vector<LayerCost> sums;
        LayerCosts costs;
    };
    /// What the schedule's order of one rank says of memory and time.
    struct OrderFacts {
        /// Numbers of micro-batches of each chunk that are alive at once; those of which no other is larger in all.
        std::vector<std::vector<std::int64_t>> alive;
        std::vector<std::int64_t> forwards_ahead;  // of each chunk, before the first backward
        std::size_t first_backward_chunk = 0;
    };

    const Prefix& prefix_of(const Choice& choice);
    const std::vector<OrderFacts>& order_facts(const Choice& choice, std::int64_t micro_batches);
    const Groups& groups_of(const Choice& choice);
    [[nodiscard]] std::vector<std::vector<ChunkSum>> chunk_sums(const Choice& choice);
    [[nodiscard]] static double least_round_s(const std::vector<std::vector<ChunkSum>>& ranks, std::size_t rank,
                                              const OrderFacts& facts, double micro_batches);
    [[nodiscard]] double least_step(const Choice& choice, const std::vector<std::vector<ChunkSum>>& ranks);
    [[nodiscard]] std::int64_t runtime_bytes(const Choice& choice);
    [[nodiscard]] std::int64_t hidden_bytes(const Choice& choice) const;
    [[nodiscard]] double optimizer_s(const Choice& choice, std::int64_t dense, std::int64_t expert);
    [[nodiscard]] double collective_s(program::CommKind kind, const GroupPlacement& group, std::int64_t elements,
                                      DType type) const;

    const PlanRequest& request_;
    const topologies::Cluster& cluster_;
    const RooflineCost& cost_;
    std::map<Choice, Prefix> costs_;
    std::map<Choice, Groups> groups_;
    std::map<std::tuple<program::Schedule, std::int64_t, std::int64_t, std::int64_t>, std::vector<OrderFacts>> orders_;
};

}  // namespace orrery::sim
