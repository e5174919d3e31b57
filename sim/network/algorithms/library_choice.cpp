#include "sim/network/algorithms/library_choice.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "core/error.h"
#include "sim/network/algorithms/link_loads.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;
using topologies::CollectiveLibrary;

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

/// The first rule counts whose bounds are both above. Bytes are those of one rank's block in an all-gather, all-to-all,
/// scatter or gather, else the whole message.
struct Rule {
    std::int64_t ranks_below = 0;
    std::int64_t bytes_below = 0;
    Algorithm algorithm{};
};

constexpr Rule kAllReduce[] = {
    {4, 8, Algorithm::ring},
    {4, 4096, Algorithm::recursive_doubling},
    {4, 8192, Algorithm::ring},
    {4, 16384, Algorithm::recursive_doubling},
    {4, 262144, Algorithm::ring},
    {4, kAny, Algorithm::halving_doubling},
    {8, 16, Algorithm::ring},
    {8, 8192, Algorithm::recursive_doubling},
    {8, kAny, Algorithm::halving_doubling},
    {16, 8192, Algorithm::recursive_doubling},
    {16, kAny, Algorithm::halving_doubling},
    {32, 64, Algorithm::ring},
    {32, 4096, Algorithm::recursive_doubling},
    {32, kAny, Algorithm::halving_doubling},
    {64, 128, Algorithm::ring},
    {64, kAny, Algorithm::halving_doubling},
    {128, 262144, Algorithm::recursive_doubling},
    {128, kAny, Algorithm::halving_doubling},
    {256, 131072, Algorithm::binomial_tree},
    {256, 262144, Algorithm::recursive_doubling},
    {256, kAny, Algorithm::halving_doubling},
    {512, 4096, Algorithm::binomial_tree},
    {512, kAny, Algorithm::halving_doubling},
    {2048, 2048, Algorithm::binomial_tree},
    {2048, 16384, Algorithm::recursive_doubling},
    {2048, kAny, Algorithm::halving_doubling},
    {4096, 2048, Algorithm::binomial_tree},
    {4096, 4096, Algorithm::ring},
    {4096, 16384, Algorithm::recursive_doubling},
    {4096, kAny, Algorithm::halving_doubling},
    {kAny, 2048, Algorithm::binomial_tree},
    {kAny, 16384, Algorithm::ring},
    {kAny, 32768, Algorithm::recursive_doubling},
    {kAny, kAny, Algorithm::halving_doubling},
};
constexpr Rule kAllGather[] = {
    {3, kAny, Algorithm::direct},
    {32, kAny, Algorithm::halving_doubling},
    {64, 1024, Algorithm::halving_doubling},
    {64, 65536, Algorithm::neighbor_exchange},
    {64, kAny, Algorithm::ring},
    {128, 512, Algorithm::halving_doubling},
    {128, 65536, Algorithm::neighbor_exchange},
    {128, kAny, Algorithm::ring},
    {256, 512, Algorithm::halving_doubling},
    {256, 131072, Algorithm::neighbor_exchange},
    {256, 524288, Algorithm::ring},
    {256, 1048576, Algorithm::neighbor_exchange},
    {256, kAny, Algorithm::ring},
    {512, 32, Algorithm::halving_doubling},
    {512, 128, Algorithm::bruck},
    {512, 1024, Algorithm::halving_doubling},
    {512, 131072, Algorithm::neighbor_exchange},
    {512, 524288, Algorithm::ring},
    {512, 1048576, Algorithm::neighbor_exchange},
    {512, kAny, Algorithm::ring},
    {1024, 64, Algorithm::halving_doubling},
    {1024, 256, Algorithm::bruck},
    {1024, 2048, Algorithm::halving_doubling},
    {1024, kAny, Algorithm::neighbor_exchange},
    {2048, 4, Algorithm::halving_doubling},
    {2048, 8, Algorithm::bruck},
    {2048, 16, Algorithm::halving_doubling},
    {2048, 32, Algorithm::bruck},
    {2048, 256, Algorithm::halving_doubling},
    {2048, 512, Algorithm::bruck},
    {2048, 4096, Algorithm::halving_doubling},
    {2048, kAny, Algorithm::neighbor_exchange},
    {4096, 32, Algorithm::bruck},
    {4096, 128, Algorithm::halving_doubling},
    {4096, 512, Algorithm::bruck},
    {4096, 4096, Algorithm::halving_doubling},
    {4096, kAny, Algorithm::neighbor_exchange},
    {kAny, 2, Algorithm::halving_doubling},
    {kAny, 8, Algorithm::bruck},
    {kAny, 16, Algorithm::halving_doubling},
    {kAny, 512, Algorithm::bruck},
    {kAny, 4096, Algorithm::halving_doubling},
    {kAny, kAny, Algorithm::neighbor_exchange},
};
constexpr Rule kReduceScatter[] = {
    {4, 65536, Algorithm::ring},
    {4, 131072, Algorithm::halving_doubling},
    {4, kAny, Algorithm::ring},
    {8, 8, Algorithm::binomial_tree},
    {8, 262144, Algorithm::halving_doubling},
    {8, kAny, Algorithm::ring},
    {32, 262144, Algorithm::halving_doubling},
    {32, kAny, Algorithm::ring},
    {64, 64, Algorithm::binomial_tree},
    {64, 524288, Algorithm::halving_doubling},
    {64, kAny, Algorithm::ring},
    {128, 256, Algorithm::binomial_tree},
    {128, kAny, Algorithm::halving_doubling},
    {256, 256, Algorithm::binomial_tree},
    {256, kAny, Algorithm::halving_doubling},
    {512, 256, Algorithm::binomial_tree},
    {512, kAny, Algorithm::halving_doubling},
    {1024, 512, Algorithm::binomial_tree},
    {1024, kAny, Algorithm::halving_doubling},
    {2048, 512, Algorithm::binomial_tree},
    {2048, kAny, Algorithm::halving_doubling},
    {4096, 512, Algorithm::binomial_tree},
    {4096, kAny, Algorithm::halving_doubling},
    {kAny, 1024, Algorithm::binomial_tree},
    {kAny, kAny, Algorithm::halving_doubling},
};
constexpr Rule kAllToAll[] = {
    {3, 2, Algorithm::pairwise},     {3, 4, Algorithm::direct},         {3, 16, Algorithm::pairwise},
    {3, 64, Algorithm::direct},      {3, 256, Algorithm::pairwise},     {3, 4096, Algorithm::direct},
    {3, 32768, Algorithm::pairwise}, {3, 1048576, Algorithm::direct},   {3, kAny, Algorithm::pairwise},
    {8, 524288, Algorithm::direct},  {8, 1048576, Algorithm::pairwise}, {8, kAny, Algorithm::direct},
    {16, kAny, Algorithm::direct},   {32, 4, Algorithm::direct},        {32, 512, Algorithm::bruck},
    {32, kAny, Algorithm::direct},   {64, 512, Algorithm::bruck},       {64, kAny, Algorithm::direct},
    {128, 1024, Algorithm::bruck},   {128, 262144, Algorithm::direct},  {128, kAny, Algorithm::pairwise},
    {256, 1024, Algorithm::bruck},   {256, 262144, Algorithm::direct},  {256, kAny, Algorithm::pairwise},
    {512, 1024, Algorithm::bruck},   {512, 32768, Algorithm::direct},   {512, kAny, Algorithm::pairwise},
    {1024, 512, Algorithm::bruck},   {1024, 262144, Algorithm::direct}, {1024, kAny, Algorithm::pairwise},
    {2048, 512, Algorithm::bruck},   {2048, kAny, Algorithm::direct},   {4096, 1024, Algorithm::bruck},
    {4096, kAny, Algorithm::direct}, {kAny, 2048, Algorithm::bruck},    {kAny, kAny, Algorithm::direct},
};
constexpr Rule kBroadcast[] = {
    {4, 32, Algorithm::chain},
    {4, 256, Algorithm::binary_tree},
    {4, 512, Algorithm::chain},
    {4, 1024, Algorithm::knomial_tree},
    {4, 32768, Algorithm::direct},
    {4, 131072, Algorithm::binary_tree},
    {4, 262144, Algorithm::chain},
    {4, 524288, Algorithm::direct},
    {4, 1048576, Algorithm::binomial_tree},
    {4, kAny, Algorithm::binary_tree},
    {8, 64, Algorithm::binary_tree},
    {8, 128, Algorithm::binomial_tree},
    {8, 2048, Algorithm::binary_tree},
    {8, 8192, Algorithm::binomial_tree},
    {8, 1048576, Algorithm::direct},
    {8, kAny, Algorithm::chain},
    {16, 8, Algorithm::knomial_tree},
    {16, 64, Algorithm::binary_tree},
    {16, 4096, Algorithm::knomial_tree},
    {16, 16384, Algorithm::binary_tree},
    {16, 32768, Algorithm::binomial_tree},
    {16, kAny, Algorithm::direct},
    {32, 4096, Algorithm::knomial_tree},
    {32, 1048576, Algorithm::binomial_tree},
    {32, kAny, Algorithm::halving_doubling},
    {64, 2048, Algorithm::binomial_tree},
    {64, kAny, Algorithm::knomial_tree},
    {128, kAny, Algorithm::knomial_tree},
    {256, 2, Algorithm::binomial_tree},
    {256, 16384, Algorithm::binary_tree},
    {256, 32768, Algorithm::direct},
    {256, 65536, Algorithm::binary_tree},
    {256, kAny, Algorithm::knomial_tree},
    {1024, 16384, Algorithm::knomial_tree},
    {1024, 32768, Algorithm::binary_tree},
    {1024, kAny, Algorithm::knomial_tree},
    {2048, 524288, Algorithm::knomial_tree},
    {2048, kAny, Algorithm::halving_doubling},
    {4096, 262144, Algorithm::knomial_tree},
    {4096, kAny, Algorithm::halving_doubling},
    {kAny, 8192, Algorithm::knomial_tree},
    {kAny, 16384, Algorithm::binary_tree},
    {kAny, 262144, Algorithm::knomial_tree},
    {kAny, kAny, Algorithm::halving_doubling},
};
constexpr Rule kReduce[] = {
    {4, 8, Algorithm::halving_doubling},
    {4, 16, Algorithm::binary_tree},
    {4, 32, Algorithm::chain},
    {4, 262144, Algorithm::direct},
    {4, kAny, Algorithm::chain},
    {8, 4096, Algorithm::binary_tree},
    {8, 65536, Algorithm::chain},
    {8, 262144, Algorithm::binomial_tree},
    {8, 524288, Algorithm::direct},
    {8, 1048576, Algorithm::binomial_tree},
    {8, kAny, Algorithm::direct},
    {16, 8192, Algorithm::binary_tree},
    {16, kAny, Algorithm::binomial_tree},
    {32, 4096, Algorithm::binary_tree},
    {32, kAny, Algorithm::binomial_tree},
    {256, kAny, Algorithm::binomial_tree},
    {512, 8192, Algorithm::binomial_tree},
    {512, 16384, Algorithm::binary_tree},
    {512, kAny, Algorithm::binomial_tree},
    {2048, kAny, Algorithm::binomial_tree},
    {4096, 512, Algorithm::binomial_tree},
    {4096, 1024, Algorithm::binary_tree},
    {4096, 8192, Algorithm::binomial_tree},
    {4096, 16384, Algorithm::binary_tree},
    {4096, kAny, Algorithm::binomial_tree},
    {kAny, 16, Algorithm::binomial_tree},
    {kAny, 32, Algorithm::binary_tree},
    {kAny, 1024, Algorithm::binomial_tree},
    {kAny, 2048, Algorithm::binary_tree},
    {kAny, 8192, Algorithm::binomial_tree},
    {kAny, 16384, Algorithm::binary_tree},
    {kAny, kAny, Algorithm::binomial_tree},
};
constexpr Rule kScatter[] = {
    {4, kAny, Algorithm::direct},        {8, 2048, Algorithm::binomial_tree},   {8, 4096, Algorithm::direct},
    {8, 8192, Algorithm::binomial_tree}, {8, kAny, Algorithm::direct},          {16, 16384, Algorithm::binomial_tree},
    {16, kAny, Algorithm::direct},       {32, 16384, Algorithm::binomial_tree}, {32, kAny, Algorithm::direct},
    {64, 512, Algorithm::binomial_tree}, {64, 8192, Algorithm::direct},         {64, 16384, Algorithm::binomial_tree},
    {64, kAny, Algorithm::direct},       {kAny, 512, Algorithm::binomial_tree}, {kAny, kAny, Algorithm::direct},
};
constexpr Rule kGather[] = {
    {4, 4, Algorithm::direct},
    {4, 32768, Algorithm::binomial_tree},
    {4, 65536, Algorithm::direct},
    {4, 131072, Algorithm::binomial_tree},
    {4, kAny, Algorithm::direct},
    {8, 1024, Algorithm::binomial_tree},
    {8, 8192, Algorithm::direct},
    {8, 32768, Algorithm::binomial_tree},
    {8, kAny, Algorithm::direct},
    {256, kAny, Algorithm::binomial_tree},
    {512, 2048, Algorithm::binomial_tree},
    {512, 8192, Algorithm::direct},
    {512, kAny, Algorithm::binomial_tree},
    {kAny, kAny, Algorithm::binomial_tree},
};

