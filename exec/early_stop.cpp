#include "exec/early_stop.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <optional>

#include "core/error.h"

namespace orrery::exec {
namespace {

constexpr std::chrono::milliseconds kLook{20};       // for a signal
constexpr std::chrono::microseconds kPatience{100};  // of who waits for the others

}  // namespace

// A rank says that it begins a step and then looks whether its offer allows it; its thread offers the other way about,
// so that one of the two sees the other.
struct EarlyStop::Agreement {
    std::atomic<std::int64_t> begun = 0;
    std::atomic<std::int64_t> offered = -1;
    std::atomic<std::int64_t> last = -1;  // the step that all agreed on
    std::atomic<bool> is_over = false;    // the training
    void reach(Transport& transport);
};

void EarlyStop::Agreement::reach(Transport& transport) {
    while (!is_over && transport.recorder().stop_signal() == 0) std::this_thread::sleep_for(kLook);
    do {
        offered = begun.load();
    } while (begun > offered);
    transport.offer(offered);
    std::optional<std::int64_t> greatest;
    while (!(greatest = transport.greatest_offer())) std::this_thread::sleep_for(kPatience);
    last = *greatest;
}

EarlyStop::EarlyStop(Transport& transport) : transport_(transport) {
    transport.recorder().hold_signals();
    if (transport.world_size() == 1 || transport.recorder().is_watched()) return;
    agreement_ = std::make_shared<Agreement>();
    thread_ = std::thread([agreement = agreement_, &transport] {
        try {
            agreement->reach(transport);
        } catch (const std::exception& error) {
            transport.abort(kExitJobFailed, error.what());
        }
    });
}

EarlyStop::~EarlyStop() {
    if (thread_.joinable()) thread_.detach();
}

bool EarlyStop::ends_before(std::int64_t step) {
    FlightRecorder& recorder = transport_.recorder();
    if (recorder.is_watched() || step == 0) return false;
    if (!agreement_) return recorder.stop_signal() != 0;
    agreement_->begun = step;
    for (bool waits = false;; std::this_thread::sleep_for(kPatience)) {
        const std::int64_t last = agreement_->last;
        const std::int64_t offered = agreement_->offered;
        const bool may_run = offered < 0 || step <= offered;
        if (!may_run && last < 0) {
            if (!waits) recorder.exchange(waits = true);
            continue;
        }
        if (waits) recorder.exchange(false);
        return !may_run && step > last;
    }
}

void EarlyStop::finish() {
    if (!agreement_) return;
    agreement_->is_over = true;
    thread_.join();
}

}  // namespace orrery::exec
