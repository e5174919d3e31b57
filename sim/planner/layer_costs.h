// Private to the planner: what each layer of a model costs one rank for one way of cutting layers, independent of
// pipeline and data parallelism. Read from a lowering of the model on one stage.
#pragma once

#include <cstdint>
#include <vector>

#include "models/operator.h"
#include "sim/cost/roofline_cost.h"
#include "sim/planner/candidates.h"
#include "sim/planner/isolated_times.h"
#include "sim/program/peak_contents.h"
#include "topologies/cluster.h"

namespace orrery::sim {

struct LayerCost {
    double forward_s = 0, backward_s = 0;        // computation and the communication it waits for (IsolatedTimes)
    double input_gradient_s = 0;                 // part of backward_s: computation other than weight gradients
    double input_pass_s = 0, weight_pass_s = 0;  // the halves of a split backward, each as long as in isolation
    ComputeDraws draws;                          // of forward and backward
    /// Activations of one micro-batch from its forward to its backward. With a split backward, in an arena: its whole
    /// frame; from an allocator: until the input gradient is computed.
    std::int64_t saved_bytes = 0;
    /// With a split backward from an allocator: what the weight-gradient half still reads.
    std::int64_t kept_bytes = 0;
    /// From an allocator: of one micro-batch's forward and backward (with a split backward: of its first half).
    program::BodyChange forward_change, backward_change;
    std::int64_t dense_parameters = 0;  // elements on one rank
    std::int64_t expert_parameters = 0;
};

struct LayerCosts {
    std::vector<LayerCost> layers;  // embedding, blocks, head
    models::Operator optimizer;     // the update of `optimizer_elements` parameters
    std::int64_t optimizer_elements = 0;
    std::int64_t block_transient_bytes = 0;  // the largest of a block's passes, minimum over blocks
};

/// `choice.recompute` is none, selective, or full (of all layers). The costs are lower bounds for every data
/// parallelism and schedule: no contention, no waiting for other stages, and gradients of the smallest type they may
/// have.
[[nodiscard]] LayerCosts layer_costs(const PlanRequest& request, const topologies::Cluster& cluster,
                                     const RooflineCost& cost, const Choice& choice);
/// The same for a schedule with a split backward, from the costs with whole backward passes: one lowering less.
[[nodiscard]] LayerCosts layer_costs_of_halves(const PlanRequest& request, const topologies::Cluster& cluster,
                                               const RooflineCost& cost, const Choice& choice, const LayerCosts& whole);
/// The same from a lowering of every block, where layer_costs lowers one of each kind and copies its costs.
[[nodiscard]] LayerCosts layer_costs_of_every_block(const PlanRequest& request, const topologies::Cluster& cluster,
                                                    const RooflineCost& cost, const Choice& choice);

/// A choice whose layers have the same times and parameters, and whose costs need one lowering less.
[[nodiscard]] Choice with_whole_backward(Choice choice);
[[nodiscard]] Choice without_recomputation(Choice choice);
/// The choice reduced to the fields on which the costs depend.
[[nodiscard]] Choice layer_costs_key(const Choice& choice);

}  // namespace orrery::sim
