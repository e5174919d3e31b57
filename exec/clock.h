// Clock offsets between machines: the monotonic clock of each machine has its own origin.
#pragma once

#include <cstdint>

#include "exec/transport/transport.h"

namespace orrery::exec {

/// Bounds of the offset that is added to this rank's clock to get rank 0's clock.
struct ClockOffset {
    std::int64_t low_ns = 0;
    std::int64_t high_ns = 0;
    [[nodiscard]] std::int64_t middle_ns() const { return low_ns + (high_ns - low_ns) / 2; }
};

/// Narrows `offset` by one exchange: rank 0 read `there_ns` on its clock after this rank read `before_ns` and before
/// it read `after_ns` on its own.
[[nodiscard]] ClockOffset narrowed(ClockOffset offset, std::int64_t before_ns, std::int64_t there_ns,
                                   std::int64_t after_ns);

/// Measures the offset by exchanges with rank 0, even if both are on one machine. The bounds are about as far apart as
/// the fastest exchange took. Collective over all ranks.
[[nodiscard]] ClockOffset measure_clock_offset(Transport& transport);

/// 0 when all ranks are on one machine and share its clock; otherwise the middle of the measured bounds. Collective
/// over all ranks.
[[nodiscard]] std::int64_t clock_offset_ns(Transport& transport);

}  // namespace orrery::exec
