// Builds the switches of a description from names, which may come in any order.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "topologies/importers/fabric_description.h"

namespace orrery::topologies {

class TreeBuilder {
  public:
    explicit TreeBuilder(std::string file) : file_(std::move(file)) {}

    struct Entry {
        std::string place;  // "FILE: line 3"
        std::string name;
        std::vector<std::string> switches, nodes;
    };
    /// Throws InputError on a name that was there before.
    void add(Entry entry);
    [[nodiscard]] bool empty() const { return entries_.empty(); }
    /// Into fabric.switches and fabric.nodes; a switch that only stands below others is refused unless
    /// `leaves_may_be_unlisted`.
    void build(FabricDescription& fabric, bool leaves_may_be_unlisted) const;

  private:
    std::string file_;
    std::vector<Entry> entries_;
    std::map<std::string, std::int64_t> index_;
};

/// A list of at most kMostForeignItems items over the whole file, counted in `total`.
[[nodiscard]] std::vector<std::string> counted_hostlist(std::string_view list, const std::string& place,
                                                        std::int64_t& total);

}  // namespace orrery::topologies