std::span<const Rule> open_mpi_rules(CommKind kind) {
    switch (kind) {
        case CommKind::all_reduce:
            return kAllReduce;
        case CommKind::all_gather:
            return kAllGather;
        case CommKind::reduce_scatter:
            return kReduceScatter;
        case CommKind::all_to_all:
            return kAllToAll;
        case CommKind::broadcast:
            return kBroadcast;
        case CommKind::reduce:
            return kReduce;
        case CommKind::scatter:
            return kScatter;
        case CommKind::gather:
            return kGather;
        case CommKind::exchange:
        case CommKind::send:
        case CommKind::recv:
            break;
    }
    return {};
}

std::int64_t decisive_bytes(CommKind kind, std::int64_t ranks, std::int64_t bytes) {
    const bool by_block = kind == CommKind::all_gather || kind == CommKind::all_to_all || kind == CommKind::scatter ||
                          kind == CommKind::gather;
    return by_block ? bytes / ranks : bytes;
}

Algorithm open_mpi_choice(CommKind kind, std::int64_t ranks, std::int64_t bytes) {
    const std::int64_t size = decisive_bytes(kind, ranks, bytes);
    for (const Rule& rule : open_mpi_rules(kind)) {
        if (ranks >= rule.ranks_below || size >= rule.bytes_below) continue;
        // As the library does where its choice does not fit the number of ranks.
        if (rule.algorithm == Algorithm::neighbor_exchange && ranks % 2 != 0) return Algorithm::ring;
        const bool is_power = (ranks & (ranks - 1)) == 0;
        if (kind == CommKind::all_gather && rule.algorithm == Algorithm::halving_doubling && !is_power) {
            return Algorithm::bruck;
        }
        return rule.algorithm;
    }
    return Algorithm::direct;
}

