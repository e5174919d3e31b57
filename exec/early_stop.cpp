#include "exec/early_stop.h"

#include <atomic>
#include <chrono>
#include <exception>
#include <optional>

#include "core/error.h"

namespace orrery::exec {
namespace {

constexpr std::chrono::milliseconds kSignalPoll{20};  // between two looks for a signal
constexpr std::chrono::microseconds kRankPoll{100};   // between two looks for the other ranks

}  // namespace

// The training thread writes `begun` and then reads `offered`; the agreement's thread writes `offered` and then reads
// `begun`. So at least one of the two sees what the other wrote.
struct EarlyStop::Agreement {
    std::atomic<std::int64_t> begun = 0;     // step that this rank is in
    std::atomic<std::int64_t> offered = -1;  // step that this rank offered; -1: none yet
    std::atomic<std::int64_t> last = -1;     // last step that all ranks run; -1: not agreed yet
    std::atomic<bool> is_over = false;       // whether this rank has left its last step
    void reach(Transport& transport);
};

void EarlyStop::Agreement::reach(Transport& transport) {
    while (!is_over && transport.recorder().stop_signal() == 0) std::this_thread::sleep_for(kSignalPoll);
    do {
        offered = begun.load();
    } while (begun > offered);
    transport.offer(offered);
    std::optional<std::int64_t> greatest;
    while (!(greatest = transport.greatest_offer())) std::this_thread::sleep_for(kRankPoll);
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
    for (bool waits = false;; std::this_thread::sleep_for(kRankPoll)) {
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
