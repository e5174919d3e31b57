#include "sim/network/algorithms/algorithm.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "core/error.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;

struct Entry {
    Algorithm algorithm;
    std::string_view name;
    std::uint32_t kinds;  // a bit for each CommKind that it runs
};

template <typename... Kinds>
constexpr std::uint32_t kinds(Kinds... kind) {
    return ((1U << static_cast<unsigned>(kind)) | ...);
}

constexpr auto kAllReduce = CommKind::all_reduce;
constexpr auto kAllGather = CommKind::all_gather;
constexpr auto kReduceScatter = CommKind::reduce_scatter;
constexpr auto kAllToAll = CommKind::all_to_all;
constexpr auto kBroadcast = CommKind::broadcast;
constexpr auto kReduce = CommKind::reduce;

constexpr std::array<Entry, kAlgorithms> kTable{{
    {Algorithm::ring, "ring", kinds(kAllReduce, kAllGather, kReduceScatter)},
    {Algorithm::neighbor_exchange, "neighbor_exchange", kinds(kAllGather)},
    {Algorithm::chain, "chain", kinds(kBroadcast, kReduce)},
    {Algorithm::binary_tree, "binary_tree", kinds(kBroadcast, kReduce)},
    {Algorithm::binomial_tree, "binomial_tree",
     kinds(kAllReduce, kBroadcast, kReduce, kReduceScatter, CommKind::scatter, CommKind::gather)},
    {Algorithm::knomial_tree, "knomial_tree", kinds(kBroadcast, kReduce)},
    {Algorithm::double_binary_tree, "double_binary_tree", kinds(kAllReduce, kBroadcast, kReduce)},
    {Algorithm::halving_doubling, "halving_doubling",
     kinds(kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce)},
    {Algorithm::recursive_doubling, "recursive_doubling", kinds(kAllReduce)},
    {Algorithm::bruck, "bruck", kinds(kAllGather, kAllToAll)},
    {Algorithm::pat, "pat", kinds(kAllGather, kReduceScatter)},
    {Algorithm::bcube, "bcube", kinds(kAllReduce)},
    {Algorithm::direct, "direct",
     kinds(kAllReduce, kAllGather, kReduceScatter, kBroadcast, kReduce, kAllToAll, CommKind::scatter, CommKind::gather,
           CommKind::exchange, CommKind::send, CommKind::recv)},
    {Algorithm::pairwise, "pairwise", kinds(kReduceScatter, kAllToAll)},
    {Algorithm::hierarchical, "hierarchical", kinds(kAllReduce, kAllGather, kReduceScatter)},
    {Algorithm::nvls, "nvls", kinds(kAllReduce, kAllGather, kReduceScatter)},
    {Algorithm::collnet, "collnet", kinds(kAllReduce)},
}};

constexpr std::array<Algorithm, kAlgorithms> kAll = [] {
    std::array<Algorithm, kAlgorithms> all{};
    for (std::size_t i = 0; i < kAlgorithms; ++i) all.at(i) = kTable.at(i).algorithm;
    return all;
}();

const Entry& entry(Algorithm algorithm) {
    return kTable.at(static_cast<std::size_t>(algorithm));
}

}  // namespace

std::string_view name_of(Algorithm algorithm) {
    return entry(algorithm).name;
}

std::optional<Algorithm> algorithm_named(std::string_view name) {
    const auto* found = std::find_if(kTable.begin(), kTable.end(), [&](const Entry& e) { return e.name == name; });
    if (found == kTable.end()) return std::nullopt;
    return found->algorithm;
}

std::span<const Algorithm> all_algorithms() {
    return kAll;
}

bool runs(Algorithm algorithm, CommKind kind) {
    return (entry(algorithm).kinds >> static_cast<unsigned>(kind) & 1U) != 0;
}

