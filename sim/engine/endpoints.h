// Endpoints: the roles in which ranks take part in the operations of their process groups.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/program/program.h"

namespace orrery::sim {

/// A role in a group. The first endpoints are numbered as the axes: member of a collective, or sender of a pair. The
/// receivers of the pair axes follow.
enum class Endpoint : std::uint8_t {};
inline constexpr std::size_t kPairAxes =
    program::kAxisCount - static_cast<std::size_t>(program::GroupAxis::down_forward);
inline constexpr std::size_t kEndpointCount = program::kAxisCount + kPairAxes;
template <typename T>
using PerEndpoint = EnumArray<Endpoint, T, kEndpointCount>;
[[nodiscard]] constexpr bool receives(Endpoint endpoint) {
    return static_cast<std::size_t>(endpoint) >= program::kAxisCount;
}
[[nodiscard]] constexpr program::GroupAxis axis_of(Endpoint endpoint) {
    const auto index = static_cast<std::size_t>(endpoint);
    return static_cast<program::GroupAxis>(receives(endpoint) ? index - kPairAxes : index);
}
/// Whether it is the sender of a pair.
[[nodiscard]] constexpr bool sends(Endpoint endpoint) {
    return !receives(endpoint) && program::is_pair(axis_of(endpoint));
}
/// The receiver's endpoint if `receiver`, otherwise that of a pair's sender or a collective's member.
[[nodiscard]] constexpr Endpoint endpoint_on(program::GroupAxis axis, bool receiver) {
    return static_cast<Endpoint>(static_cast<std::size_t>(axis) + (receiver ? kPairAxes : 0));
}
/// The endpoint of an instruction of this kind. Throws BugError unless sends and receives, and only these, are on a
/// pair axis.
[[nodiscard]] Endpoint endpoint_of(program::GroupAxis axis, program::CommKind kind);

}  // namespace orrery::sim
