// Builds the switches of a FabricDescription from names, which may come in any order.
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
    /// Throws InputError on a duplicate name.
    void add(Entry entry);
    [[nodiscard]] bool empty() const { return entries_.empty(); }
    /// Fills fabric.switches and fabric.nodes. A switch that is only mentioned below another one, without an entry, is
    /// refused unless `leaves_may_be_unlisted`.
    void build(FabricDescription& fabric, bool leaves_may_be_unlisted) const;

  private:
    std::string file_;
    std::vector<Entry> entries_;
    std::map<std::string, std::int64_t> index_;
};

/// Expands a hostlist and adds its length to `total`, which is limited to kMostForeignItems for the whole file.
[[nodiscard]] std::vector<std::string> counted_hostlist(std::string_view list, const std::string& place,
                                                        std::int64_t& total);

}  // namespace orrery::topologies
