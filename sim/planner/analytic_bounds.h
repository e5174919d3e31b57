// Private to the planner: bounds of a candidate's memory and step time summed over its layers. They take microseconds.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "sim/network/collectives.h"
#include "sim/planner/layer_costs.h"
#include "sim/program/mesh.h"

namespace orrery::sim {

/// All zero for torch DataParallel, which has few candidates.
struct AnalyticBounds {
    /// Lower bound on the peak memory of the fullest rank, context included: parameters, gradients, optimizer states
    /// and the activations that layers save for the micro-batches that the schedule keeps in flight. Boundary buffers
    /// and windows are left out; transient values are left out unless the memory is an arena laid out ahead.
    std::int64_t least_memory_bytes = 0;
    /// The same without activations.
    std::int64_t least_state_bytes = 0;
    /// Lower bound on the step time. W is a rank's computation for one micro-batch, F and B the forward and backward
    /// parts of its first chunk, m the number of micro-batches, O the optimizer, D the gradient reduction, G the gather
    /// of the parameters. The bound is the maximum over pipeline ranks r of
    ///   sum over i < r of (F_i + B_i)  +  m W_r  +  O_r      unless backward passes are split
    ///   the first micro-batch through all later stages and back to r, the work that r has left by then, and O_r
    ///                                                        for schedules with rounds
    ///   m W_r + O_r + the part of D_r that exceeds the computation it may overlap
    ///   m D_r                                                zero2 and zero3, unless backward passes are split
    ///   2 m G_r                                              zero3, unless parameters are gathered in fp8
    double least_step_s = 0;
};

class AnalyticBounder {
  public:
    /// Keeps references.
    AnalyticBounder(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost);

    /// With full recomputation choice.recompute_layers counts the recomputed blocks of each chunk; -1 means all.
    [[nodiscard]] AnalyticBounds bounds(const Choice& choice);
    /// The smallest number of recomputed blocks per chunk, at least one, that brings least_memory_bytes under the
    /// limit; the number of blocks of the largest chunk if no number does.
    [[nodiscard]] std::int64_t fewest_recomputed(const Choice& choice, std::int64_t limit_bytes);
    /// Number of blocks of the largest chunk.
    [[nodiscard]] std::int64_t largest_chunk(const Choice& choice);
    /// How often the model has been lowered on one stage.
    [[nodiscard]] std::int64_t layer_lowerings() const { return static_cast<std::int64_t>(costs_.size()); }

  private:
    /// One model chunk of a rank.
    struct ChunkSum {
        std::size_t stage = 0;  // virtual stage
        double forward_s = 0, backward_s = 0, input_gradient_s = 0;
        std::int64_t saved_bytes = 0, dense = 0, expert = 0;
        std::int64_t gathered = 0;  // dense parameters gathered before each pass (zero3)
        std::int64_t gathered_experts = 0;
    };
    template <typename T>
    using PerChunk = IndexedVector<program::ChunkIndex, T>;
    using RankSums = std::vector<PerChunk<ChunkSum>>;  // by pipeline rank
    struct Groups {
        GroupPlacement dense, expert;
    };
    /// Sums over the layers before each layer.
    struct Prefix {
        std::vector<LayerCost> sums;
        LayerCosts costs;
    };
    /// Facts about memory and time that follow from one rank's order of passes.
    struct OrderFacts {
        /// Combinations of micro-batches in flight. Only those that no other combination dominates.
        std::vector<PerChunk<std::int64_t>> alive;
        PerChunk<std::int64_t> forwards_ahead;  // forward passes before the first backward
        program::ChunkIndex first_backward_chunk = 0;
    };

    const Prefix& prefix_of(const Choice& choice);
    const std::vector<OrderFacts>& order_facts(const Choice& choice, std::int64_t micro_batches);
    const Groups& groups_of(const Choice& choice);
    const std::vector<std::int64_t>& stages_of(const Choice& choice);
    [[nodiscard]] RankSums chunk_sums(const Choice& choice);
    [[nodiscard]] static double least_round_s(const RankSums& ranks, std::size_t rank, const OrderFacts& facts,
                                              double micro_batches);
    [[nodiscard]] double least_step(const Choice& choice, const RankSums& ranks);
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
    std::map<std::tuple<program::Schedule, std::int64_t, std::int64_t, program::EndWeights>, std::vector<std::int64_t>>
        stages_;
    std::map<std::tuple<program::Schedule, std::int64_t, std::int64_t, std::int64_t>, std::vector<OrderFacts>> orders_;
};

}  // namespace orrery::sim
