#include <algorithm>
#include <map>

#include "core/error.h"
#include "core/letters.h"
#include "topologies/importers/slurm_topology.h"
#include "topologies/importers/tree_builder.h"
#include "topologies/importers/yaml_value.h"

namespace orrery::topologies {
namespace {

using Kind = YamlValue::Kind;

/// One map of the file. Values are requested by name; finish() adds a note for each key that was not requested.
class Map {
  public:
    Map(const YamlValue& value, std::string what, const std::string& file)
        : value_(value), what_(std::move(what)), file_(file) {
        expect_kind(value, Kind::map, file, what_);
    }

    [[nodiscard]] std::string place(const std::string& key) const {
        const YamlValue* found = value_.find(key);
        return line_place(file_, static_cast<std::size_t>((found ? found->line : value_.line) - 1)) + ": " + what_ +
               ": " + key;
    }
    const YamlValue* find(const std::string& key) {
        asked_.push_back(key);
        return value_.find(key);
    }
    std::string text(const std::string& key) {
        const YamlValue* found = find(key);
        if (found == nullptr) throw InputError(place(key) + ": the key is missing");
        expect_kind(*found, Kind::scalar, file_, what_ + ": " + key);
        if (found->scalar.empty()) throw InputError(place(key) + ": got ''; allowed: a value");
        return found->scalar;
    }
    std::vector<YamlValue> list(const std::string& key) {
        const YamlValue* found = find(key);
        if (found == nullptr) throw InputError(place(key) + ": the key is missing");
        expect_kind(*found, Kind::list, file_, what_ + ": " + key);
        return found->list;
    }
    /// The hosts of a hostlist or a list of hostlists; none if the key is missing.
    std::vector<std::string> hosts(const std::string& key, std::int64_t& total) {
        const YamlValue* found = find(key);
        if (found == nullptr || found->kind == Kind::null) return {};
        if (found->kind == Kind::scalar) return counted_hostlist(found->scalar, place(key), total);
        std::vector<std::string> all;
        for (const YamlValue& item : list(key)) {
            expect_kind(item, Kind::scalar, file_, what_ + ": " + key);
            const std::vector<std::string> some = counted_hostlist(item.scalar, place(key), total);
            all.insert(all.end(), some.begin(), some.end());
        }
        return all;
    }
    void finish(Notes& notes) const {
        for (const auto& [key, value] : value_.map) {
            if (std::find(asked_.begin(), asked_.end(), key) == asked_.end())
                notes.add(what_ + ": " + key + ": not read");
        }
    }

  private:
    const YamlValue& value_;
    std::string what_;
    const std::string& file_;
    std::vector<std::string> asked_;
};

class SlurmReader {
  public:
    explicit SlurmReader(const std::string& file) : file_(file) {}

    FabricDescription read(const YamlValue& value, bool& is_default) {
        Map map(value, "topology", file_);
        fabric_.format = "Slurm topology.yaml";
        fabric_.name = printable(map.text("topology"));
        is_default = false;
        if (const YamlValue* found = map.find("cluster_default"); found != nullptr) {
            const std::string word = lower_case(map.text("cluster_default"));
            if (word != "true" && word != "false") {
                throw InputError(map.place("cluster_default"), "value", shown(word), "true or false");
            }
            is_default = word == "true";
        }
        int shapes = 0;
        for (const char* shape : {"tree", "block", "ring", "torus3d", "flat"}) {
            const YamlValue* found = map.find(shape);
            if (found == nullptr) continue;
            if (++shapes > 1) break;
            read_shape(shape, *found);
        }
        if (shapes != 1) {
            throw InputError(map.place("topology") + ": " + shown(fabric_.name) + ": got " +
                             (shapes == 0 ? "none" : "several") +
                             "; allowed: one of tree, block, ring, torus3d and flat");
        }
        map.finish(fabric_.notes);
        return std::move(fabric_);
    }

  private:
    void read_shape(const std::string& shape, const YamlValue& value) {
        if (shape == "tree") return read_tree(value);
        if (shape == "block") return read_block(value);
        if (shape == "ring") return read_rings(value);
        if (shape == "torus3d") return read_torus(value);
        fabric_.layout = FabricLayout::flat;
    }

    void read_tree(const YamlValue& value) {
        fabric_.layout = FabricLayout::tree;
        Map tree(value, "tree", file_);
        TreeBuilder builder(file_);
        for (const YamlValue& item : tree.list("switches")) {
            Map map(item, "switch", file_);
            TreeBuilder::Entry entry{map.place("switch"), map.text("switch"), {}, {}};
            entry.switches = map.hosts("children", total_);
            entry.nodes = map.hosts("nodes", total_);
            map.finish(fabric_.notes);
            if (entry.switches.empty() == entry.nodes.empty()) {
                throw InputError(entry.place + ": " + shown(entry.name) + ": got " +
                                 (entry.nodes.empty() ? "neither" : "both") + "; allowed: either children or nodes");
            }
            builder.add(std::move(entry));
        }
        tree.finish(fabric_.notes);
        builder.build(fabric_, false);
    }

    void read_block(const YamlValue& value) {
        fabric_.layout = FabricLayout::block;
        Map block(value, "block", file_);
        if (const YamlValue* sizes = block.find("block_sizes"); sizes != nullptr) {
            for (const YamlValue& item : block.list("block_sizes")) {
                fabric_.block_sizes.push_back(integer(item, block.place("block_sizes")));
            }
        }
        read_groups(block, "blocks", "block", fabric_.blocks);
        block.finish(fabric_.notes);
    }

