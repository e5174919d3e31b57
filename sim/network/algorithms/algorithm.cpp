#include "sim/network/algorithms/algorithm.h"

#include <algorithm>

namespace orrery::sim::algorithms {
namespace {

template <typename Matches>
std::optional<Algorithm> first_row(Matches matches) {
    const auto found = std::find_if(kTable.begin(), kTable.end(), matches);
    return found == kTable.end() ? std::nullopt : std::optional(found->algorithm);
}

constexpr bool in_order() {
    for (std::size_t i = 0; i < kTable.size(); ++i) {
        if (kTable[i].algorithm != static_cast<Algorithm>(i)) return false;
    }
    return true;
}
static_assert(in_order(), "rows must be in the order of the enumeration");

}  // namespace

std::optional<Algorithm> algorithm_named(std::string_view name) {
    return first_row([&](const Row& row) { return row.name == name; });
}

std::optional<Algorithm> nccl_algorithm_named(std::string_view name) {
    return first_row([&](const Row& row) { return !name.empty() && row.nccl.name == name; });
}

std::string why_not(Algorithm algorithm, program::CommKind kind, const Group& group) {
    const Row& row = row_of(algorithm);
    const std::string name(row.name);
    if (!runs(algorithm, kind)) return name + " does not implement " + std::string(program::name_of(kind));
    if (is_transfer(kind) && group.ranks() != 2) return "a send needs exactly two ranks";
    if (row.manner.even_ranks && group.ranks() > 1 && group.ranks() % 2 != 0)
        return name + " needs an even number of ranks";
    if (row.manner.equal_nodes && !group.is_even()) return name + " needs the same number of members on each node";
    if (!has(row.kinds, kind) && group.nodes() > 1) {
        return name + " runs " + std::string(program::name_of(kind)) + " inside one node only";
    }
    if (row.manner.several_nodes && group.nodes() < 2 && group.ranks() > 1) return name + " needs at least two nodes";
    return "";
}

}  // namespace orrery::sim::algorithms
