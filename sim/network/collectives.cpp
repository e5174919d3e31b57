#include "sim/network/collectives.h"

#include <algorithm>
#include <array>
#include <set>

#include "core/error.h"
#include "sim/network/fraction.h"
#include "sim/network/library_time.h"
#include "sim/network/measured_model.h"
#include "sim/network/nccl_model.h"
#include "sim/network/nccl_tuner.h"

namespace orrery::sim {
namespace {

using algorithms::is_transfer;
using program::CommKind;

/// Time to start a copy between two GPUs of a node and to see its flag.
constexpr double kCopySetUpUs = 4;

/// Splits the bytes that a member sends between its port and its NIC. A ring or chain carries as many bytes from node
/// to node as in every other step, a tree 2(k-1)/k S; both are spread over the node's members.
void count_bytes(CommKind kind, std::int64_t bytes, const GroupPlacement& p, CollectiveCost& cost) {
    if (is_transfer(kind)) {
        (p.nodes > 1 ? cost.nic_bytes : cost.intra_node_bytes) = bytes;
        return;
    }
    if (consists_of_transfers(kind)) {
        const GroupedTransfers transfers = grouped_transfers(kind, bytes, p);
        cost.intra_node_bytes = transfers.port_bytes;
        cost.nic_bytes = transfers.nic_bytes;
        return;
    }
    if (cost.algorithm && by_switches(*cost.algorithm)) {
        const bool is_tree = cost.algorithm == Algorithm::nvls_tree && p.nodes > 2;
        const std::int64_t crossing = is_tree ? fraction_of(bytes, 2 * (p.nodes - 1), p.nodes) : bytes;
        if (p.nodes > 1) cost.nic_bytes = fraction_of(crossing, 1, p.min_members);
        cost.intra_node_bytes = fraction_of(bytes, p.max_members + 1, p.max_members);
        return;
    }
    const std::int64_t passes = kind == CommKind::all_reduce ? 2 : 1;
    const std::int64_t sent = is_chain(kind) ? bytes : fraction_of(bytes, passes * (p.ranks - 1), p.ranks);
    if (p.nodes > 1) {
        const std::int64_t crossing =
            cost.algorithm == Algorithm::double_binary_tree ? fraction_of(bytes, 2 * (p.nodes - 1), p.nodes) : sent;
        cost.nic_bytes = std::min(sent, fraction_of(crossing, 1, p.min_members));
    }
    cost.intra_node_bytes = sent - cost.nic_bytes;
}

/// Whether the library's algorithm is priced instead of local samples: samples apply only to groups on the node where
/// they were taken.
bool is_between_cpu_nodes(const GroupPlacement& p, const topologies::ClusterSpec& cluster) {
    return cluster.ranks_may_share_devices() &&
           (p.nodes > 1 || (cluster.nodes > 1 && cluster.transport_samples.empty()));
}

void check_nothing_to_choose(CommKind kind, const CollectiveOptions& options) {
    if (!options.algorithm && !options.protocol && options.channels == 0) return;
    throw InputError("collective " + std::string(program::name_of(kind)), "algorithm, protocol, channels", "a choice",
                     "none: NCCL runs it as sends and receives");
}

CollectiveCost nccl_cost(CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                         const topologies::ClusterSpec& cluster, const CollectiveOptions& options) {
    const bool is_chosen = !consists_of_transfers(kind) && !is_transfer(kind);
    if (!is_chosen) check_nothing_to_choose(kind, options);
    const NcclTime time = is_chosen ? nccl_collective(kind, bytes, placement, cluster, options)
                          : is_transfer(kind)
                              ? nccl_transfer(bytes, placement, cluster)
                              : nccl_grouped(grouped_transfers(kind, bytes, placement), placement, cluster);
    return {.latency = picoseconds_from_seconds(time.latency_seconds),
            .seconds = time.seconds,
            .source = TimeSource::nccl,
            .algorithm = time.algorithm,
            .detail = std::string(name_of(time.protocol)),
            .channels = time.channels};
}

/// The cost without its byte counts.
CollectiveCost time_of(CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                       const topologies::ClusterSpec& cluster, const CollectiveOptions& options) {
    if (is_between_cpu_nodes(placement, cluster)) {
        const LibraryTime time = library_time(kind, bytes, placement, cluster.collective_library);
        return {.latency = picoseconds_from_seconds(time.latency_seconds),
                .seconds = time.seconds,
                .source = TimeSource::library,
                .algorithm = time.algorithm,
                .detail = topologies::name_of(cluster.collective_library)};
    }
    if (!cluster.ranks_may_share_devices()) return nccl_cost(kind, bytes, placement, cluster, options);
    const MeasuredTime time = measured_time(kind, bytes, placement.ranks, cluster);
    return {.latency = picoseconds_from_seconds(time.latency_seconds),
            .seconds = time.seconds,
            .source = time.is_composed ? TimeSource::composed : TimeSource::measured,
            .detail = time.detail};
}

}  // namespace

std::string_view CollectiveCost::algorithm_name() const {
    switch (source) {
        case TimeSource::nccl:
            return algorithms::nccl_name_of(*algorithm);
        case TimeSource::library:
            return algorithms::name_of(*algorithm);
        case TimeSource::measured:
            return "measured";
        case TimeSource::composed:
            return "composed";
        case TimeSource::none:
            break;
    }
    return "none";
}

std::string_view name_of(NcclProtocol protocol) {
    constexpr std::array<std::string_view, 3> kNames{"LL", "LL128", "Simple"};
    return kNames.at(static_cast<std::size_t>(protocol));
}

CollectiveCost collective_cost(CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                               const topologies::ClusterSpec& cluster, const CollectiveOptions& options) {
    ORRERY_CHECK(bytes >= 0, "a message size of " + std::to_string(bytes) + " bytes");
    ORRERY_CHECK(placement.ranks > 0, "a group without members");
    if (placement.ranks == 1) return {};
    CollectiveCost cost = time_of(kind, bytes, placement, cluster, options);
    count_bytes(kind, bytes, placement, cost);
    return cost;
}

bool copy_engines_move(const GroupPlacement& placement, const topologies::ClusterSpec& cluster) {
    return placement.nodes == 1 && placement.ranks > 1 && !cluster.ranks_may_share_devices();
}

CollectiveCost piece_cost(std::int64_t bytes, const GroupPlacement& placement, const topologies::ClusterSpec& cluster) {
    CollectiveCost cost = collective_cost(CommKind::exchange, bytes, placement, cluster);
    if (!copy_engines_move(placement, cluster)) return cost;
    const double latency_s = kCopySetUpUs * 1e-6 + to_seconds(placement.intra_latency);
    cost.latency = picoseconds_from_seconds(latency_s);
    cost.seconds = latency_s + static_cast<double>(cost.intra_node_bytes) / placement.intra_bandwidth.value();
    return cost;
}

std::vector<std::string> communication_notes(const program::Program& program, const topologies::ClusterSpec& cluster) {
    std::set<std::string> lines(cluster.notes.begin(), cluster.notes.end());
    if (!cluster.ranks_may_share_devices()) return {lines.begin(), lines.end()};
    if (cluster.nodes > 1) {
        lines.insert("communication between nodes of " + cluster.name + ": not measured; predicted from " +
                     topologies::name_of(cluster.collective_library) + "'s algorithms on idle links");
    }
    for (const program::Body& body : program.bodies) {
        for (const program::Instruction& instruction : body.instructions) {
            if (!instruction.is_communication) continue;
            const CommKind kind = instruction.communication.kind;
            const std::string parts = composition(kind, cluster);
            if (!parts.empty()) {
                lines.insert("cost of " + std::string(program::name_of(kind)) + " on " + cluster.name +
                             ": no timing of its own, composed of " + parts);
            }
        }
    }
    return {lines.begin(), lines.end()};
}

}  // namespace orrery::sim
