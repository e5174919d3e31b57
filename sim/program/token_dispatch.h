// Bytes of an all-to-all in which each token travels to a node and to a rank only once
// (models::ExpertChoices::sends_tokens_once).
#pragma once

#include <cstdint>

#include "models/token_routing.h"
#include "sim/program/program.h"

namespace orrery::program {

/// Where the members of a group are: on `nodes` nodes, with at most `members` on each.
struct GroupSpread {
    std::int64_t ranks = 1, nodes = 1, members = 1;
};

[[nodiscard]] GroupSpread spread_of(const Program& program, GroupAxis axis, ClassIndex rank_class);

/// What one member sends and receives, in bytes of message.
struct DispatchBytes {
    std::int64_t nic = 0;   // to and from other nodes
    std::int64_t port = 0;  // inside the node: own tokens, and those of other nodes that it forwards
    std::int64_t own = 0;   // tokens for its own experts
};

/// A member sends a token to the member with its own index on each node that has some of the token's experts, which
/// forwards it to their ranks. With S / k bytes of tokens (S: `bytes`, with a copy for each of k experts), and N nodes
/// and R ranks that hold at least one of a token's experts (models::expected_places):
///   NIC   S / k * N (nodes - 1) / nodes
///   port  S / k * R (members - 1) / members: the member that a token reaches first is one of them with the same
///         probability as the others
/// Results return on the same ways: the forwarding member sums them (arXiv 2412.19437, section 3.2.2;
/// deepseek-ai/DeepEP docs/legacy.md). Experts are numbered through the nodes in the order of the ranks.
[[nodiscard]] DispatchBytes dispatch_bytes(const models::TokenRouting& routing, std::int64_t bytes,
                                           const GroupSpread& spread);

}  // namespace orrery::program
