#include "cli/collective_places.h"

#include <charconv>
#include <numeric>
#include <vector>

#include "topologies/cluster.h"

namespace orrery::cli {
namespace {

sim::GroupPlacement placed(const topologies::ClusterSpec& spec, std::int64_t ranks) {
    const topologies::Cluster cluster(spec);
    std::vector<std::int64_t> devices(static_cast<std::size_t>(ranks));
    if (spec.nodes == 1) {
        std::iota(devices.begin(), devices.end(), std::int64_t{0});
    } else {
        const std::int64_t members = ranks / spec.nodes;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
            devices[static_cast<std::size_t>(rank)] = rank / members * spec.devices_per_node + rank % members;
        }
    }
    return sim::place_group(cluster, devices);
}

}  // namespace

const sim::GroupPlacement& CollectivePlaces::of(const topologies::ClusterSpec& spec, std::int64_t ranks,
                                                std::int64_t nodes) {
    const auto [place, is_new] = placements_.try_emplace({spec.name, spec.nodes, ranks, nodes});
    if (is_new) place->second = placed(spec, ranks);
    return place->second;
}

std::optional<std::int64_t> nccl_version_of(const std::string& text) {
    constexpr std::int64_t kFactors[]{10'000, 100, 1};
    std::int64_t version = 0;
    const char* at = text.data();
    const char* const end = at + text.size();
    for (const std::int64_t factor : kFactors) {
        std::int64_t number = 0;
        const auto [rest, error] = std::from_chars(at, end, number);
        const bool is_last = factor == 1;
        const bool ends_well = is_last ? rest == end : rest != end && *rest == '.';
        if (error != std::errc{} || !ends_well || number < 0 || number >= 100) return std::nullopt;
        version += factor * number;
        at = rest + (is_last ? 0 : 1);
    }
    return version;
}

sim::CollectiveOptions options_of(const published::CollectiveSetup& setup, const std::string& nccl_version) {
    return {.dtype = setup.dtype,
            .nvls = !setup.nvls_off,
            .sharp = setup.sharp,
            .nccl_version = nccl_version_of(nccl_version).value_or(sim::CollectiveOptions{}.nccl_version)};
}

}  // namespace orrery::cli
