// Private to the planner: what each layer of a model costs one rank for one way of cutting layers, independent of
// pipeline and data parallelism. Read from a lowering of the model on one stage.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "models/operator.h"
#include "sim/cost/roofline_cost.h"
#include "sim/planner/candidates.h"
#include "sim/planner/isolated_times.h"
#include "sim/planner/scaled_program.h"
#include "sim/program/layer_cache.h"
#include "sim/program/peak_contents.h"
#include "topologies/cluster.h"

namespace orrery::sim {

struct LayerCost {
    double forward_s = 0, backward_s = 0;  // computation and the communication it waits for (IsolatedTimes)
    /// If a pass computes while the tokens of another travel (Choice::overlaps_experts): the travel of its own tokens,
    /// forward and backward, which is then not part of forward_s and backward_s.
    CommunicationTimes forward_tokens, backward_tokens;
    double alone_forward_s = 0, alone_backward_s = 0;  // likewise: beside no other pass, with waits for its tokens
    double wide_gradients_s = 0;                 // by how much backward_s is longer with gradients of their full type
    double input_gradient_s = 0;                 // part of backward_s: computation other than weight gradients
    double before_gradients_s = 0;               // part of backward_s: computation before the first weight gradient
    double input_pass_s = 0, weight_pass_s = 0;  // the halves of a split backward, each as long as in isolation
    ComputeDraws draws;                          // of forward and backward
    /// Activations of one micro-batch from its forward to its backward. With a split backward, in an arena: its whole
    /// frame; from an allocator: until the input gradient is computed.
    std::int64_t saved_bytes = 0;
    /// The part of them that stays on the device if the layer's activations are offloaded: its input.
    std::int64_t input_bytes = 0;
    /// With a split backward from an allocator: what the weight-gradient half still reads.
    std::int64_t kept_bytes = 0;
    /// From an allocator: of one micro-batch's forward and backward (with a split backward: of its first half).
    program::BodyChange forward_change, backward_change;
    std::int64_t dense_parameters = 0;  // elements on one rank
    std::int64_t expert_parameters = 0;
};

/// Which layers of a model (0: the embedding, then the blocks, the head) cost the same.
class LayerKinds {
  public:
    /// `kind_of_layer`: an index for each layer, below `kinds`.
    LayerKinds(std::vector<std::size_t> kind_of_layer, std::size_t kinds);

    [[nodiscard]] std::size_t layers() const { return kind_of_layer_.size(); }
    [[nodiscard]] std::size_t kinds() const { return kinds_; }
    [[nodiscard]] std::size_t kind_of(std::size_t layer) const { return kind_of_layer_[layer]; }
    /// Calls visit(kind, number of layers) for the kinds of the layers from `from` to before `to`.
    template <typename Visit>
    void for_each(std::size_t from, std::size_t to, const Visit& visit) const {
        const std::int32_t *const first = &before_[from * kinds_], *const last = &before_[to * kinds_];
        for (std::size_t kind = 0; kind < kinds_; ++kind) {
            if (last[kind] > first[kind]) visit(kind, last[kind] - first[kind]);
        }
    }

  private:
    std::vector<std::size_t> kind_of_layer_;
    std::size_t kinds_;
    std::vector<std::int32_t> before_;  // by layer and one more, then by kind: the layers of the kind before it
};

struct LayerCosts {
    std::shared_ptr<const LayerKinds> kinds;
    std::vector<LayerCost> of_kind;
    models::Operator optimizer;  // the update of `optimizer_elements` parameters
    std::int64_t optimizer_elements = 0;
    /// In an arena: alive at once in the largest of a block's passes, minimum over blocks.
    std::int64_t block_transient_bytes = 0;
    bool has_wide_gradients = false;  // whether LayerCost::wide_gradients_s is known

