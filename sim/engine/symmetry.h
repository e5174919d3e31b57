// Finds ranks, groups and shared resources that behave alike, so that only one of each kind is simulated.
//
// Colour refinement: the first colour of a rank is its class in the Program and the speed of its device. Its next
// colour is a hash of its own colour, the colours of the members of each of its groups (with the placement of the
// group), the colours of the ranks on each resource that it shares, and the groups on each link that its groups load.
// At the fixed point the partition is equitable: each rank of a colour meets the same number of ranks of every colour
// in its groups and on its resources. So all ranks of a colour have the same times, and a simulation of one rank of
// each colour, with loads weighted by those numbers, gives the same integers as a simulation of all ranks.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/engine/endpoints.h"
#include "sim/engine/fabric_use.h"
#include "sim/engine/placed_job.h"

namespace orrery::sim {

/// Resources that running work draws on.
enum class ResourceKind : std::uint8_t {
    cores,     // of a node, shared by its ranks (CPU)
    port_out,  // device -> node switch
    port_in,
    nic_out,  // NIC -> fabric; shared when a node has fewer NICs than devices
    nic_in,
    copy_out,  // device -> host memory
    copy_in,
    compute_units,  // of a device, if kernels of collectives take some of them
    memory,         // bandwidth of a device's memory, under the same condition
};
inline constexpr std::size_t kResourceKindCount = static_cast<std::size_t>(ResourceKind::memory) + 1;
template <typename T>
using PerResourceKind = EnumArray<ResourceKind, T, kResourceKindCount>;
inline constexpr auto kResourceKinds = enum_values<ResourceKind, kResourceKindCount>();

using SimulatedRank = Index<struct SimulatedRankTag>;    // in Quotient::ranks
using SimulatedGroup = Index<struct SimulatedGroupTag>;  // in Quotient::groups

/// A job to simulate, reduced to one rank and one group of each kind. All jobs number resources together.
struct Quotient {
    struct RankOfGroup {
        SimulatedRank rank = 0;
        Endpoint endpoint{};
    };
    struct Group {
        program::GroupAxis axis{};
        std::int32_t first_member = 0;  // members[first, first + count): one rank of each colour in the group
        std::int32_t member_count = 0;
        PlacementIndex placement = 0;
        std::int32_t first_link = 0;  // links[first, first + count)
        std::int32_t link_count = 0;
    };
    struct Attachment {
        std::int32_t resource = -1;  // -1: the cluster has none of this kind
        std::int64_t weight = 0;     // number of the job's ranks of this colour on the resource
    };
    /// Load of one group of this kind on a link.
    struct LinkDraw {
        std::int32_t resource = 0;
        FabricWay way;
        double seconds_per_byte = 0;
        std::int64_t weight = 0;  // number of groups of this kind that have this load on it
    };

    IndexedVector<SimulatedRank, std::int64_t> ranks;                    // the lowest rank of each colour, ascending
    IndexedVector<SimulatedRank, std::int64_t> multiplicity;             // number of ranks of the colour
    IndexedVector<SimulatedRank, double> slow_down;                      // of its computation; 1: none
    std::vector<SimulatedRank> colour_of;                                // by rank of the job
    IndexedVector<SimulatedRank, PerEndpoint<SimulatedGroup>> group_at;  // -1: none
    IndexedVector<SimulatedGroup, Group> groups;
    std::vector<RankOfGroup> members;
    std::vector<LinkDraw> links;
    IndexedVector<SimulatedRank, PerResourceKind<Attachment>> attachments;

    [[nodiscard]] std::span<const RankOfGroup> members_of(const Group& group) const {
        return {members.data() + group.first_member, static_cast<std::size_t>(group.member_count)};
    }
    [[nodiscard]] std::span<const LinkDraw> links_of(const Group& group) const {
        return {links.data() + group.first_link, static_cast<std::size_t>(group.link_count)};
    }
};

/// The jobs that run together on a cluster.
struct Quotients {
    IndexedVector<JobIndex, Quotient> jobs;
    std::vector<std::int64_t> capacity_units;  // by resource
};

/// `full`: all ranks and groups are simulated.
[[nodiscard]] Quotients make_quotients(const PlacedJobs& jobs, const FabricUse& fabric,
                                       const topologies::ClusterSpec& cluster, bool full);

}  // namespace orrery::sim
