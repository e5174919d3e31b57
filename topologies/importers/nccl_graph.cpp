#include "topologies/importers/nccl_graph.h"

#include <algorithm>
#include <set>

#include "core/error.h"
#include "topologies/importers/xml_element.h"

namespace orrery::topologies {
namespace {

constexpr IntegerRange kIndex{0, 1 << 20};
constexpr double kMostGbPerS = 1e6;
const std::vector<std::string>& path_names() {
    static const std::vector<std::string> names{"LOC", "NVL", "NVB", "C2C", "PIX", "PXB",
                                                "P2C", "PXN", "PHB", "SYS", "NET"};
    return names;
}

std::string path_name(const XmlElement& element, const char* attribute) {
    std::string name = element.text(attribute);
    if (std::find(path_names().begin(), path_names().end(), name) == path_names().end()) {
        element.fail(attribute, "LOC, NVL, NVB, C2C, PIX, PXB, P2C, PXN, PHB, SYS or NET");
    }
    return name;
}

NcclChannel read_channel(const XmlElement& element, Notes& notes) {
    element.note_unread({}, notes);
    NcclChannel channel;
    std::set<std::int64_t> seen;
    for (const XmlElement& child : element.children()) {
        if (child.name() == "net") {
            channel.nets.push_back(child.integer("dev", kIndex));
        } else if (child.name() == "gpu") {
            channel.gpus.push_back(child.integer("dev", kIndex));
            if (!seen.insert(channel.gpus.back()).second) child.fail("dev", "each GPU once per channel");
        } else {
            notes.add("<channel> <" + child.name() + ">: not read");
        }
    }
    if (channel.gpus.empty()) throw InputError(element.place() + ": no <gpu>; a channel visits at least one");
    return channel;
}

NcclGraph read_graph(const XmlElement& element, Notes& notes) {
    element.note_unread({"id", "pattern", "crossnic", "nchannels", "speedintra", "speedinter", "latencyinter",
                         "typeintra", "typeinter", "samechannels"},
                        notes);
    NcclGraph graph;
    graph.id = element.integer("id", {0, 4});
    graph.pattern = element.integer("pattern", {1, 6});
    graph.cross_nic = element.integer_or("crossnic", {0, 2}, 0) != 0;
    graph.channel_count = element.integer("nchannels", {0, 1024});
    graph.intra_gb_per_s_per_channel = element.number_or("speedintra", 0, kMostGbPerS, 0);
    graph.inter_gb_per_s_per_channel = element.number_or("speedinter", 0, kMostGbPerS, 0);
    graph.inter_latency_us = element.number_or("latencyinter", 0, 1e9, 0);
    graph.intra_path = path_name(element, "typeintra");
    graph.inter_path = path_name(element, "typeinter");
    graph.same_channels = element.integer_or("samechannels", {0, 1}, 0) != 0;
    for (const XmlElement& child : element.children()) {
        if (child.name() == "channel") {
            graph.channels.push_back(read_channel(child, notes));
        } else {
            notes.add("<graph> <" + child.name() + ">: not read");
        }
    }
    if (static_cast<std::int64_t>(graph.channels.size()) != graph.channel_count) {
        element.fail("nchannels", std::to_string(graph.channels.size()) + ", since so many <channel> follow");
    }
    if (!graph.channels.empty() && graph.intra_gb_per_s_per_channel <= 0) {
        element.fail("speedintra", "more than 0 where there are channels");
    }
    return graph;
}

}  // namespace

std::string name_of_graph(std::int64_t id) {
    static const std::vector<std::string> names{"ring", "tree", "CollNet chain", "NVLS", "CollNet direct"};
    ORRERY_CHECK(id >= 0 && id < static_cast<std::int64_t>(names.size()), "graph id " + std::to_string(id));
    return names[static_cast<std::size_t>(id)];
}

std::string name_of_pattern(std::int64_t pattern) {
    static const std::vector<std::string> names{"balanced tree", "split tree", "tree",
                                                "ring",          "NVLS",       "CollNet direct"};
    ORRERY_CHECK(pattern >= 1 && pattern <= static_cast<std::int64_t>(names.size()),
                 "pattern " + std::to_string(pattern));
    return names[static_cast<std::size_t>(pattern - 1)];
}

NcclGraphs nccl_graphs_from_text(const std::string& text, const std::string& file) {
    const XmlElement root = XmlElement::parse(text, file);
    if (root.name() != "graphs") {
        throw InputError(file + ": the root element is <" + root.name() + ">; allowed: <graphs>");
    }
    const std::int64_t version = root.integer_or("version", kIndex, 1);
    if (version != 1 && version != 2) root.fail("version", "1, or RCCL's 2");
    NcclGraphs graphs;
    std::set<std::int64_t> ids;
    for (const XmlElement& child : root.children()) {
        if (child.name() != "graph") {
            graphs.notes.add("<graphs> <" + child.name() + ">: not read");
            continue;
        }
        graphs.graphs.push_back(read_graph(child, graphs.notes));
        if (!ids.insert(graphs.graphs.back().id).second) child.fail("id", "each algorithm once");
    }
    if (graphs.graphs.empty()) throw InputError(root.place() + ": no <graph>");
    return graphs;
}

}  // namespace orrery::topologies
