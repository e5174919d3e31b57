// Where measured collectives ran and how NCCL was set, as their prediction takes them.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "sim/network/collectives.h"
#include "sim/published/published_collectives.h"

namespace orrery::cli {

/// Rows of one source share a cluster; its graph is built once.
class CollectivePlaces {
  public:
    /// The first devices of each node, as many on each.
    const sim::GroupPlacement& of(const topologies::ClusterSpec& spec, std::int64_t ranks, std::int64_t nodes);

  private:
    std::map<std::tuple<std::string, std::int64_t, std::int64_t, std::int64_t>, sim::GroupPlacement> placements_;
};

/// "2.28.9" as NCCL counts: 22809. Nothing where the text has another form.
[[nodiscard]] std::optional<std::int64_t> nccl_version_of(const std::string& text);

/// A version that is not stated, or in another form: the model's own.
[[nodiscard]] sim::CollectiveOptions options_of(const published::CollectiveSetup& setup,
                                                const std::string& nccl_version);

}  // namespace orrery::cli
