// Shortest routes between the fabric switches of a graph, around failed links, with equal-cost choice.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "topologies/graph.h"

namespace orrery::topologies {

/// Distances are kept a column for each destination that was asked for, 2 bytes for each switch, computed by
/// breadth-first search on the first query: 5,000 switches with 4,096 destinations in use take 40 MB. Safe for
/// concurrent callers.
class SwitchRoutes {
  public:
    explicit SwitchRoutes(const Graph& graph);
    ~SwitchRoutes();
    SwitchRoutes(const SwitchRoutes&) = delete;
    SwitchRoutes& operator=(const SwitchRoutes&) = delete;

    /// Links of a shortest route from switch to switch; -1: there is none. BugError for what is no fabric switch.
    [[nodiscard]] std::int64_t distance(VertexId from, VertexId to) const;
    /// Appends the links of one shortest route, which must exist. Where c links lead on, the (choice mod c)-th in order
    /// of the switch they reach is taken and the rest, choice / c, decides at the next: consecutive choices go through
    /// all routes evenly.
    void append_route(VertexId from, VertexId to, std::uint64_t choice, std::vector<LinkId>& links) const;
    /// Bytes that the tables hold now.
    [[nodiscard]] std::int64_t bytes() const;

  private:
    using Hops = std::uint16_t;
    /// Links to switches [to, to + count), as numbered here, with ids from `link` on: uplinks and downlinks of a tree
    /// are one run each, so that looking for those that lead on reads memory in order.
    struct Run {
        std::int32_t to = 0, count = 0;
        LinkId link = 0;
    };
    [[nodiscard]] std::size_t index_of(VertexId vertex) const;
    [[nodiscard]] const Hops* column(std::size_t to) const;
    [[nodiscard]] std::unique_ptr<Hops[]> search(std::size_t to) const;

    std::vector<std::int32_t> index_;  // by vertex, from the first switch on; -1: no fabric switch
    VertexId first_ = 0;
    std::vector<Run> out_;  // links that are up, by the switch they leave
    std::vector<std::int32_t> first_out_;
    std::vector<std::int32_t> in_;  // switches that lead to a switch, by that switch
    std::vector<std::int32_t> first_in_;
    mutable std::vector<std::atomic<const Hops*>> columns_;
};

}  // namespace orrery::topologies