Algorithm gloo_choice(CommKind kind) {
    if (runs(Algorithm::ring, kind)) return Algorithm::ring;
    if (kind == CommKind::broadcast) return Algorithm::binomial_tree;
    return kind == CommKind::reduce ? Algorithm::halving_doubling : Algorithm::direct;
}

LibraryChoice own_choice(CommKind kind, std::int64_t ranks, std::int64_t bytes) {
    constexpr std::int64_t kSmallAllReduce = std::int64_t{64} * 1024;
    constexpr std::int64_t kSmallestPiece = std::int64_t{128} * 1024;
    constexpr std::int64_t kLargestPiece = std::int64_t{1024} * 1024;
    if (kind == CommKind::all_reduce && bytes <= kSmallAllReduce && (ranks & (ranks - 1)) == 0) {
        return {ranks == 2 ? Algorithm::recursive_doubling : Algorithm::halving_doubling, 1};
    }
    if (runs(Algorithm::ring, kind)) return {Algorithm::ring, 1};
    if (kind != CommKind::broadcast && kind != CommKind::reduce) return {Algorithm::direct, 1};
    if (bytes <= kSmallestPiece) return {Algorithm::binomial_tree, 1};
    const std::int64_t piece = std::clamp(bytes / (2 * (ranks - 1)), kSmallestPiece, kLargestPiece);
    return {Algorithm::chain, (bytes + piece - 1) / piece};
}

