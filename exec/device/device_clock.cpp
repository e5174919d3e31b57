#include "exec/device/device_clock.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::exec {
namespace {

constexpr double kNanosecondsPerMillisecond = 1e6;
constexpr double kCorrectedWithin_ns = 1e9;
/// A difference that is larger than this part of the time between anchors is made up for in several turns.
constexpr double kLargestCorrection = 0.1;
/// How much of a difference changes the rate, for a drift that stays. The rest may be an inexact comparison.
constexpr double kTrust = 0.5;
/// Some minutes: the host has looked at every event by then.
constexpr std::ptrdiff_t kMostAnchors = 256;

}  // namespace

void DeviceClock::advance(double since_ms, std::optional<std::int64_t> host_ns) {
    const Stretch& last = stretches_.back();
    Stretch next{.anchor_ns = last.time_ns(since_ms), .rate = last.rate};
    if (host_ns.has_value()) {
        const double limit_ns = kLargestCorrection * kCorrectedWithin_ns;
        next.correction_ns = std::clamp(static_cast<double>(*host_ns - next.anchor_ns), -limit_ns, limit_ns);
        next.rate += kTrust * next.correction_ns / std::max(since_ms * kNanosecondsPerMillisecond, kCorrectedWithin_ns);
    }
    stretches_.push_back(next);
    if (std::ssize(stretches_) <= kMostAnchors) return;
    stretches_.pop_front();
    ++oldest_;
}

std::int64_t DeviceClock::time_ns(std::int64_t anchor, double since_ms) const {
    ORRERY_CHECK(anchor >= oldest() && anchor <= newest(), "an anchor that is forgotten");
    return stretches_[static_cast<std::size_t>(anchor - oldest_)].time_ns(since_ms);
}

std::int64_t DeviceClock::Stretch::time_ns(double since_ms) const {
    const double since_ns = since_ms * kNanosecondsPerMillisecond;
    const double corrected = correction_ns * std::clamp(since_ns / kCorrectedWithin_ns, 0.0, 1.0);
    return anchor_ns + static_cast<std::int64_t>(since_ns * rate + corrected);
}

}  // namespace orrery::exec
