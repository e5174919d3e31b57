// LinkOverrides as they meet the links of a cluster while its graph is built.
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
    /// The link with every override that means it; the later ones last.
    void apply(Link& link, const Vertex& from, const Vertex& to);
    /// Throws InputError for an override that met no link.
    void check_all_used() const;

  private:
    struct Rule {
        const LinkOverride* source = nullptr;
        std::optional<LinkKind> kind;
        VertexId a = 0, b = 0;  // of one link, in this order of numbers
        bool used = false;
    };
    std::string cluster_;
    std::vector<Rule> rules_;  // classes, then single links by their ends
    std::size_t first_single_ = 0;
};

}  // namespace orrery::topologies
