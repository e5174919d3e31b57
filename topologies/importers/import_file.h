// Reads any foreign file, recognised by its content, and combines several into a cluster.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "topologies/importers/import_cluster.h"
#include "topologies/importers/nccl_graph.h"

namespace orrery::topologies {

enum class ForeignFormat : std::uint8_t {
    nccl_topology,
    nccl_graph,
    smi_topo,
    slurm_conf,
    slurm_yaml,
    topograph,
    ibnetdiscover,
};
[[nodiscard]] std::string name_of(ForeignFormat format);

/// The format, recognised from the beginning of the text; empty if unknown.
[[nodiscard]] std::optional<ForeignFormat> format_of(const std::string& text);

/// A foreign file after reading: exactly one of the three optionals is set.
struct ForeignFile {
    std::string file;
    ForeignFormat format{};
    std::optional<NodeDescription> node;
    std::optional<FabricDescription> fabric;
    std::optional<NcclGraphs> graphs;
    [[nodiscard]] const std::vector<std::string>& notes() const;
};

/// Throws InputError naming the file, also when its format is unknown.
[[nodiscard]] ForeignFile foreign_from_text(const std::string& text, const std::string& file);
[[nodiscard]] ForeignFile read_foreign(const std::string& path);

/// Takes at most one node and one fabric. `node_of` names a cluster whose node is used if no file describes one. Throws
/// InputError naming the missing option, or the second file of a kind.
[[nodiscard]] ClusterSpec import_cluster(const std::vector<ForeignFile>& files, const std::string& node_of,
                                         const ImportOptions& options, Notes& notes);

}  // namespace orrery::topologies
