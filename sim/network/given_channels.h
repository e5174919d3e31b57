// Channels that NCCL reads from a file (NCCL_GRAPH_FILE) instead of searching for them.
#pragma once

#include <string>
#include <vector>

#include "sim/network/collectives.h"
#include "topologies/importers/nccl_graph.h"

namespace orrery::sim {

/// The channels that a graph file gives ring, tree, NVLS and NVLS tree (the last two share a graph); CollNet's graphs
/// are not used. Throws InputError naming the file if it does not match the group's nodes: a channel must have as many
/// GPUs as the group has members on each node and, if the group spans several nodes, a NIC at its ends.
[[nodiscard]] std::vector<GivenChannels> given_channels(const topologies::NcclGraphs& graphs, const std::string& file,
                                                        const GroupPlacement& placement);

/// The algorithm's entry in options.given_channels; nullptr if there is none.
[[nodiscard]] const GivenChannels* given_for(Algorithm algorithm, const CollectiveOptions& options);

}  // namespace orrery::sim
