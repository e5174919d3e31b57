// Private to the lowerings: the lowered layers of a plan.
#pragma once

#include <deque>
#include <map>
#include <utility>

#include "sim/program/layer_cache.h"
#include "sim/program/lowered_layer.h"
#include "sim/program/program.h"
#include "sim/program/vocabulary.h"

namespace orrery::program {

struct ShardingRules;

/// Lowers each kind of layer of a plan once for each set of options.
class LayerLibrary {
  public:
    /// With a cache, layers that it keeps are those of the cache.
    LayerLibrary(const Plan& plan, const ShardingRules& rules, LayerCache* cache = nullptr);
    /// `recomputed`: whether the plan's recomputation applies to this layer.
    [[nodiscard]] const LoweredLayer& layer(models::LayerKind kind, bool recomputed);
    /// A part of a vocabulary that is sharded over the stages.
    [[nodiscard]] const LoweredLayer& vocabulary(VocabularyPart part, bool root);
    /// Whether the head shares the embedding's weight on the same rank.
    [[nodiscard]] bool ties_locally() const;
    [[nodiscard]] const FlatPadding& padding() const { return common_.padding; }

  private:
    const Plan& plan_;
    LayerCache* cache_ = nullptr;
    LayerOptions common_;  // options of all layers
    models::LayerContext context_;
    std::deque<LoweredLayer> layers_;
    std::map<std::pair<VocabularyPart, bool>, LoweredLayer> vocabulary_layers_;
};

}  // namespace orrery::program
