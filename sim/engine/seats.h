// Where ranks are: on the devices of a cluster, in the groups of a Program, on the resources that running work draws
// on.
#pragma once

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
    compute_units,  // of a device, where collectives' kernels take some of them
    memory,         // bandwidth of a device's memory, likewise
};
inline constexpr std::size_t kResourceKinds = 9;

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

}  // namespace orrery::sim
