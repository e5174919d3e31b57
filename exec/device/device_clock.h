// The host's time of events of a device whose clock is another one. The device only tells how much later than an
// earlier event, an anchor, an event was reached. From time to time a new event becomes an anchor.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>

namespace orrery::exec {

class DeviceClock {
  public:
    /// Anchor 0 was reached at this time of the host.
    explicit DeviceClock(std::int64_t host_ns = 0) : stretches_{{.anchor_ns = host_ns}} {}

    /// An event that was reached `since_ms` after the newest anchor becomes an anchor. `host_ns`: the host's time of
    /// it, if it is known exactly. A difference, because one clock runs faster, is not made up for at once, but within
    /// the next second, so that the times of events keep their order. Anchors are at least about a second apart.
    void advance(double since_ms, std::optional<std::int64_t> host_ns);

    /// Anchors by their numbers. Old ones are forgotten.
    [[nodiscard]] std::int64_t oldest() const { return oldest_; }
    [[nodiscard]] std::int64_t newest() const { return oldest_ + std::ssize(stretches_) - 1; }
    /// The time of an event that was reached this much after an anchor, the last one before it: negative only for the
    /// oldest. It is the same whenever it is asked for, as anchors may be made long before an event's turn comes.
    [[nodiscard]] std::int64_t time_ns(std::int64_t anchor, double since_ms) const;

  private:
    /// The host's time from an anchor to the next.
    struct Stretch {
        std::int64_t anchor_ns = 0;
        double rate = 1;           // host time per device time
        double correction_ns = 0;  // made up for within the first second after the anchor
        [[nodiscard]] std::int64_t time_ns(double since_ms) const;
    };
    std::deque<Stretch> stretches_;
    std::int64_t oldest_ = 0;
};

}  // namespace orrery::exec
