#include "sim/program/layer_cache.h"

#include <algorithm>
#include <tuple>

#include "sim/program/body_builder.h"

namespace orrery::program {
namespace {

using models::LayerContext;
using models::LayerKind;

/// Whether layers without experts are the same in both contexts of one implementation.
bool are_alike(const LayerContext& a, const LayerContext& b) {
    const auto fields = [](const LayerContext& c) {
        return std::tie(c.sequence, c.micro_batch, c.tp_degree, c.sequence_parallel, c.cp_degree, c.context_parallel,
                        c.padded_vocab, c.parameter_dtype, c.activation_dtype, c.gradient_dtype, c.compute_dtype, c.fp8,
                        c.dropout, c.tied_to_embedding, c.softmax_statistics, c.implementation.kernels);
    };
    return fields(a) == fields(b);
}

}  // namespace

const LoweredLayer* LayerCache::layer(const models::ModelSpec& model, LayerKind kind, const LayerContext& context,
                                      const LayerOptions& options) {
    if (kind == LayerKind::expert_block) return nullptr;
    const auto known = std::ranges::find_if(entries_, [&](const Entry& entry) {
        return entry.layer.kind == kind && are_alike(entry.context, context) && entry.layer.options == options;
    });
    if (known != entries_.end()) return &known->layer;
    Entry& entry =
        entries_.emplace_back(Entry{context, lower_layer(models::build_layer(model, kind, context), options), {}});
    by_layer_.emplace(&entry.layer, &entry);
    return &entry.layer;
}

const LayerCache::Pass* LayerCache::pass(const LoweredLayer& layer, Phase phase) {
    const auto entry = by_layer_.find(&layer);
    if (entry == by_layer_.end()) return nullptr;
    const auto [known, fresh] = entry->second->passes.try_emplace(phase);
    if (fresh) {
        known->second.body = build_body(layer, phase, {});
        known->second.order = order_of(known->second.body);
    }
    return &known->second;
}

}  // namespace orrery::program
