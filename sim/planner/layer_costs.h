// Private to the planner: what each layer of a model costs one rank, cut in one way, whatever the pipeline and the data
// parallelism around it. Read off a lowering of the whole model on one stage with one micro-batch.
#pragma once

#include <cstdint>
#include <vector>

#include "models/operator.h"
#include "sim/cost/roofline_cost.h"
#include "sim/planner/candidates.h"
#include "topologies/cluster.h"

namespace orrery::sim {

struct LayerCost {
    double forward_s = 0, backward_s = 0;  // computation, and what it waits for (see IsolatedTimes)
    double input_gradient_s = 0;           // of backward_s, computation that is no weight gradient
    /// Of one micro-batch, from its forward to its backward; of a split backward all that its frame has room for.
    std::int64_t saved_bytes = 0;
    std::int64_t dense_parameters = 0;  // elements on one rank
    std::int64_t expert_parameters = 0;
};

struct LayerCosts {
    std::vector<LayerCost> layers;  // embedding, blocks, head
    models::Operator optimizer;     // the update of all of them
    std::int64_t optimizer_elements = 0;
    std::int64_t block_transient_bytes = 0;  // of a block's passes, the fewest that any block needs
};

/// `choice.recompute` is none, selective, or full of all layers. Lower bounds for every data parallelism and schedule:
/// nothing is shared, nothing waits for other stages, and gradients are of the smaller type that they may have.
[[nodiscard]] LayerCosts layer_costs(const PlanRequest& request, const topologies::Cluster& cluster,
                                     const RooflineCost& cost, const Choice& choice);

/// What of a choice the costs depend on.
[[nodiscard]] Choice layer_costs_key(const Choice& choice);

}  // namespace orrery::sim
