#include "sim/planner/part_sets.h"

#include <algorithm>

#include "sim/planner/layer_costs.h"

namespace orrery::sim {
namespace {

struct Part {
    PartSet set = 0;
    double bytes_per_s = 0;  // freed per time added
};

}  // namespace

std::vector<PartSet> part_sets(const PlanRequest& request, const topologies::Cluster& cluster,
                               const RooflineCost& cost) {
    if (!request.tries_part_sets || !request.training.memory.recompute_parts.empty()) return {0};
    struct Totals {
        double seconds = 0;
        std::int64_t bytes = 0;
    };
    LayerCosting costing(request, cluster, cost);
    const auto totals_of = [&](const Choice& choice) {
        Totals totals;
        const LayerCosts costs = costing.costs(choice);
        costs.for_each(0, costs.kinds->layers(), [&](const LayerCost& layer, std::int32_t count) {
            totals.seconds += count * (layer.forward_s + layer.backward_s);
            totals.bytes += count * layer.saved_bytes;
        });
        return totals;
    };
    const Totals whole = totals_of({});
    const models::Support& supports = request.implementation.supports;
    std::vector<Part> parts;
    for (int i = 1; i < models::kBlockParts; ++i) {
        const auto part = static_cast<models::BlockPart>(i);
        if (!supports.source.empty() && !models::Support::lists(supports.recompute_parts, models::name_of(part)))
            continue;
        const auto set = static_cast<PartSet>(1 << i);
        const Totals without = totals_of({.recompute = program::Recompute::selective, .recompute_parts = set});
        const auto freed = static_cast<double>(whole.bytes - without.bytes);
        constexpr double kLeastSeconds = 1e-12;  // a part that costs nothing
        if (freed > 0) parts.push_back({set, freed / std::max(kLeastSeconds, without.seconds - whole.seconds)});
    }
    if (parts.empty()) return {0};
    std::stable_sort(parts.begin(), parts.end(),
                     [](const Part& a, const Part& b) { return a.bytes_per_s > b.bytes_per_s; });
    std::vector<PartSet> sets;
    PartSet so_far = 0;
    for (const Part& part : parts) sets.push_back(so_far = static_cast<PartSet>(so_far | part.set));
    return sets;
}

}  // namespace orrery::sim