    [[nodiscard]] const LayerCost& layer(std::size_t index) const { return of_kind[kinds->kind_of(index)]; }
    /// Calls visit(cost of a layer, number of layers that cost as much) for the layers from `from` to before `to`.
    template <typename Visit>
    void for_each(std::size_t from, std::size_t to, const Visit& visit) const {
        kinds->for_each(from, to, [&](std::size_t kind, std::int32_t count) { visit(of_kind[kind], count); });
    }
    /// The sum of one of the costs over these layers.
    template <typename Number>
    [[nodiscard]] Number total(Number LayerCost::*cost, std::size_t from, std::size_t to) const {
        Number sum = 0;
        for_each(from, to,
                 [&](const LayerCost& one, std::int32_t count) { sum += static_cast<Number>(count) * one.*cost; });
        return sum;
    }
    [[nodiscard]] std::int64_t parameters(std::size_t from, std::size_t to) const {
        return total(&LayerCost::dense_parameters, from, to) + total(&LayerCost::expert_parameters, from, to);
    }
};

/// The costs of layers for every way to cut them. `choice.recompute` is none, selective, or full (of all layers). The
/// costs are lower bounds for every data parallelism and schedule: no contention, no waiting for other stages, and
/// whole backward passes that write gradients of the smallest type they may have.
class LayerCosting {
  public:
    /// Keeps references.
    LayerCosting(const PlanRequest& request, const topologies::Cluster& cluster, const RooflineCost& cost);

    /// Read from a lowering of one block of each kind. Two micro-batch sizes of a cut are lowered; costs of all others
    /// are read from a Program scaled to them (ScaledProgram). Without LayerCost::wide_gradients_s.
    [[nodiscard]] LayerCosts costs(const Choice& choice);
    /// Adds LayerCost::wide_gradients_s to costs of this choice, from lowerings of their own.
    void add_wide_gradients(const Choice& choice, LayerCosts& costs);
    /// For a schedule with a split backward, from all costs with whole backward passes.
    [[nodiscard]] LayerCosts costs_of_halves(const Choice& choice, const LayerCosts& whole);
    /// All of these for the choice's schedule.
    [[nodiscard]] LayerCosts all_costs(const Choice& choice);
    /// How often blocks were lowered.
    [[nodiscard]] std::int64_t lowerings() const { return lowerings_; }

  private:
    /// A model with few blocks that stand for those of another.
    struct Excerpt {
        models::ModelSpec model;
        std::shared_ptr<const LayerKinds> kinds;  // of the other model's layers: layers of this one
    };
    /// The lowerings of one cut.
    struct Cut {
        std::optional<program::Program> first;  // until there is a second one
        std::int64_t first_size = 0;
        std::optional<ScaledProgram> scaled;
        program::BodyChanges changes;
    };
    /// A lowering at one micro-batch size.
    struct Lowering {
        const program::Program& program;
        program::BodyChanges& changes;
    };
    static Excerpt excerpt_of(const models::ModelSpec& whole);
    /// `wide`: with gradients of their full type.
    Lowering lowering_of(const Choice& key, bool wide);

    const topologies::Cluster& cluster_;
    const RooflineCost& cost_;
    const Excerpt excerpt_;
    PlanRequest few_;  // with the excerpt
    std::map<std::pair<Choice, bool>, Cut> cuts_;
    program::LayerCache layers_;
    std::int64_t lowerings_ = 0;
};

/// LayerCosting::costs of one choice.
[[nodiscard]] LayerCosts layer_costs(const PlanRequest& request, const topologies::Cluster& cluster,
                                     const RooflineCost& cost, const Choice& choice);
/// The same from a lowering of every block.
[[nodiscard]] LayerCosts layer_costs_of_every_block(const PlanRequest& request, const topologies::Cluster& cluster,
                                                    const RooflineCost& cost, const Choice& choice);

/// A choice whose layers have the same times and parameters, and whose costs need one lowering less.
[[nodiscard]] Choice with_whole_backward(Choice choice);
[[nodiscard]] Choice without_recomputation(Choice choice);
/// The choice reduced to the fields on which the costs depend.
[[nodiscard]] Choice layer_costs_key(const Choice& choice);

}  // namespace orrery::sim
