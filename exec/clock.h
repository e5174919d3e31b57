// One clock for the ranks of several machines: each machine's monotonic clock has an origin of its own.
#pragma once

#include <cstdint>

#include "exec/transport/transport.h"

namespace orrery::exec {

/// What must be added to this rank's clock to have rank 0's lies between the two.
struct ClockOffset {
    std::int64_t low_ns = 0;
    std::int64_t high_ns = 0;
    [[nodiscard]] std::int64_t middle_ns() const { return low_ns + (high_ns - low_ns) / 2; }
};

/// Narrows `offset` by one exchange: rank 0 read its clock at `there_ns`, after this rank read `before_ns` on its own
/// and before it read `after_ns`.
[[nodiscard]] ClockOffset narrowed(ClockOffset offset, std::int64_t before_ns, std::int64_t there_ns,
                                   std::int64_t after_ns);

/// By exchanges with rank 0, whatever machine this is: as wide as the fastest of them took. Collective over all ranks.
[[nodiscard]] ClockOffset measure_clock_offset(Transport& transport);

/// 0 when all ranks are on one machine, whose clock is one; otherwise the middle of what was measured. Collective over
/// all ranks.
[[nodiscard]] std::int64_t clock_offset_ns(Transport& transport);

}  // namespace orrery::exec
