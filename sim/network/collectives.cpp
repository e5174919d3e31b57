#include "sim/network/collectives.h"

#include <algorithm>

#include "core/error.h"
#include "sim/network/measured_model.h"
#include "sim/network/nccl_model.h"

namespace orrery::sim {
namespace {

using program::CommKind;

bool is_transfer(CommKind kind) {
    return kind == CommKind::send || kind == CommKind::recv;
}

/// bytes * numerator / denominator, rounded up, without an intermediate that overflows.
std::int64_t fraction_of(std::int64_t bytes, std::int64_t numerator, std::int64_t denominator) {
    const std::int64_t rest = checked_product(bytes % denominator, numerator);
    return checked_product(bytes / denominator, numerator) + rest / denominator + (rest % denominator > 0 ? 1 : 0);
}

/// Splits what a member sends between its port and its NIC. A ring crosses from a node to the next with as many bytes
/// as every other step carries, a tree with 2(k-1)/k S; either is spread over the node's members.
void count_bytes(CommKind kind, std::int64_t bytes, const GroupPlacement& p, CollectiveCost& cost) {
    if (is_transfer(kind)) {
        (p.nodes > 1 ? cost.nic_bytes : cost.intra_node_bytes) = bytes;
        return;
    }
    const std::int64_t passes = kind == CommKind::all_reduce ? 2 : 1;
    const std::int64_t sent = fraction_of(bytes, passes * (p.ranks - 1), p.ranks);
    if (p.nodes > 1) {
        const std::int64_t crossing = cost.algorithm == "tree" ? fraction_of(bytes, 2 * (p.nodes - 1), p.nodes) : sent;
        cost.nic_bytes = std::min(sent, fraction_of(crossing, 1, p.min_members));
    }
    cost.intra_node_bytes = sent - cost.nic_bytes;
}

}  // namespace

CollectiveCost collective_cost(CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                               const topologies::ClusterSpec& cluster) {
    ORRERY_CHECK(bytes >= 0, "a message of " + std::to_string(bytes) + " bytes");
    ORRERY_CHECK(placement.ranks > 0, "a group without members");
    CollectiveCost cost;
    if (placement.ranks == 1) {
        cost.algorithm = "none";
        return cost;
    }
    if (cluster.ranks_may_share_devices()) {
        const MeasuredTime time = measured_time(kind, bytes, placement.ranks, cluster);
        cost.algorithm = "measured";
        cost.detail = time.detail;
        cost.latency = picoseconds_from_seconds(time.latency_seconds);
        cost.seconds = time.seconds;
    } else {
        const AlphaBeta model = is_transfer(kind) ? nccl_transfer(bytes, placement, cluster)
                                                  : nccl_collective(kind, bytes, placement, cluster);
        cost.algorithm = model.algorithm;
        cost.detail = model.protocol;
        cost.latency = picoseconds_from_seconds(model.latency_seconds);
        cost.seconds = model.seconds(bytes);
    }
    count_bytes(kind, bytes, placement, cost);
    return cost;
}

}  // namespace orrery::sim
