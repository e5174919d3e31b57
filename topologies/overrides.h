// Applies a cluster's link overrides while its graph is built.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "topologies/cluster_spec.h"
#include "topologies/graph.h"

namespace orrery::topologies {

class LinkOverrides {
  public:
    using Find = std::function<std::optional<VertexId>(const std::string& name)>;
    /// Throws InputError for a vertex that `find` does not know and for a class that does not exist.
    LinkOverrides(const ClusterSpec& spec, const Find& find);
    [[nodiscard]] bool empty() const { return rules_.empty(); }
    /// Applies every override that matches the link: classes first, then the link itself; the last one wins.
    void apply(Link& link, const Vertex& from, const Vertex& to);
    /// Throws InputError for an override that matched no link.
    void check_all_used() const;

  private:
    struct Rule {
        const LinkOverride* source = nullptr;
        std::optional<LinkKind> kind;
        VertexId a = 0, b = 0;  // ends of a single link, a < b
        bool used = false;
    };
    std::string cluster_;
    std::vector<Rule> rules_;  // classes, then single links sorted by their ends
    std::size_t first_single_ = 0;
};

}  // namespace orrery::topologies
