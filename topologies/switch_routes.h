// Shortest routes between the fabric switches of a graph that avoid failed links, with ECMP-like choice among equals.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "topologies/graph.h"

namespace orrery::topologies {

/// Stores one column of distances per destination queried so far, 2 bytes per switch, computed by breadth-first search
/// on the first query: 5,000 switches with 4,096 destinations in use take 40 MB. Safe for concurrent callers.
class SwitchRoutes {
  public:
    explicit SwitchRoutes(const Graph& graph);
    ~SwitchRoutes();
    SwitchRoutes(const SwitchRoutes&) = delete;
    SwitchRoutes& operator=(const SwitchRoutes&) = delete;

    /// Number of links of a shortest route; -1: there is none. BugError if a vertex is not a fabric switch.
    [[nodiscard]] std::int64_t distance(VertexId from, VertexId to) const;
    /// Appends the links of one shortest route, which must exist. At a switch where c links lead closer, the route
    /// takes the (choice mod c)-th, in the order of the switches they reach, and passes choice / c on to the next
    /// switch. Consecutive choices therefore cover all routes evenly.
    void append_route(VertexId from, VertexId to, std::uint64_t choice, std::vector<LinkId>& links) const;
    /// Bytes that the tables hold now.
    [[nodiscard]] std::int64_t bytes() const;

  private:
    using Hops = std::uint16_t;
    /// Links to switches [to, to + count), by index in columns_, with consecutive ids from `link`. The uplinks and the
    /// downlinks of a tree are one run each, so that the search for links that lead closer reads memory in order.
    struct Run {
        std::int32_t to = 0, count = 0;
        LinkId link = 0;
    };
    [[nodiscard]] std::size_t index_of(VertexId vertex) const;
    [[nodiscard]] const Hops* column(std::size_t to) const;
    [[nodiscard]] std::unique_ptr<Hops[]> search(std::size_t to) const;

    std::vector<std::int32_t> index_;  // by vertex - first_; -1: not a fabric switch
    VertexId first_ = 0;               // the first switch
    std::vector<Run> out_;             // working links, by the switch they leave
    std::vector<std::int32_t> first_out_;
    std::vector<std::int32_t> in_;  // predecessors of each switch
    std::vector<std::int32_t> first_in_;
    mutable std::vector<std::atomic<const Hops*>> columns_;
};

}  // namespace orrery::topologies
