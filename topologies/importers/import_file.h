// Any foreign file, known by its content, and the cluster that several of them make together.
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

/// By the text's first marks of a format; nothing when it has none.
[[nodiscard]] std::optional<ForeignFormat> format_of(const std::string& text);

/// One file, read: exactly one of the three is there.
struct ForeignFile {
    std::string file;
    ForeignFormat format{};
    std::optional<NodeDescription> node;
    std::optional<FabricDescription> fabric;
    std::optional<NcclGraphs> graphs;
    [[nodiscard]] const std::vector<std::string>& notes() const;
};

/// Throws InputError naming the file, also when it is of no known format.
[[nodiscard]] ForeignFile foreign_from_text(const std::string& text, const std::string& file);
[[nodiscard]] ForeignFile read_foreign(const std::string& path);

/// At most one node and one fabric; `node_of` names the cluster whose node stands where no file describes one. Throws
/// InputError naming the option that is missing, or the second file of a kind.
[[nodiscard]] ClusterSpec import_cluster(const std::vector<ForeignFile>& files, const std::string& node_of,
                                         const ImportOptions& options, Notes& notes);

}  // namespace orrery::topologies
