#include "sim/network/operation.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "core/error.h"
#include "models/token_routing.h"
#include "sim/network/nccl_model.h"
#include "sim/program/token_dispatch.h"
#include "sim/program/work_rates.h"

namespace orrery::sim {
namespace {

using program::CommKind;

/// Multiprocessors that DeepSeek-V3's kernels for dispatch and combination occupy.
constexpr double kDispatchUnits = 20;

GroupedTransfers dispatch_transfers(const models::TokenRouting& routing, std::int64_t bytes, const GroupPlacement& p) {
    const program::DispatchBytes sent =
        program::dispatch_bytes(routing, bytes, {.ranks = p.ranks, .nodes = p.nodes, .members = p.max_members});
    GroupedTransfers transfers{.port_transfers = p.max_members - 1,
                               .port_bytes = sent.port,
                               .nic_transfers = p.nodes - 1,
                               .nic_bytes = sent.nic,
                               .own_bytes = sent.own,
                               .nic_sharers = std::max<std::int64_t>(p.nic_sharers, 1),
                               .inter_latency = p.inter_latency};
    if (transfers.port_transfers > 0) transfers.message_bytes = sent.port / transfers.port_transfers;
    if (transfers.nic_transfers > 0) {
        transfers.message_bytes = std::max(transfers.message_bytes, sent.nic / transfers.nic_transfers);
    }
    return transfers;
}

}  // namespace

Operation operation_of(const program::Communication& communication) {
    const bool receive = communication.kind == CommKind::recv;
    return {receive ? CommKind::send : communication.kind, communication.bytes(), communication.tokens_once};
}

CollectiveCost dispatch_cost(const models::TokenRouting& routing, std::int64_t bytes, const GroupPlacement& placement,
                             const topologies::ClusterSpec& cluster) {
    ORRERY_CHECK(bytes >= 0, "a message size of " + std::to_string(bytes) + " bytes");
    ORRERY_CHECK(!cluster.ranks_may_share_devices(), "tokens that travel once between CPU ranks");
    if (placement.ranks == 1) return {};
    const GroupedTransfers transfers = dispatch_transfers(routing, bytes, placement);
    const NcclTime time = nccl_grouped(transfers, placement, cluster);
    return {.latency = picoseconds_from_seconds(time.latency_seconds),
            .seconds = time.seconds,
            .source = TimeSource::nccl,
            .algorithm = Algorithm::hierarchical,
            .detail = std::string(name_of(time.protocol)),
            .intra_node_bytes = transfers.port_bytes,
            .nic_bytes = transfers.nic_bytes};
}

KernelDemand dispatch_demand(const CollectiveCost& cost, const topologies::ClusterSpec& cluster) {
    const double moved = static_cast<double>(cost.intra_node_bytes + cost.nic_bytes);
    if (!cluster.device.collective_kernels || moved == 0) return {};
    return {kDispatchUnits, static_cast<std::int64_t>(moved * cluster.device.collective_kernels->memory_passes.value)};
}

OperationPrice price_of(const Operation& operation, program::GroupAxis axis, const GroupPlacement& placement,
                        const topologies::ClusterSpec& cluster) {
    const std::int64_t bytes = operation.bytes;
    if (operation.tokens_once) {
        const models::TokenRouting& routing = *operation.tokens_once;
        const CollectiveCost cost = dispatch_cost(routing, bytes, placement, cluster);
        // Between nodes a token has not one copy for each of its experts but one for each of their nodes.
        const double copies = models::expected_places(routing, placement.nodes);
        const auto loading = static_cast<double>(bytes) * copies / static_cast<double>(routing.top_k);
        return {cost, dispatch_demand(cost, cluster), std::llround(loading)};
    }
    if (program::is_piece(operation.kind, axis)) {
        const CollectiveCost cost = piece_cost(bytes, placement, cluster);
        return {cost, piece_demand(bytes, cost, placement, cluster), bytes};
    }
    const CollectiveCost cost = collective_cost(operation.kind, bytes, placement, cluster);
    return {cost, kernel_demand(operation.kind, bytes, cost, placement, cluster), bytes};
}

}  // namespace orrery::sim