/// A cluster of just the group's shape, with the placement's ports and NICs.
topologies::Cluster cluster_of(const GroupPlacement& p) {
    topologies::ClusterSpec spec;
    spec.name = "the group's nodes";
    spec.device.host_runs_compute = true;
    spec.nodes = p.nodes;
    spec.devices_per_node = (p.ranks + p.nodes - 1) / p.nodes;
    const auto link = [](BytesPerSecond bandwidth, Picoseconds two_hops) {
        topologies::LinkProfile profile;
        profile.bandwidth_gb_per_s_per_direction.value = bandwidth.value() / kGigabyte;
        profile.efficiency.value = 1;
        profile.latency_us.value = to_seconds(two_hops) * 1e6 / 2;
        return profile;
    };
    spec.intra_node = link(p.intra_bandwidth.value() > 0 ? p.intra_bandwidth : p.inter_bandwidth, p.intra_latency);
    if (p.nodes > 1) {
        spec.nic = link(p.inter_bandwidth, p.inter_latency);
        spec.host_link = link(p.inter_bandwidth * static_cast<double>(spec.devices_per_node), Picoseconds());
        spec.fabric = topologies::FabricKind::rail_optimised;
        spec.nodes_per_scalable_unit = p.nodes;
        const std::int64_t sharers = std::max<std::int64_t>(p.nic_sharers, 1);
        spec.nics_per_node = (spec.devices_per_node + sharers - 1) / sharers;
        while (spec.devices_per_node % spec.nics_per_node != 0) --spec.nics_per_node;
    }
    return topologies::Cluster(spec);
}

}  // namespace

