// Lowered layers that several lowerings share.
#pragma once

#include <deque>
#include <map>

#include "models/layer.h"
#include "models/model_spec.h"
#include "sim/program/access_order.h"
#include "sim/program/lowered_layer.h"
#include "sim/program/program.h"

namespace orrery::program {

/// Keeps the layers without experts of lowerings that have the same model and implementation, and the bodies of their
/// passes. With one for many ways to cut a model, only the layers that differ are lowered again. For one thread.
class LayerCache {
  public:
    struct Pass {
        Body body;
        BodyOrder order;
    };
    /// Null if layers of this kind are not kept. Equal arguments give the same object, which stays where it is.
    [[nodiscard]] const LoweredLayer* layer(const models::ModelSpec& model, models::LayerKind kind,
                                            const models::LayerContext& context, const LayerOptions& options);
    /// A pass that reduces no buckets. Null if the layer is not one of these.
    [[nodiscard]] const Pass* pass(const LoweredLayer& layer, Phase phase);

  private:
    struct Entry {
        models::LayerContext context;
        LoweredLayer layer;
        std::map<Phase, Pass> passes;
    };
    std::deque<Entry> entries_;
    std::map<const LoweredLayer*, Entry*> by_layer_;
};

/// lower(plan) without RankClass::memory, with the cache of other plans that have the same model and implementation.
/// Not for torch DataParallel.
[[nodiscard]] Program lower_without_memory(const Plan& plan, LayerCache& cache);

}  // namespace orrery::program
