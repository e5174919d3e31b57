#include "topologies/importers/fabric_description.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"

namespace orrery::topologies {
namespace {

std::vector<std::int64_t> parents_of(const FabricDescription& fabric, const std::string& file) {
    std::vector<std::int64_t> parent(fabric.switches.size(), -1);
    for (std::size_t up = 0; up < fabric.switches.size(); ++up) {
        for (const std::int64_t down : fabric.switches[up].switches) {
            std::int64_t& known = parent[static_cast<std::size_t>(down)];
            if (known >= 0) {
                throw InputError(file + ": switch " + shown(fabric.switches[static_cast<std::size_t>(down)].name) +
                                 " is below " + shown(fabric.switches[static_cast<std::size_t>(known)].name) +
                                 " and below " + shown(fabric.switches[up].name) + "; allowed: one switch above each");
            }
            known = static_cast<std::int64_t>(up);
        }
    }
    return parent;
}

/// Switches with every switch before those below it; shorter than the list when there is a cycle.
std::vector<std::int64_t> top_down(const FabricDescription& fabric, const std::vector<std::int64_t>& parent) {
    std::vector<std::int64_t> order;
    for (std::size_t i = 0; i < parent.size(); ++i) {
        if (parent[i] < 0) order.push_back(static_cast<std::int64_t>(i));
    }
    for (std::size_t at = 0; at < order.size(); ++at) {
        const FabricSwitch& one = fabric.switches[static_cast<std::size_t>(order[at])];
        order.insert(order.end(), one.switches.begin(), one.switches.end());
    }
    return order;
}

}  // namespace

void finish_tree(FabricDescription& fabric, const std::string& file) {
    const std::vector<std::int64_t> parent = parents_of(fabric, file);
    const std::vector<std::int64_t> order = top_down(fabric, parent);
    if (order.size() != fabric.switches.size()) {
        const std::set<std::int64_t> reached(order.begin(), order.end());
        for (std::size_t i = 0; i < fabric.switches.size(); ++i) {
            if (reached.count(static_cast<std::int64_t>(i)) > 0) continue;
            throw InputError(file + ": switch " + shown(fabric.switches[i].name) + " is below itself; allowed: a tree");
        }
    }
    std::map<std::string, std::string> switch_of;
    for (const FabricSwitch& one : fabric.switches) {
        for (const std::string& node : one.nodes) {
            const auto [known, is_new] = switch_of.emplace(node, one.name);
            if (!is_new) {
                throw InputError(file + ": node " + shown(node) + " is below " + shown(known->second) + " and below " +
                                 shown(one.name) + "; allowed: one switch per node");
            }
            fabric.nodes.push_back(node);
        }
    }
    const auto roots = std::count(parent.begin(), parent.end(), -1);
    if (roots > 1) {
        fabric.notes.add(std::to_string(roots) +
                         " switches have none above them: nodes below different ones do not "
                         "reach each other");
    }
}

std::vector<std::int64_t> tiers_of(const FabricDescription& fabric) {
    std::vector<std::int64_t> waits_for(fabric.switches.size());  // those below it without a tier yet
    std::vector<std::vector<std::int64_t>> above(fabric.switches.size());
    std::vector<std::int64_t> ready;
    for (std::size_t i = 0; i < fabric.switches.size(); ++i) {
        waits_for[i] = static_cast<std::int64_t>(fabric.switches[i].switches.size());
        if (waits_for[i] == 0) ready.push_back(static_cast<std::int64_t>(i));
        for (const std::int64_t down : fabric.switches[i].switches) {
            above[static_cast<std::size_t>(down)].push_back(static_cast<std::int64_t>(i));
        }
    }
    std::vector<std::int64_t> tier(fabric.switches.size(), 1);
    for (std::size_t at = 0; at < ready.size(); ++at) {
        const auto here = static_cast<std::size_t>(ready[at]);
        for (const std::int64_t up : above[here]) {
            const auto there = static_cast<std::size_t>(up);
            tier[there] = std::max(tier[there], tier[here] + 1);
            if (--waits_for[there] == 0) ready.push_back(up);
        }
    }
    ORRERY_CHECK(ready.size() == fabric.switches.size(), "a switch is below itself");
    return tier;
}

}  // namespace orrery::topologies
