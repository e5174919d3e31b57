// The host's time of events of a device whose clock is another one. The device only tells how much later than an
// earlier event, the anchor, an event was reached. From time to time a new event becomes the anchor.
#pragma once

#include <cstdint>
#include <optional>

namespace orrery::exec {

class DeviceClock {
  public:
    /// The first anchor was reached at this time of the host.
    explicit DeviceClock(std::int64_t host_ns = 0) : now_{.anchor_ns = host_ns}, before_(now_) {}

    /// An event that was reached `since_anchor_ms` after the anchor becomes the anchor. `host_ns`: the host's time of
    /// it, if it is known exactly. A difference, because one clock runs faster, is not made up for at once, but within
    /// the next second, so that the times of events keep their order. Anchors are at least about a second apart.
    void advance(double since_anchor_ms, std::optional<std::int64_t> host_ns);

    /// The time of an event that was reached this much after the anchor; negative for an event before it, which has the
    /// time that it had before advance().
    [[nodiscard]] std::int64_t time_ns(double since_anchor_ms) const;

  private:
    /// The host's time from an anchor on.
    struct Segment {
        std::int64_t anchor_ns = 0;
        double rate = 1;           // host time per device time
        double correction_ns = 0;  // made up for within the first second after the anchor
        [[nodiscard]] std::int64_t time_ns(double since_ns) const;
    };
    Segment now_, before_;        // before_: the times of events before the anchor
    double since_before_ns_ = 0;  // of the anchor, after that of before_
};

}  // namespace orrery::exec
