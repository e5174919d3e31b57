#include "exec/device/device.h"

#include <chrono>
#include <thread>

namespace orrery::exec {
namespace {

using Clock = std::chrono::steady_clock;

/// Short waits are common, and sleeping takes longer than asked for.
constexpr std::chrono::microseconds kSpin{50};
constexpr std::chrono::microseconds kPollInterval{20};

}  // namespace

void Device::synchronize(Event event, const std::function<void()>& meanwhile) {
    const Clock::time_point begin = Clock::now();
    while (!is_complete(event)) {
        if (Clock::now() - begin < kSpin) continue;
        check_health();
        if (meanwhile) meanwhile();
        std::this_thread::sleep_for(kPollInterval);
    }
}

}  // namespace orrery::exec
