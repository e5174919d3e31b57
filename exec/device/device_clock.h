// The host's time of events of a device whose clock is another one. The device only tells how much later than an
// earlier event, the anchor, an event was reached. From time to time a new event becomes the anchor.
#pragma once

#include <cstdint>
#include <optional>

namespace orrery::exec {

class DeviceClock {
  public:
    /// The first anchor was reached at this time of the host.
    explicit DeviceClock(std::int64_t host_ns = 0) : anchor_ns_(host_ns) {}

    /// An event that was reached `since_anchor_ms` after the anchor becomes the anchor. `host_ns`: the host's time of
    /// it, if it is known exactly. A difference, because one clock runs faster, is not made up for at once, but within
    /// the next second, so that the times of events keep their order. Anchors are at least about a second apart.
    void advance(double since_anchor_ms, std::optional<std::int64_t> host_ns);

    /// The time of an event that was reached this much after the anchor; negative for an event before it.
    [[nodiscard]] std::int64_t time_ns(double since_anchor_ms) const;

  private:
    std::int64_t anchor_ns_;
    double rate_ = 1, rate_before_ = 1;  // host time per device time, after the anchor and before it
    double correction_ns_ = 0;           // made up for within the first second after the anchor
};

}  // namespace orrery::exec
