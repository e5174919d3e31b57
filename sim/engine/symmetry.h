// Which ranks, groups and shared resources behave alike, so that one of each is simulated.
//
// Colour refinement: ranks start with the colour of their class in the Program. A rank's next colour is made of its
// own, of the colours met in each of its groups (with how the group lies on the cluster) and of the colours met on each
// resource it shares. At the fixed point the partition is equitable: each rank of a colour meets the same number of
// ranks of every other colour in its groups and on its resources, so all of them see the same times, and a simulation
// of one rank of each colour, with loads weighted by those numbers, gives the integers that simulating everyone gives.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/program/program.h"
#include "topologies/cluster_spec.h"

namespace orrery::sim {

/// The places a rank can have in groups: one for each axis of collectives and two for each axis of pairs, first the
/// sender's. Numbered as the axes; receivers' seats stand behind them all.
enum class Seat : std::uint8_t {};
inline constexpr std::size_t kPairAxes =
    program::kAxisCount - static_cast<std::size_t>(program::GroupAxis::down_forward);
inline constexpr std::size_t kSeatCount = program::kAxisCount + kPairAxes;
[[nodiscard]] constexpr bool receives(Seat seat) {
    return static_cast<std::size_t>(seat) >= program::kAxisCount;
}
[[nodiscard]] constexpr program::GroupAxis axis_of(Seat seat) {
    const auto index = static_cast<std::size_t>(seat);
    return static_cast<program::GroupAxis>(receives(seat) ? index - kPairAxes : index);
}
/// Whether the seat is the sending end of a pair.
[[nodiscard]] constexpr bool sends(Seat seat) {
    return !receives(seat) && program::is_pair(axis_of(seat));
}
/// Of the sender of a pair, or of a collective's member, unless `receiver`.
[[nodiscard]] constexpr Seat seat_on(program::GroupAxis axis, bool receiver) {
    return static_cast<Seat>(static_cast<std::size_t>(axis) + (receiver ? kPairAxes : 0));
}
/// Where an instruction of this kind meets its group. Only sends and receives go over pairs, and they over nothing
/// else.
[[nodiscard]] Seat seat_of(program::GroupAxis axis, program::CommKind kind);

/// What running work draws on.
enum class ResourceKind : std::uint8_t {
    cores,     // of a node, shared by its ranks (CPU)
    port_out,  // device -> node switch
    port_in,
    nic_out,  // NIC -> fabric; shared when a node has fewer NICs than devices
    nic_in,
    copy_out,  // device -> host memory
    copy_in,
};
inline constexpr std::size_t kResourceKinds = 7;

/// Where a rank is.
struct RankPlace {
    std::int32_t device = 0, node = 0, scalable_unit = 0;
    std::int32_t rail = 0;  // which of the node's NICs
    std::int32_t nic = 0;   // the same, counted over all nodes
    std::int32_t pod = 0;   // of a fabric of three tiers
};
/// Of a job that has these devices of the cluster to itself: each rank on the one that Parallelism::placement numbers
/// among them, else on that of its own number, modulo their count where ranks may share devices. No devices: all.
[[nodiscard]] std::vector<RankPlace> place_ranks(const program::Parallelism& parallelism,
                                                 const topologies::ClusterSpec& cluster,
                                                 std::span<const std::int64_t> devices = {});

/// A job to simulate: one of everything that differs. Resources are numbered over all jobs of the cluster.
struct Quotient {
    struct RankOfGroup {
        std::int32_t rank = 0;  // index in `ranks`
        Seat seat{};
    };
    struct Group {
        program::GroupAxis axis{};
        std::int32_t first_member = 0;  // members[first, first + count): each different rank of it once
        std::int32_t member_count = 0;
        std::int32_t placement = 0;  // index in `placements`
    };
    /// How a group lies; groups that lie alike share one.
    struct Placement {
        program::GroupAxis axis{};
        std::vector<std::int64_t> devices;  // of one such group: ascending; of a pair, the sender first
    };
    struct Attachment {
        std::int32_t resource = -1;  // -1: the cluster has none of this kind
        std::int64_t weight = 0;     // ranks of the job like this one on the same resource
    };

    std::vector<std::int64_t> ranks;  // the lowest rank of each colour, ascending
    std::vector<std::int64_t> multiplicity;
    std::vector<std::int32_t> colour_of;                         // per real rank: index in `ranks`
    std::vector<std::array<std::int32_t, kSeatCount>> group_at;  // per rank and seat; -1: none
    std::vector<Group> groups;
    std::vector<RankOfGroup> members;
    std::vector<Placement> placements;
    std::vector<std::array<Attachment, kResourceKinds>> attachments;  // per rank
};

struct JobOnCluster {
    const program::Program* program = nullptr;
    std::vector<RankPlace> places;  // by rank
};

/// What runs on the cluster together.
struct Quotients {
    std::vector<Quotient> jobs;
    std::vector<std::int64_t> capacity_units;  // by resource
};

/// `full`: every rank is its own representative.
[[nodiscard]] Quotients make_quotients(std::span<const JobOnCluster> jobs, const topologies::ClusterSpec& cluster,
                                       bool full);
/// Of a job that has the cluster to itself.
[[nodiscard]] Quotients make_quotients(const program::Program& program, const topologies::ClusterSpec& cluster,
                                       bool full);

}  // namespace orrery::sim
