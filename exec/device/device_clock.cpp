#include "exec/device/device_clock.h"

#include <algorithm>

namespace orrery::exec {
namespace {

constexpr double kNanosecondsPerMillisecond = 1e6;
constexpr double kCorrectedWithin_ns = 1e9;
/// A difference that is larger than this part of the time between anchors is made up for in several turns.
constexpr double kLargestCorrection = 0.1;
/// How much of a difference changes the rate, for a drift that stays. The rest may be an inexact comparison.
constexpr double kTrust = 0.5;

}  // namespace

void DeviceClock::advance(double since_anchor_ms, std::optional<std::int64_t> host_ns) {
    before_ = now_;
    since_before_ns_ = since_anchor_ms * kNanosecondsPerMillisecond;
    now_ = {.anchor_ns = before_.time_ns(since_before_ns_), .rate = before_.rate};
    if (!host_ns.has_value()) return;
    const double limit_ns = kLargestCorrection * kCorrectedWithin_ns;
    now_.correction_ns = std::clamp(static_cast<double>(*host_ns - now_.anchor_ns), -limit_ns, limit_ns);
    now_.rate += kTrust * now_.correction_ns / std::max(since_before_ns_, kCorrectedWithin_ns);
}

std::int64_t DeviceClock::time_ns(double since_anchor_ms) const {
    const double since_ns = since_anchor_ms * kNanosecondsPerMillisecond;
    return since_ns < 0 ? before_.time_ns(since_before_ns_ + since_ns) : now_.time_ns(since_ns);
}

std::int64_t DeviceClock::Segment::time_ns(double since_ns) const {
    const double corrected = correction_ns * std::clamp(since_ns / kCorrectedWithin_ns, 0.0, 1.0);
    return anchor_ns + static_cast<std::int64_t>(since_ns * rate + corrected);
}

}  // namespace orrery::exec
