#include "topologies/importers/import_file.h"

#include <filesystem>

#include "core/enum_names.h"
#include "core/error.h"
#include "core/letters.h"
#include "topologies/importers/ibnetdiscover.h"
#include "topologies/importers/slurm_topology.h"

namespace orrery::topologies {
namespace {

constexpr std::size_t kSniffedBytes = 65536;
constexpr const char* kFormats =
    "NCCL topology or graph XML, nvidia-smi topo -m, Slurm topology.conf or topology.yaml, a topograph model, "
    "ibnetdiscover";

/// The name of the first element, after comments, declarations and processing instructions.
std::string_view root_name(std::string_view text) {
    while (true) {
        const std::size_t open = text.find('<');
        if (open == std::string_view::npos || open + 1 >= text.size()) return {};
        text.remove_prefix(open + 1);
        if (text.front() != '!' && text.front() != '?') break;
        const std::size_t end = text.starts_with("!--") ? text.find("-->") : text.find('>');
        if (end == std::string_view::npos) return {};
        text.remove_prefix(end);
    }
    return text.substr(0, text.find_first_of(" \t\r\n/>"));
}

std::optional<ForeignFormat> format_of_line(std::string_view line) {
    const std::vector<std::string_view> words = words_of(line);
    if (words.empty()) return std::nullopt;
    const std::string first = lower_case(words.front());
    for (const char* key : {"switchname=", "blockname=", "ringname=", "blocksizes="}) {
        if (first.starts_with(key)) return ForeignFormat::slurm_conf;
    }
    if (first.starts_with("vendid=") || first.starts_with("switchguid=") || words.front() == "Switch" ||
        words.front() == "Ca") {
        return ForeignFormat::ibnetdiscover;
    }
    if (words.front().find("GPU0") != std::string_view::npos) return ForeignFormat::smi_topo;
    if (words.front() == "-" && words.size() > 1 && words[1].starts_with("topology:")) return ForeignFormat::slurm_yaml;
    if (line.starts_with("switches:") || line.starts_with("blocks:")) return ForeignFormat::topograph;
    return std::nullopt;
}

}  // namespace

std::string name_of(ForeignFormat format) {
    static constexpr auto kNames = name_table<ForeignFormat::ibnetdiscover>(
        {"NCCL topology XML", "NCCL graph XML", "nvidia-smi topo -m", "Slurm topology.conf", "Slurm topology.yaml",
         "topograph model", "ibnetdiscover"});
    return std::string(kNames[format]);
}

std::optional<ForeignFormat> format_of(const std::string& text) {
    const std::string_view start = std::string_view(text).substr(0, kSniffedBytes);
    const std::size_t first = start.find_first_not_of(" \t\r\n\xef\xbb\xbf");
    if (first != std::string_view::npos && start[first] == '<') {
        const std::string_view root = root_name(start);
        if (root == "system") return ForeignFormat::nccl_topology;
        if (root == "graphs") return ForeignFormat::nccl_graph;
        return std::nullopt;
    }
    for (const std::string_view line : lines_of(start, "")) {
        if (const std::optional<ForeignFormat> format = format_of_line(line)) return format;
    }
    return std::nullopt;
}

const std::vector<std::string>& ForeignFile::notes() const {
    return node ? node->notes.list() : fabric ? fabric->notes.list() : graphs->notes.list();
}

ForeignFile foreign_from_text(const std::string& text, const std::string& file) {
    check_foreign_text(text, file);
    const std::optional<ForeignFormat> format = format_of(text);
    if (!format) throw InputError(file + ": unknown format; allowed: " + kFormats);
    ForeignFile result;
    result.file = file;
    result.format = *format;
    switch (*format) {
        case ForeignFormat::nccl_topology:
            result.node = describe_node(nccl_topology_from_text(text, file), file);
            break;
        case ForeignFormat::nccl_graph:
            result.graphs = nccl_graphs_from_text(text, file);
            break;
        case ForeignFormat::smi_topo:
            result.node = describe_node(smi_topo_from_text(text, file), file);
            break;
        case ForeignFormat::slurm_conf:
            result.fabric = slurm_conf_from_text(text, file);
            break;
        case ForeignFormat::slurm_yaml: {
            std::vector<FabricDescription> all = slurm_yaml_from_text(text, file);
            if (all.size() > 1) {
                all.front().notes.add("topology " + shown(all.front().name) + " is taken, of " +
                                      std::to_string(all.size()) + " in the file: the default, else the first");
            }
            result.fabric = std::move(all.front());
            break;
        }
        case ForeignFormat::topograph:
            result.fabric = topograph_from_text(text, file);
            break;
        case ForeignFormat::ibnetdiscover:
            result.fabric = fabric_of(ibnetdiscover_from_text(text, file));
            break;
    }
    return result;
}

ForeignFile read_foreign(const std::string& path) {
    return foreign_from_text(read_foreign_file(path), path);
}

ClusterSpec import_cluster(const std::vector<ForeignFile>& files, const std::string& node_of,
                           const ImportOptions& options, Notes& notes) {
    const ForeignFile* node = nullptr;
    const ForeignFile* fabric = nullptr;
    for (const ForeignFile& one : files) {
        if (one.graphs) {
            notes.add(one.file + ": the channels NCCL chose are shown, not kept: a cluster holds no channels");
            continue;
        }
        const ForeignFile*& slot = one.node ? node : fabric;
        if (slot != nullptr) {
            throw InputError(one.file + ": a second " + (one.node ? "node" : "fabric") + ", after " + slot->file +
                             "; allowed: one node and one fabric");
        }
        slot = &one;
    }
    if (node != nullptr && !node_of.empty()) {
        throw InputError("--node", "value", node_of, "none, since " + node->file + " describes the node");
    }
    if (node == nullptr && node_of.empty()) {
        throw InputError(
            "no file describes a node; give --node, a cluster whose node is used (orrery clusters lists them)");
    }
    ClusterSpec cluster;
    if (node != nullptr) {
        cluster = cluster_of_node(*node->node, node->file, options, notes);
        if (fabric == nullptr && cluster.nics_per_node > 0) {
            notes.add("no file describes a fabric: taken as rail-optimised, 32 nodes a scalable unit, non-blocking");
        }
    } else {
        cluster = load_cluster(node_of, 1);
        if (fabric != nullptr) cluster.name = printable(std::filesystem::path(fabric->file).filename().string());
    }
    if (fabric != nullptr) set_fabric(cluster, *fabric->fabric, fabric->file, notes);
    return cluster;
}

}  // namespace orrery::topologies
