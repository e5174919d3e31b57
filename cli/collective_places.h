// Placement and NCCL options of measured collectives, for their prediction.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "sim/network/collectives.h"
#include "sim/published/published_collectives.h"

namespace orrery::cli {

/// Caches placements, so that the graph of a cluster is built once for all rows on it.
class CollectivePlaces {
  public:
    /// The first devices of each node, an equal number on each.
    const sim::GroupPlacement& of(const topologies::ClusterSpec& spec, std::int64_t ranks, std::int64_t nodes);

  private:
    std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, sim::GroupPlacement> placements_;
};

/// NCCL's version number: 22809 for "2.28.9"; nullopt if the text has another form.
[[nodiscard]] std::optional<std::int64_t> nccl_version_of(const std::string& text);

/// If the version is missing or has another form, the default version of CollectiveOptions is used.
[[nodiscard]] sim::CollectiveOptions options_of(const published::CollectiveSetup& setup,
                                                const std::string& nccl_version);

}  // namespace orrery::cli