    void read_rings(const YamlValue& value) {
        fabric_.layout = FabricLayout::ring;
        Map ring(value, "ring", file_);
        std::vector<FabricBlock> rings;
        read_groups(ring, "rings", "ring", rings);
        ring.finish(fabric_.notes);
    }

    void read_torus(const YamlValue& value) {
        fabric_.layout = FabricLayout::torus;
        Map torus(value, "torus3d", file_);
        std::vector<YamlValue> all = torus.list("toruses");
        if (all.size() != 1) {
            throw InputError(torus.place("toruses") + ": got " + std::to_string(all.size()) + "; allowed: one torus");
        }
        Map map(all.front(), "torus", file_);
        std::int64_t places = 1;
        for (const char* axis : {"x", "y", "z"}) {
            const YamlValue* found = map.find(axis);
            if (found == nullptr) throw InputError(map.place(axis) + ": the key is missing");
            fabric_.torus_dimensions.push_back(integer(*found, map.place(axis)));
            if (__builtin_mul_overflow(places, fabric_.torus_dimensions.back(), &places))
                places = kMostForeignItems + 1;
        }
        fabric_.nodes = map.hosts("nodes", total_);
        check_once(fabric_.nodes, map.place("nodes"));
        if (static_cast<std::int64_t>(fabric_.nodes.size()) != places) {
            throw InputError(map.place("nodes") + ": got " + std::to_string(fabric_.nodes.size()) +
                             " nodes; allowed: x * y * z");
        }
        map.finish(fabric_.notes);
        torus.finish(fabric_.notes);
    }

    void read_groups(Map& map, const std::string& list, const std::string& name, std::vector<FabricBlock>& groups) {
        for (const YamlValue& item : map.list(list)) {
            Map one(item, name, file_);
            groups.push_back({one.text(name), one.hosts("nodes", total_)});
            if (groups.back().nodes.empty()) throw InputError(one.place("nodes") + ": got none; allowed: a hostlist");
            fabric_.nodes.insert(fabric_.nodes.end(), groups.back().nodes.begin(), groups.back().nodes.end());
            one.finish(fabric_.notes);
        }
        if (groups.empty()) throw InputError(map.place(list) + ": got none; allowed: at least one " + name);
        check_once(fabric_.nodes, map.place(list));
    }

    static void check_once(const std::vector<std::string>& nodes, const std::string& place) {
        std::vector<std::string> sorted = nodes;
        std::sort(sorted.begin(), sorted.end());
        const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
        if (twice != sorted.end())
            throw InputError(place + ": node " + shown(*twice) + " appears twice; allowed: once");
    }

    [[nodiscard]] static std::int64_t integer(const YamlValue& value, const std::string& place) {
        const std::optional<std::int64_t> number = integer_of(value.scalar);
        if (value.kind != Kind::scalar || !number || *number < 1 || *number > kMostForeignItems) {
            throw InputError(place + ": got " + shown(value.scalar) +
                             "; allowed: " + range_text({1, kMostForeignItems}));
        }
        return *number;
    }

    const std::string& file_;
    FabricDescription fabric_;
    std::int64_t total_ = 0;
};

}  // namespace

std::vector<FabricDescription> slurm_yaml_from_text(const std::string& text, const std::string& file) {
    const YamlValue root = yaml_from_text(text, file);
    expect_kind(root, Kind::list, file, "topologies");
    std::vector<FabricDescription> all;
    for (const YamlValue& item : root.list) {
        bool is_default = false;
        FabricDescription one = SlurmReader(file).read(item, is_default);
        all.insert(is_default ? all.begin() : all.end(), std::move(one));
    }
    if (all.empty()) throw InputError(file + ": got no topology; allowed: at least one");
    return all;
}

FabricDescription topograph_from_text(const std::string& text, const std::string& file) {
    const YamlValue root = yaml_from_text(text, file);
    Map model(root, "model", file);
    FabricDescription fabric;
    fabric.format = "topograph model";
    std::map<std::string, TreeBuilder::Entry> entries;
    std::vector<std::string> order;
    const auto entry_of = [&](const std::string& name, const std::string& place) -> TreeBuilder::Entry& {
        const auto [entry, is_new] = entries.try_emplace(name, TreeBuilder::Entry{place, name, {}, {}});
        if (is_new) order.push_back(name);
        return entry->second;
    };
    std::int64_t total = 0;
    if (const YamlValue* switches = model.find("switches"); switches != nullptr) {
        expect_kind(*switches, Kind::map, file, "switches");
        for (const auto& [name, value] : switches->map) {
            Map map(value, "switch " + shown(name), file);
            entry_of(name, map.place("switches")).switches = map.hosts("switches", total);
            map.finish(fabric.notes);
        }
    }
    for (const YamlValue& item : model.list("blocks")) {
        Map map(item, "block", file);
        TreeBuilder::Entry& leaf = entry_of(map.text("switch"), map.place("switch"));
        const std::vector<std::string> nodes = map.hosts("nodes", total);
        leaf.nodes.insert(leaf.nodes.end(), nodes.begin(), nodes.end());
        if (const YamlValue* annotations = map.find("annotations"); annotations != nullptr) {
            expect_kind(*annotations, Kind::map, file, "annotations");
            for (const auto& [key, value] : annotations->map) {
                if (key.ends_with("/domain")) fabric.blocks.push_back({value.scalar, nodes});
            }
        }
        map.finish(fabric.notes);
    }
    model.finish(fabric.notes);
    TreeBuilder builder(file);
    for (const std::string& name : order) builder.add(entries.at(name));
    builder.build(fabric, true);
    return fabric;
}

}  // namespace orrery::topologies
