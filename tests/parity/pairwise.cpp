#include "tests/parity/pairwise.h"

#include <algorithm>
#include <set>
#include <string>
#include <utility>

namespace orrery::parity {
namespace {

using Pair = std::pair<std::string, std::string>;

std::vector<std::string> techniques_of(const Case& one) {
    const Shape& shape = one.shape;
    std::vector<std::string> found;
    const auto add = [&](bool used, const std::string& name) {
        if (used) found.push_back(name);
    };
    const Shape plain;
    add(shape.dp > 1, std::string(name_of(shape.data_parallel)));
    add(shape.tp > 1, shape.sequence_parallel ? "tp sp" : "tp");
    add(shape.pp > 1, std::string(name_of(shape.schedule)));
    add(shape.cp > 1, std::string(name_of(shape.context_parallel)));
    add(shape.ep > 1, "ep");
    add(shape.etp > 1, "etp");
    add(shape.dp_shard > 0, "sets of shards");
    add(!shape.reshard_after_forward, "stays gathered");
    add(shape.accumulates, "accumulates");
    add(shape.reduces_always, "reduces always");
    add(shape.adjust != plain.adjust, "other implementation");
    add(!shape.order.empty(), "mesh " + shape.order);
    add(!shape.stage_layers.empty(), "uneven stages");
    add(shape.micro_batch_size > 1, "micro-batch of several");
    add(shape.precision != std::string(plain.precision), shape.precision);
    add(shape.vocabulary_parallel != plain.vocabulary_parallel, std::string(name_of(shape.vocabulary_parallel)));
    add(shape.memory.recompute != plain.memory.recompute, std::string(name_of(shape.memory.recompute)));
    add(shape.memory.offload_layers > 0, "offloaded activations");
    add(shape.memory.offload_optimizer, "offloaded optimizer");
    add(shape.memory.offload_parameters, "offloaded parameters");
    add(shape.memory.shards_checkpoints, "cut checkpoints");
    add(trains_with_dropout(one.model), "dropout");
    return found;
}

std::set<Pair> pairs_of(const Case& one) {
    const std::vector<std::string> techniques = techniques_of(one);
    std::set<Pair> pairs{{one.model, ""}};
    for (const std::string& a : techniques) {
        pairs.insert({a, ""});
        for (const std::string& b : techniques) {
            if (a < b) pairs.insert({a, b});
        }
    }
    return pairs;
}

}  // namespace

Pruned pruned_pairwise(const std::vector<Case>& cases) {
    std::vector<std::set<Pair>> missing(cases.size());
    std::transform(cases.begin(), cases.end(), missing.begin(), pairs_of);
    std::vector<bool> kept(cases.size());
    for (;;) {
        const auto most = std::max_element(missing.begin(), missing.end(),
                                           [](const auto& a, const auto& b) { return a.size() < b.size(); });
        if (most == missing.end() || most->empty()) break;
        kept[static_cast<std::size_t>(most - missing.begin())] = true;
        const std::set<Pair> met = *most;
        for (std::set<Pair>& pairs : missing) {
            for (const Pair& pair : met) pairs.erase(pair);
        }
    }
    Pruned result;
    for (std::size_t i = 0; i < cases.size(); ++i) (kept[i] ? result.kept : result.others).push_back(cases[i]);
    return result;
}

}  // namespace orrery::parity