LibraryChoice library_choice(CollectiveLibrary library, CommKind kind, std::int64_t ranks, std::int64_t bytes) {
    ORRERY_CHECK(ranks > 1 && bytes >= 0, "an algorithm for " + std::to_string(ranks) + " ranks");
    switch (library) {
        case CollectiveLibrary::openmpi:
            return {open_mpi_choice(kind, ranks, bytes), 1};
        case CollectiveLibrary::gloo:
            return {gloo_choice(kind), 1};
        case CollectiveLibrary::orrery:
            break;
    }
    return own_choice(kind, ranks, bytes);
}

double step_seconds(CollectiveLibrary library) {
    // Open MPI and our transport on it: matching and completing one message, half a microsecond on cores of 2020 and
    // later. Gloo: its thread wakes up from epoll for each message of a TCP socket.
    return library == CollectiveLibrary::gloo ? 10e-6 : 0.5e-6;
}

LibraryTime library_time(CommKind kind, std::int64_t bytes, const GroupPlacement& placement,
                         CollectiveLibrary library) {
    const topologies::Cluster cluster = cluster_of(placement);
    std::vector<std::int64_t> devices;
    for (std::int64_t node = 0; node < placement.nodes; ++node) {
        const std::int64_t here =
            placement.ranks / placement.nodes + (node < placement.ranks % placement.nodes ? 1 : 0);
        for (std::int64_t j = 0; j < here; ++j) devices.push_back(node * cluster.spec().devices_per_node + j);
    }
    const auto [algorithm, chunks] = library_choice(library, kind, placement.ranks, bytes);
    const CollectiveLoads loads = links_of(algorithm, kind, devices, cluster, chunks);
    const double step = step_seconds(library);
    return {algorithm, loads.seconds(0, step), loads.seconds(static_cast<double>(bytes), step)};
}

}  // namespace orrery::sim::algorithms
