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
    const double passed_ns = since_anchor_ms * kNanosecondsPerMillisecond;
    anchor_ns_ = time_ns(since_anchor_ms);
    rate_before_ = rate_;
    correction_ns_ = 0;
    if (!host_ns.has_value()) return;
    const double limit_ns = kLargestCorrection * kCorrectedWithin_ns;
    correction_ns_ = std::clamp(static_cast<double>(*host_ns - anchor_ns_), -limit_ns, limit_ns);
    rate_ += kTrust * correction_ns_ / std::max(passed_ns, kCorrectedWithin_ns);
}

std::int64_t DeviceClock::time_ns(double since_anchor_ms) const {
    const double since_ns = since_anchor_ms * kNanosecondsPerMillisecond;
    if (since_ns < 0) return anchor_ns_ + static_cast<std::int64_t>(since_ns * rate_before_);
    const double corrected = correction_ns_ * std::min(1.0, since_ns / kCorrectedWithin_ns);
    return anchor_ns_ + static_cast<std::int64_t>(since_ns * rate_ + corrected);
}

}  // namespace orrery::exec
