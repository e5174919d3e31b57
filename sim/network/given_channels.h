// Channels that NCCL is given (NCCL_GRAPH_FILE) instead of those that its search finds.
#pragma once

#include <string>
#include <vector>

#include "sim/network/collectives.h"
#include "topologies/importers/nccl_graph.h"

namespace orrery::sim {

/// What a graph file gives each algorithm of a group: ring, tree, and NVLS and its tree alike; CollNet's graphs are not
/// used. Throws InputError naming the file where it is of another node: other than as many GPUs a channel as the group
/// has on each node, and no NIC at a channel's ends where the group spans several.
[[nodiscard]] std::vector<GivenChannels> given_channels(const topologies::NcclGraphs& graphs, const std::string& file,
                                                        const GroupPlacement& placement);

/// What the file says of the algorithm; nullptr: nothing.
[[nodiscard]] const GivenChannels* given_for(Algorithm algorithm, const CollectiveOptions& options);

}  // namespace orrery::sim
