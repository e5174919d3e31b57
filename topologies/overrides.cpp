#include "topologies/overrides.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/error.h"
#include "topologies/names.h"

namespace orrery::topologies {
namespace {

constexpr LinkKind kKinds[] = {LinkKind::intra_node, LinkKind::host,       LinkKind::nic,
                               LinkKind::trunk,      LinkKind::core_trunk, LinkKind::socket};

bool inside_a_node(VertexKind kind) {
    return !is_fabric_switch(kind);
}

/// Whether the end lies in the override's node and on its rail, where given.
bool touches(const LinkOverride& wanted, const Vertex& end) {
    if (wanted.node >= 0 && !(inside_a_node(end.kind) && end.group == wanted.node)) return false;
    if (wanted.rail < 0) return true;
    return end.kind == VertexKind::nic ? end.index == wanted.rail
                                       : !inside_a_node(end.kind) && end.plane == wanted.rail;
}

}  // namespace

LinkOverrides::LinkOverrides(const ClusterSpec& spec, const Find& find) : cluster_("cluster " + spec.name) {
    std::vector<Rule> singles;
    std::vector<std::string> kinds;
    for (const LinkKind kind : kKinds) kinds.push_back(name_of(kind));
    for (const LinkOverride& wanted : spec.overrides) {
        Rule rule;
        rule.source = &wanted;
        const std::size_t dash = wanted.link.find(" - ");
        if (dash == std::string::npos) {
            const auto kind = std::find(kinds.begin(), kinds.end(), wanted.link);
            if (kind == kinds.end()) {
                throw InputError(cluster_, "overrides: link", "'" + wanted.link + "'",
                                 "the names of two vertices with ' - ' between them, or one of " + join_names(kinds));
            }
            rule.kind = kKinds[kind - kinds.begin()];
            rules_.push_back(rule);
            continue;
        }
        const auto end = [&](const std::string& name) {
            const std::optional<VertexId> found = find(name);
            if (!found) {
                throw InputError(cluster_, "overrides: link", "'" + name + "'",
                                 "a vertex of the cluster, such as 'leaf 0' or 'node 0 nic 0'");
            }
            return *found;
        };
        std::tie(rule.a, rule.b) = std::minmax({end(wanted.link.substr(0, dash)), end(wanted.link.substr(dash + 3))});
        singles.push_back(rule);
    }
    first_single_ = rules_.size();
    std::stable_sort(singles.begin(), singles.end(),
                     [](const Rule& x, const Rule& y) { return std::pair(x.a, x.b) < std::pair(y.a, y.b); });
    rules_.insert(rules_.end(), singles.begin(), singles.end());
}

void LinkOverrides::apply(Link& link, const Vertex& from, const Vertex& to) {
    if (rules_.empty()) return;
    const BytesPerSecond nominal = link.bandwidth;
    const auto set = [&](Rule& rule) {
        rule.used = true;
        link.failed = rule.source->bandwidth_fraction == 0;
        if (!link.failed) link.bandwidth = nominal * rule.source->bandwidth_fraction;
    };
    for (std::size_t i = 0; i < first_single_; ++i) {
        Rule& rule = rules_[i];
        if (rule.kind == link.kind && (touches(*rule.source, from) || touches(*rule.source, to))) set(rule);
    }
    const std::pair<VertexId, VertexId> ends = std::minmax(link.from, link.to);
    auto rule = std::lower_bound(
        rules_.begin() + static_cast<std::ptrdiff_t>(first_single_), rules_.end(), ends,
        [](const Rule& x, const std::pair<VertexId, VertexId>& wanted) { return std::pair(x.a, x.b) < wanted; });
    for (; rule != rules_.end() && std::pair(rule->a, rule->b) == ends; ++rule) set(*rule);
}

void LinkOverrides::check_all_used() const {
    for (const Rule& rule : rules_) {
        if (rule.used) continue;
        const LinkOverride& wanted = *rule.source;
        const auto part = [](const char* word, std::int64_t number) {
            return number < 0 ? "" : std::string(" of ") + word + " " + std::to_string(number);
        };
        throw InputError(cluster_, "overrides: link",
                         "'" + wanted.link + "'" + part("node", wanted.node) + part("rail", wanted.rail),
                         "a link that the cluster has");
    }
}

}  // namespace orrery::topologies
