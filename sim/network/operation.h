// What a communication of a Program costs in a group, however it is run.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>

#include "sim/network/collectives.h"
#include "sim/network/kernel_demand.h"

namespace orrery::sim {

/// A collective, or a send together with its receive (kind is never recv).
struct Operation {
    program::CommKind kind{};
    std::int64_t bytes = 0;                             // message size S, as program::Communication::bytes()
    std::optional<models::TokenRouting> tokens_once{};  // as program::Communication::tokens_once
    auto operator<=>(const Operation&) const = default;
};
/// The operation of a communication or, if it is a receive, of its send.
[[nodiscard]] Operation operation_of(const program::Communication& communication);

struct OperationPrice {
    CollectiveCost cost;
    KernelDemand demand;
    std::int64_t loading_bytes = 0;  // message for which the transfers of cost.algorithm load the links between nodes
};

/// Pieces of GEMMs by piece_cost(), tokens that travel once by dispatch_cost(), everything else by collective_cost().
[[nodiscard]] OperationPrice price_of(const Operation& operation, program::GroupAxis axis,
                                      const GroupPlacement& placement, const topologies::ClusterSpec& cluster);

/// Cost of an all-to-all in which each token travels to a node and to a rank only once, and is forwarded inside the
/// node (program::dispatch_bytes): as grouped sends of NCCL (nccl_grouped) to the other nodes and to the other members
/// in the node. deepseek-ai/DeepEP docs/legacy.md measures its kernels on H800 over 8 to 64 ranks; this formula, fitted
/// to nothing of it, takes 2 to 14% less time (tested).
[[nodiscard]] CollectiveCost dispatch_cost(const models::TokenRouting& routing, std::int64_t bytes,
                                           const GroupPlacement& placement, const topologies::ClusterSpec& cluster);
/// 20 compute units (arXiv 2412.19437, section 3.2.2), and memory traffic as of a collective.
[[nodiscard]] KernelDemand dispatch_demand(const CollectiveCost& cost, const topologies::ClusterSpec& cluster);

}  // namespace orrery::sim
