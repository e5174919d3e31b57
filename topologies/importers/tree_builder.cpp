#include "topologies/importers/tree_builder.h"

#include <utility>

#include "core/error.h"
#include "topologies/importers/hostlist.h"

namespace orrery::topologies {

std::vector<std::string> counted_hostlist(std::string_view list, const std::string& place, std::int64_t& total) {
    std::vector<std::string> names = expand_hostlist(list, place, kMostForeignItems - total);
    total += static_cast<std::int64_t>(names.size());
    return names;
}

void TreeBuilder::add(Entry entry) {
    const auto [known, is_new] = index_.emplace(entry.name, static_cast<std::int64_t>(entries_.size()));
    if (!is_new) throw InputError(entry.place + ": switch " + shown(entry.name) + " appears twice; allowed: once");
    entries_.push_back(std::move(entry));
}

void TreeBuilder::build(FabricDescription& fabric, bool leaves_may_be_unlisted) const {
    std::map<std::string, std::int64_t> index = index_;
    for (const Entry& entry : entries_) {
        FabricSwitch one;
        one.name = entry.name;
        one.nodes = entry.nodes;
        fabric.switches.push_back(std::move(one));
    }
    for (std::size_t i = 0; i < entries_.size(); ++i) {
        for (const std::string& name : entries_[i].switches) {
            const auto [found, is_new] = index.emplace(name, static_cast<std::int64_t>(fabric.switches.size()));
            if (is_new) {
                if (!leaves_may_be_unlisted) {
                    throw InputError(entries_[i].place + ": Switches: got " + shown(name) +
                                     "; allowed: a switch that the file describes");
                }
                FabricSwitch leaf;
                leaf.name = name;
                fabric.switches.push_back(std::move(leaf));
            }
            fabric.switches[i].switches.push_back(found->second);
            fabric.switches[i].switch_links.push_back(1);
        }
    }
    finish_tree(fabric, file_);
}

}  // namespace orrery::topologies
