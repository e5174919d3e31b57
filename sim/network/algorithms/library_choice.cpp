#include "sim/network/algorithms/library_choice.h"

#include <algorithm>
#include <limits>
#include <span>

#include "core/error.h"

namespace orrery::sim::algorithms {
namespace {

using program::CommKind;
using topologies::CollectiveLibrary;
using enum Algorithm;

constexpr std::int64_t kAny = std::numeric_limits<std::int64_t>::max();

/// The first rule applies for which ranks and bytes are both below its bounds. Bytes are one rank's block in an
/// all-gather, all-to-all, scatter or gather, else the whole message.
struct Rule {
    std::int64_t ranks_below = 0;
    std::int64_t bytes_below = 0;
    Algorithm algorithm{};
};

// One line (or more) per bound of the number of ranks.
// clang-format off
constexpr Rule kAllReduce[] = {
    {4, 8, ring}, {4, 4096, recursive_doubling}, {4, 8192, ring}, {4, 16384, recursive_doubling}, {4, 262144, ring},
    {4, kAny, halving_doubling},
    {8, 16, ring}, {8, 8192, recursive_doubling}, {8, kAny, halving_doubling},
    {16, 8192, recursive_doubling}, {16, kAny, halving_doubling},
    {32, 64, ring}, {32, 4096, recursive_doubling}, {32, kAny, halving_doubling},
    {64, 128, ring}, {64, kAny, halving_doubling},
    {128, 262144, recursive_doubling}, {128, kAny, halving_doubling},
    {256, 131072, binomial_tree}, {256, 262144, recursive_doubling}, {256, kAny, halving_doubling},
    {512, 4096, binomial_tree}, {512, kAny, halving_doubling},
    {2048, 2048, binomial_tree}, {2048, 16384, recursive_doubling}, {2048, kAny, halving_doubling},
    {4096, 2048, binomial_tree}, {4096, 4096, ring}, {4096, 16384, recursive_doubling},
    {4096, kAny, halving_doubling},
    {kAny, 2048, binomial_tree}, {kAny, 16384, ring}, {kAny, 32768, recursive_doubling},
    {kAny, kAny, halving_doubling},
};
constexpr Rule kAllGather[] = {
    {3, kAny, direct},
    {32, kAny, halving_doubling},
    {64, 1024, halving_doubling}, {64, 65536, neighbor_exchange}, {64, kAny, ring},
    {128, 512, halving_doubling}, {128, 65536, neighbor_exchange}, {128, kAny, ring},
    {256, 512, halving_doubling}, {256, 131072, neighbor_exchange}, {256, 524288, ring},
    {256, 1048576, neighbor_exchange}, {256, kAny, ring},
    {512, 32, halving_doubling}, {512, 128, bruck}, {512, 1024, halving_doubling}, {512, 131072, neighbor_exchange},
    {512, 524288, ring}, {512, 1048576, neighbor_exchange}, {512, kAny, ring},
    {1024, 64, halving_doubling}, {1024, 256, bruck}, {1024, 2048, halving_doubling},
    {1024, kAny, neighbor_exchange},
    {2048, 4, halving_doubling}, {2048, 8, bruck}, {2048, 16, halving_doubling}, {2048, 32, bruck},
    {2048, 256, halving_doubling}, {2048, 512, bruck}, {2048, 4096, halving_doubling},
    {2048, kAny, neighbor_exchange},
    {4096, 32, bruck}, {4096, 128, halving_doubling}, {4096, 512, bruck}, {4096, 4096, halving_doubling},
    {4096, kAny, neighbor_exchange},
    {kAny, 2, halving_doubling}, {kAny, 8, bruck}, {kAny, 16, halving_doubling}, {kAny, 512, bruck},
    {kAny, 4096, halving_doubling}, {kAny, kAny, neighbor_exchange},
};
constexpr Rule kReduceScatter[] = {
    {4, 65536, ring}, {4, 131072, halving_doubling}, {4, kAny, ring},
    {8, 8, binomial_tree}, {8, 262144, halving_doubling}, {8, kAny, ring},
    {32, 262144, halving_doubling}, {32, kAny, ring},
    {64, 64, binomial_tree}, {64, 524288, halving_doubling}, {64, kAny, ring},
    {128, 256, binomial_tree}, {128, kAny, halving_doubling},
    {256, 256, binomial_tree}, {256, kAny, halving_doubling},
    {512, 256, binomial_tree}, {512, kAny, halving_doubling},
    {1024, 512, binomial_tree}, {1024, kAny, halving_doubling},
    {2048, 512, binomial_tree}, {2048, kAny, halving_doubling},
    {4096, 512, binomial_tree}, {4096, kAny, halving_doubling},
    {kAny, 1024, binomial_tree}, {kAny, kAny, halving_doubling},
};
constexpr Rule kAllToAll[] = {
    {3, 2, pairwise}, {3, 4, direct}, {3, 16, pairwise}, {3, 64, direct}, {3, 256, pairwise}, {3, 4096, direct},
    {3, 32768, pairwise}, {3, 1048576, direct}, {3, kAny, pairwise},
    {8, 524288, direct}, {8, 1048576, pairwise}, {8, kAny, direct},
    {16, kAny, direct},
    {32, 4, direct}, {32, 512, bruck}, {32, kAny, direct},
    {64, 512, bruck}, {64, kAny, direct},
    {128, 1024, bruck}, {128, 262144, direct}, {128, kAny, pairwise},
    {256, 1024, bruck}, {256, 262144, direct}, {256, kAny, pairwise},
    {512, 1024, bruck}, {512, 32768, direct}, {512, kAny, pairwise},
    {1024, 512, bruck}, {1024, 262144, direct}, {1024, kAny, pairwise},
    {2048, 512, bruck}, {2048, kAny, direct},
    {4096, 1024, bruck}, {4096, kAny, direct},
    {kAny, 2048, bruck}, {kAny, kAny, direct},
};
constexpr Rule kBroadcast[] = {
    {4, 32, chain}, {4, 256, binary_tree}, {4, 512, chain}, {4, 1024, knomial_tree}, {4, 32768, direct},
    {4, 131072, binary_tree}, {4, 262144, chain}, {4, 524288, direct}, {4, 1048576, binomial_tree},
    {4, kAny, binary_tree},
    {8, 64, binary_tree}, {8, 128, binomial_tree}, {8, 2048, binary_tree}, {8, 8192, binomial_tree},
    {8, 1048576, direct}, {8, kAny, chain},
    {16, 8, knomial_tree}, {16, 64, binary_tree}, {16, 4096, knomial_tree}, {16, 16384, binary_tree},
    {16, 32768, binomial_tree}, {16, kAny, direct},
    {32, 4096, knomial_tree}, {32, 1048576, binomial_tree}, {32, kAny, halving_doubling},
    {64, 2048, binomial_tree}, {64, kAny, knomial_tree},
    {128, kAny, knomial_tree},
    {256, 2, binomial_tree}, {256, 16384, binary_tree}, {256, 32768, direct}, {256, 65536, binary_tree},
    {256, kAny, knomial_tree},
    {1024, 16384, knomial_tree}, {1024, 32768, binary_tree}, {1024, kAny, knomial_tree},
    {2048, 524288, knomial_tree}, {2048, kAny, halving_doubling},
    {4096, 262144, knomial_tree}, {4096, kAny, halving_doubling},
    {kAny, 8192, knomial_tree}, {kAny, 16384, binary_tree}, {kAny, 262144, knomial_tree},
    {kAny, kAny, halving_doubling},
};
constexpr Rule kReduce[] = {
    {4, 8, halving_doubling}, {4, 16, binary_tree}, {4, 32, chain}, {4, 262144, direct}, {4, kAny, chain},
    {8, 4096, binary_tree}, {8, 65536, chain}, {8, 262144, binomial_tree}, {8, 524288, direct},
    {8, 1048576, binomial_tree}, {8, kAny, direct},
    {16, 8192, binary_tree}, {16, kAny, binomial_tree},
    {32, 4096, binary_tree}, {32, kAny, binomial_tree},
    {256, kAny, binomial_tree},
    {512, 8192, binomial_tree}, {512, 16384, binary_tree}, {512, kAny, binomial_tree},
    {2048, kAny, binomial_tree},
    {4096, 512, binomial_tree}, {4096, 1024, binary_tree}, {4096, 8192, binomial_tree}, {4096, 16384, binary_tree},
    {4096, kAny, binomial_tree},
    {kAny, 16, binomial_tree}, {kAny, 32, binary_tree}, {kAny, 1024, binomial_tree}, {kAny, 2048, binary_tree},
    {kAny, 8192, binomial_tree}, {kAny, 16384, binary_tree}, {kAny, kAny, binomial_tree},
};
constexpr Rule kScatter[] = {
    {4, kAny, direct},
    {8, 2048, binomial_tree}, {8, 4096, direct}, {8, 8192, binomial_tree}, {8, kAny, direct},
    {16, 16384, binomial_tree}, {16, kAny, direct},
    {32, 16384, binomial_tree}, {32, kAny, direct},
    {64, 512, binomial_tree}, {64, 8192, direct}, {64, 16384, binomial_tree}, {64, kAny, direct},
    {kAny, 512, binomial_tree}, {kAny, kAny, direct},
};
constexpr Rule kGather[] = {
    {4, 4, direct}, {4, 32768, binomial_tree}, {4, 65536, direct}, {4, 131072, binomial_tree}, {4, kAny, direct},
    {8, 1024, binomial_tree}, {8, 8192, direct}, {8, 32768, binomial_tree}, {8, kAny, direct},
    {256, kAny, binomial_tree},
    {512, 2048, binomial_tree}, {512, 8192, direct}, {512, kAny, binomial_tree},
    {kAny, kAny, binomial_tree},
};
// clang-format on

struct RulesOf {
    CommKind kind{};
    std::span<const Rule> rules;
};
constexpr RulesOf kOpenMpi[] = {
    {CommKind::all_reduce, kAllReduce}, {CommKind::all_gather, kAllGather}, {CommKind::reduce_scatter, kReduceScatter},
    {CommKind::all_to_all, kAllToAll},  {CommKind::broadcast, kBroadcast},  {CommKind::reduce, kReduce},
    {CommKind::scatter, kScatter},      {CommKind::gather, kGather},
};

std::span<const Rule> open_mpi_rules(CommKind kind) {
    for (const RulesOf& one : kOpenMpi) {
        if (one.kind == kind) return one.rules;
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
        // The library's fallbacks where its choice does not fit the number of ranks.
        if (rule.algorithm == neighbor_exchange && ranks % 2 != 0) return ring;
        const bool is_power = (ranks & (ranks - 1)) == 0;
        if (kind == CommKind::all_gather && rule.algorithm == halving_doubling && !is_power) {
            return bruck;
        }
        return rule.algorithm;
    }
    return direct;
}

Algorithm gloo_choice(CommKind kind) {
    if (runs(ring, kind)) return ring;
    if (kind == CommKind::broadcast) return binomial_tree;
    return kind == CommKind::reduce ? halving_doubling : direct;
}

LibraryChoice own_choice(CommKind kind, std::int64_t ranks, std::int64_t bytes) {
    constexpr std::int64_t kSmallAllReduce = std::int64_t{64} * 1024;
    constexpr std::int64_t kSmallestPiece = std::int64_t{128} * 1024;
    constexpr std::int64_t kLargestPiece = std::int64_t{1024} * 1024;
    if (kind == CommKind::all_reduce && bytes <= kSmallAllReduce && (ranks & (ranks - 1)) == 0) {
        return {ranks == 2 ? recursive_doubling : halving_doubling, 1};
    }
    if (runs(ring, kind)) return {ring, 1};
    if (kind != CommKind::broadcast && kind != CommKind::reduce) return {direct, 1};
    if (bytes <= kSmallestPiece) return {binomial_tree, 1};
    const std::int64_t piece = std::clamp(bytes / (2 * (ranks - 1)), kSmallestPiece, kLargestPiece);
    return {chain, (bytes + piece - 1) / piece};
}

}  // namespace

LibraryChoice library_choice(CollectiveLibrary library, CommKind kind, std::int64_t ranks, std::int64_t bytes) {
    ORRERY_CHECK(ranks > 1 && bytes >= 0,
                 "no algorithm for " + std::to_string(ranks) + " ranks and " + std::to_string(bytes) + " bytes");
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
    // Open MPI, and our transport on top of it: matching and completing one message takes half a microsecond on cores
    // of 2020 and later. Gloo: its thread wakes up from epoll for each message on a TCP socket.
    return library == CollectiveLibrary::gloo ? 10e-6 : 0.5e-6;
}

}  // namespace orrery::sim::algorithms
