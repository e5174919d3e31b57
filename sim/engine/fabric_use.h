// What groups take of links that others may need too: those between switches, and PCIe.
//
// A collective is one flow: on each link it moves so many bytes for each byte of its message (LinkLoads), spread over
// its duration. Links that all operations together cannot over-subscribe never slow anything down and are left out; the
// others become shared resources, on which groups, of one job or of several, are slowed down max-min fairly.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "sim/engine/placed_job.h"
#include "sim/network/algorithms/algorithm.h"

namespace orrery::sim {

/// How an operation uses links: in which state of the cluster, by which algorithm, for which collective.
struct FabricWay {
    std::int32_t state = 0;
    algorithms::Algorithm algorithm{};
    program::CommKind kind{};
    auto operator<=>(const FabricWay&) const = default;
};

/// An operation at full speed, as far as links are concerned.
struct FabricRate {
    FabricWay way;
    double bytes_per_second = 0;  // of its message
};

/// Of one job: by state, then placement, then operation; none: it uses no links.
using FabricRates = std::vector<std::vector<std::vector<std::optional<FabricRate>>>>;

class FabricUse {
  public:
    struct Load {
        std::int32_t link = 0;  // in [0, link_count())
        FabricWay way;
        double seconds_per_byte = 0;  // as FabricLoad's
    };
    struct User {
        std::int32_t job = 0, axis = 0, group = 0;
        FabricWay way;
        double seconds_per_byte = 0;
    };

    /// Without any links.
    FabricUse() = default;
    /// Rates are by job.
    FabricUse(std::span<const PlacedJob> jobs, std::span<const FabricRates> rates,
              std::span<const topologies::Cluster* const> states);

    [[nodiscard]] std::int32_t link_count() const { return static_cast<std::int32_t>(first_user_.size()) - 1; }
    [[nodiscard]] std::span<const Load> loads(std::size_t job, std::size_t axis, std::int64_t group) const;
    [[nodiscard]] std::span<const User> users(std::int32_t link) const;

  private:
    class Collector;
    std::vector<Load> loads_;                                                             // by job, axis, group
    std::vector<program::PerAxis<std::vector<std::int32_t>>> first_load_;  // by job, axis; then group
    std::vector<User> users_;                                                             // by link
    std::vector<std::int32_t> first_user_{0};
};

}  // namespace orrery::sim