std::string why_not(Algorithm algorithm, CommKind kind, const Group& group) {
    const std::string name(name_of(algorithm));
    if (!runs(algorithm, kind)) return name + " is no algorithm of " + std::string(program::name_of(kind));
    if ((kind == CommKind::send || kind == CommKind::recv) && group.ranks() != 2) return "a send has two ranks";
    if (algorithm == Algorithm::neighbor_exchange && group.ranks() > 1 && group.ranks() % 2 != 0) {
        return name + " needs an even number of ranks";
    }
    const bool needs_equal_nodes =
        algorithm == Algorithm::hierarchical || algorithm == Algorithm::nvls || algorithm == Algorithm::collnet;
    if (needs_equal_nodes && !group.is_even()) return name + " needs as many members on each node";
    if (algorithm == Algorithm::nvls && kind != CommKind::all_reduce && group.nodes() > 1) {
        return name + " runs " + std::string(program::name_of(kind)) + " inside one node only";
    }
    if (algorithm == Algorithm::collnet && group.nodes() < 2 && group.ranks() > 1) {
        return name + " needs at least two nodes";
    }
    return "";
}

bool is_streamed(Algorithm algorithm) {
    return algorithm == Algorithm::double_binary_tree || algorithm == Algorithm::nvls ||
           algorithm == Algorithm::collnet;
}

bool takes_chunks(Algorithm algorithm) {
    return is_streamed(algorithm) || algorithm == Algorithm::chain || algorithm == Algorithm::binary_tree ||
           algorithm == Algorithm::pat;
}

Group::Group(std::vector<std::int64_t> first, std::vector<std::int64_t> rail)
    : first_(std::move(first)), rail_(std::move(rail)) {
    ORRERY_CHECK(first_.size() > 1 && first_.back() > 0, "a group without members");
    node_.reserve(rail_.size());
    fewest_ = first_.back();
    for (std::int64_t node = 0; node < nodes(); ++node) {
        fewest_ = std::min(fewest_, members_of(node));
        most_ = std::max(most_, members_of(node));
        node_.insert(node_.end(), static_cast<std::size_t>(members_of(node)), node);
    }
}

Group Group::even(std::int64_t nodes, std::int64_t members) {
    ORRERY_CHECK(nodes > 0 && members > 0, "a group of " + std::to_string(nodes) + " * " + std::to_string(members));
    std::vector<std::int64_t> first, rail;
    for (std::int64_t node = 0; node <= nodes; ++node) first.push_back(node * members);
    for (std::int64_t rank = 0; rank < nodes * members; ++rank) rail.push_back(rank % members);
    return {std::move(first), std::move(rail)};
}

Group Group::of(const topologies::Cluster& cluster, std::span<const std::int64_t> devices) {
    std::vector<std::int64_t> first, rail;
    rail.reserve(devices.size());
    std::int64_t node = -1;
    for (std::size_t i = 0; i < devices.size(); ++i) {
        const std::int64_t next = cluster.node_of(devices[i]);
        ORRERY_CHECK(next >= node, "devices of a group whose nodes do not ascend");
        if (next != node) first.push_back(static_cast<std::int64_t>(i));
        node = next;
        rail.push_back(cluster.rail_of(devices[i]));
    }
    first.push_back(static_cast<std::int64_t>(devices.size()));
    return {std::move(first), std::move(rail)};
}

std::vector<std::int64_t> visiting_order(const topologies::Cluster& cluster, std::vector<std::int64_t> devices) {
    const topologies::NodeLayout& layout = cluster.node_layout();
    const bool by_port = layout.shares_pcie();
    const auto place = [&](std::int64_t device) {
        const std::int64_t port = by_port ? layout.port_of(device % layout.devices()) : 0;
        return std::tuple(device / layout.devices(), port, device);
    };
    std::sort(devices.begin(), devices.end(), [&](std::int64_t a, std::int64_t b) { return place(a) < place(b); });
    devices.erase(std::unique(devices.begin(), devices.end()), devices.end());
    return devices;
}

}  // namespace orrery::sim::algorithms
