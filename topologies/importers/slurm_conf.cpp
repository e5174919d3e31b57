#include <map>

#include "core/error.h"
#include "core/letters.h"
#include "topologies/importers/slurm_topology.h"
#include "topologies/importers/tree_builder.h"

namespace orrery::topologies {
namespace {

struct Entry {
    std::string place;
    std::map<std::string, std::string> values;  // by lower-case key
};

class SlurmConfReader {
  public:
    SlurmConfReader(const std::string& text, const std::string& file) : file_(file), tree_(file) {
        fabric_.format = "Slurm topology.conf";
        std::string whole;
        std::size_t first = 0;
        const std::vector<std::string_view> lines = lines_of(text, file);
        for (std::size_t i = 0; i < lines.size(); ++i) {
            std::string_view line = lines[i].substr(0, lines[i].find('#'));
            const bool continues = !line.empty() && line.back() == '\\';
            if (continues) line.remove_suffix(1);
            if (whole.empty()) first = i;
            whole += line;
            if (whole.size() > kMostLineBytes) {
                throw InputError(line_place(file, first) + ": longer than 1 MiB with its continuations");
            }
            if (continues) continue;
            read_line(whole, line_place(file, first));
            whole.clear();
        }
        read_line(whole, line_place(file, first));
    }

    FabricDescription finish() {
        const int kinds = (tree_.empty() ? 0 : 1) + (fabric_.blocks.empty() ? 0 : 1) + (rings_.empty() ? 0 : 1);
        if (kinds != 1) {
            throw InputError(file_ + ": got " + (kinds == 0 ? "none" : "several kinds") +
                             "; allowed: lines of one kind, SwitchName=, BlockName= or RingName=");
        }
        if (!tree_.empty()) {
            fabric_.layout = FabricLayout::tree;
            tree_.build(fabric_, false);
        } else {
            fabric_.layout = rings_.empty() ? FabricLayout::block : FabricLayout::ring;
            list_nodes(rings_.empty() ? fabric_.blocks : rings_, rings_.empty() ? "block" : "ring");
        }
        return std::move(fabric_);
    }

  private:
    void read_line(const std::string& line, const std::string& place) {
        const std::vector<std::string_view> words = words_of(line);
        if (words.empty()) return;
        if (lower_case(words.front()) == "include") {
            throw InputError(place + ": got an Include; allowed: the whole topology in one file");
        }
        Entry entry;
        entry.place = place;
        for (const std::string_view word : words) {
            const std::size_t equals = word.find('=');
            if (equals == 0 || equals == std::string_view::npos) {
                throw InputError(place + ": got " + shown(word) + "; allowed: Key=Value");
            }
            const std::string key = lower_case(word.substr(0, equals));
            if (!entry.values.emplace(key, std::string(word.substr(equals + 1))).second) {
                throw InputError(place + ": " + shown(word.substr(0, equals)) +
                                 " appears twice; allowed: once per line");
            }
        }
        read_entry(entry);
    }

    void read_entry(Entry& entry) {
        const auto take = [&](const char* key) {
            const auto found = entry.values.find(key);
            if (found == entry.values.end()) return std::string();
            std::string value = found->second;
            entry.values.erase(found);
            if (value.empty()) throw InputError(entry.place + ": " + key + ": got ''; allowed: a value");
            return value;
        };
        const std::string switch_name = take("switchname"), block_name = take("blockname"),
                          ring_name = take("ringname"), sizes = take("blocksizes"), nodes = take("nodes"),
                          switches = take("switches");
        if (const std::string speed = take("linkspeed"); !speed.empty()) {
            fabric_.notes.add("LinkSpeed: not read; Slurm does not use it either");
        }
        for (const auto& [key, value] : entry.values) {
            throw InputError(entry.place, key, shown(value),
                             "SwitchName, Switches, Nodes, LinkSpeed, BlockName, BlockSizes or RingName");
        }
        if (!switch_name.empty()) {
            add_switch(entry.place, switch_name, switches, nodes);
        } else if (!block_name.empty() || !ring_name.empty()) {
            if (nodes.empty()) throw InputError(entry.place + ": Nodes: missing");
            auto& list = block_name.empty() ? rings_ : fabric_.blocks;
            list.push_back({block_name.empty() ? ring_name : block_name,
                            counted_hostlist(nodes, entry.place + ": Nodes", total_)});
        } else if (!sizes.empty()) {
            read_sizes(sizes, entry.place);
        } else {
            throw InputError(entry.place + ": got no name; allowed: SwitchName=, BlockName=, RingName= or BlockSizes=");
        }
    }

    void add_switch(const std::string& place, const std::string& name, const std::string& switches,
                    const std::string& nodes) {
        if (name.find_first_of("[],") != std::string::npos) {
            throw InputError(place, "SwitchName", shown(name), "the name of one switch");
        }
        if (switches.empty() == nodes.empty()) {
            throw InputError(place + ": " + shown(name) + ": got " + (nodes.empty() ? "neither" : "both") +
                             "; allowed: either Switches= or Nodes=");
        }
        TreeBuilder::Entry entry{place, name, {}, {}};
        if (!switches.empty()) entry.switches = counted_hostlist(switches, place + ": Switches", total_);
        if (!nodes.empty()) entry.nodes = counted_hostlist(nodes, place + ": Nodes", total_);
        tree_.add(std::move(entry));
    }

    void read_sizes(std::string_view sizes, const std::string& place) {
        for (std::size_t at = 0; at <= sizes.size();) {
            const std::size_t end = std::min(sizes.find(',', at), sizes.size());
            const std::optional<std::int64_t> size = integer_of(sizes.substr(at, end - at));
            if (!size || *size < 1 || *size > kMostForeignItems) {
                throw InputError(place, "BlockSizes", shown(sizes), "positive integers between commas");
            }
            fabric_.block_sizes.push_back(*size);
            at = end + 1;
        }
    }

    void list_nodes(const std::vector<FabricBlock>& groups, const std::string& kind) {
        std::map<std::string, std::string> group_of;
        for (const FabricBlock& group : groups) {
            for (const std::string& node : group.nodes) {
                const auto [known, is_new] = group_of.emplace(node, group.name);
                if (!is_new) {
                    throw InputError(file_ + ": node " + shown(node) + " is in " + shown(known->second) + " and in " +
                                     shown(group.name) + "; allowed: one " + kind + " per node");
                }
                fabric_.nodes.push_back(node);
            }
        }
    }

    const std::string& file_;
    TreeBuilder tree_;
    FabricDescription fabric_;
    std::vector<FabricBlock> rings_;
    std::int64_t total_ = 0;
};

}  // namespace

FabricDescription slurm_conf_from_text(const std::string& text, const std::string& file) {
    check_foreign_text(text, file);
    return SlurmConfReader(text, file).finish();
}

}  // namespace orrery::topologies
