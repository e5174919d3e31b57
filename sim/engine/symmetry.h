// Which ranks, groups and shared resources behave alike, so that one of each is simulated.
//
// Colour refinement: ranks start with the colour of their class in the Program. A rank's next colour is made of its
// own, of the colours met in each of its groups (with how the group lies on the cluster), of the colours met on each
// resource it shares, and of the groups met on each link that its groups load. At the fixed point the partition is
// equitable: each rank of a colour meets the same number of ranks of every other colour in its groups and on its
// resources, so all of them see the same times, and a simulation of one rank of each colour, with loads weighted by
// those numbers, gives the integers that simulating everyone gives.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/fabric_use.h"
#include "sim/engine/placed_job.h"
#include "sim/engine/seats.h"

namespace orrery::sim {

/// What running work draws on.
enum class ResourceKind : std::uint8_t {
    cores,     // of a node, shared by its ranks (CPU)
    port_out,  // device -> node switch
    port_in,
    nic_out,  // NIC -> fabric; shared when a node has fewer NICs than devices
    nic_in,
    copy_out,  // device -> host memory
    copy_in,
    compute_units,  // of a device, where collectives' kernels take some of them
    memory,         // bandwidth of a device's memory, likewise
};
inline constexpr std::size_t kResourceKinds = 9;

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
        std::int32_t placement = 0;   // index in PlacedJob::placements
        std::int32_t first_link = 0;  // links[first, first + count)
        std::int32_t link_count = 0;
    };
    struct Attachment {
        std::int32_t resource = -1;  // -1: the cluster has none of this kind
        std::int64_t weight = 0;     // ranks of the job like this one on the same resource
    };
    /// What groups like this one take of a link.
    struct LinkDraw {
        std::int32_t resource = 0;
        FabricWay way;
        double seconds_per_byte = 0;
        std::int64_t weight = 0;  // groups, of those like this one, that take as much
    };

    std::vector<std::int64_t> ranks;  // the lowest rank of each colour, ascending
    std::vector<std::int64_t> multiplicity;
    std::vector<std::int32_t> colour_of;                         // per real rank: index in `ranks`
    std::vector<std::array<std::int32_t, kSeatCount>> group_at;  // per rank and seat; -1: none
    std::vector<Group> groups;
    std::vector<RankOfGroup> members;
    std::vector<LinkDraw> links;
    std::vector<std::array<Attachment, kResourceKinds>> attachments;  // per rank
};

/// What runs on the cluster together.
struct Quotients {
    std::vector<Quotient> jobs;
    std::vector<std::int64_t> capacity_units;  // by resource
};

/// `full`: every rank is its own representative.
[[nodiscard]] Quotients make_quotients(std::span<const PlacedJob> jobs, const FabricUse& fabric,
                                       const topologies::ClusterSpec& cluster, bool full);
/// Of a job that has the cluster and the links of its fabric to itself.
[[nodiscard]] Quotients make_quotients(const program::Program& program, const topologies::ClusterSpec& cluster,
                                       bool full);

}  // namespace orrery::sim
