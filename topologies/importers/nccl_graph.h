// NCCL's graph XML (NCCL_GRAPH_DUMP_FILE, NCCL_GRAPH_FILE): the channels that NCCL's search chose on one machine for
// each algorithm, with their bandwidths.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topologies/importers/foreign_text.h"

namespace orrery::topologies {

/// The devices that one channel visits, in order, with the NICs at its ends if it leaves the node.
struct NcclChannel {
    std::vector<std::int64_t> gpus;  // <gpu dev>
    std::vector<std::int64_t> nets;  // <net dev>: empty on one node
};

struct NcclGraph {
    std::int64_t id = 0;       // 0 ring, 1 tree, 2 CollNet chain, 3 NVLS, 4 CollNet direct
    std::int64_t pattern = 0;  // 1 balanced tree, 2 split tree, 3 tree, 4 ring, 5 NVLS, 6 CollNet direct
    bool cross_nic = false;
    double intra_gb_per_s_per_channel = 0, inter_gb_per_s_per_channel = 0;
    double inter_latency_us = 0;
    std::string intra_path, inter_path;  // nearest to farthest: LOC NVL NVB C2C PIX PXB P2C PXN PHB SYS NET
    bool same_channels = false;
    std::int64_t channel_count = 0;  // nchannels; 0 if the algorithm cannot be used
    std::vector<NcclChannel> channels;
};

struct NcclGraphs {
    std::vector<NcclGraph> graphs;
    Notes notes;
};

[[nodiscard]] std::string name_of_graph(std::int64_t id);
[[nodiscard]] std::string name_of_pattern(std::int64_t pattern);

/// Has the limits and errors of nccl_topology_from_text.
[[nodiscard]] NcclGraphs nccl_graphs_from_text(const std::string& text, const std::string& file);

}  // namespace orrery::topologies
