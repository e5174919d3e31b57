// The places that ranks have in the groups of a Program.
#pragma once

#include <cstddef>
#include <cstdint>

#include "sim/program/program.h"

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

}  // namespace orrery::sim
