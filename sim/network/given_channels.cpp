#include "sim/network/given_channels.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::sim {
namespace {

using topologies::NcclGraph;

void check(const NcclGraph& graph, const std::string& file, const GroupPlacement& p) {
    const std::string name = file + ": " + topologies::name_of_graph(graph.id);
    for (const topologies::NcclChannel& channel : graph.channels) {
        const auto gpus = static_cast<std::int64_t>(channel.gpus.size());
        if (gpus != p.max_members || p.min_members != p.max_members) {
            std::string members = std::to_string(p.min_members);
            if (p.min_members != p.max_members) members += " to " + std::to_string(p.max_members);
            throw InputError(name, "<gpu> of a channel", std::to_string(gpus),
                             members + ", the number of members on each node");
        }
        if (p.nodes > 1 && channel.nets.empty()) {
            throw InputError(name +
                             ": a channel without a <net>; allowed: channels that leave the node, since the group "
                             "spans " +
                             std::to_string(p.nodes) + " nodes");
        }
    }
    if (p.nodes > 2 && graph.channel_count > 0 && graph.inter_gb_per_s_per_channel <= 0) {
        throw InputError(name, "speedinter", "0",
                         "more than 0, since the group spans " + std::to_string(p.nodes) + " nodes");
    }
}

}  // namespace

std::vector<GivenChannels> given_channels(const topologies::NcclGraphs& graphs, const std::string& file,
                                          const GroupPlacement& p) {
    std::vector<GivenChannels> given;
    for (const NcclGraph& graph : graphs.graphs) {
        for (const algorithms::Row& row : algorithms::kTable) {
            if (row.nccl.graph != graph.id) continue;
            check(graph, file, p);
            const double each = p.nodes <= 2 ? graph.intra_gb_per_s_per_channel : graph.inter_gb_per_s_per_channel;
            given.push_back({row.algorithm, graph.channel_count, each * kGigabyte});
        }
    }
    return given;
}

const GivenChannels* given_for(Algorithm algorithm, const CollectiveOptions& options) {
    const auto found = std::find_if(options.given_channels.begin(), options.given_channels.end(),
                                    [&](const GivenChannels& one) { return one.algorithm == algorithm; });
    return found == options.given_channels.end() ? nullptr : &*found;
}

}  // namespace orrery::sim
