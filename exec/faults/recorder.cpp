#include "exec/faults/recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdlib>
#include <ctime>

#include "exec/faults/held_signals.h"
#include "exec/faults/place.h"
#include "exec/faults/process_facts.h"
#include "exec/launch.h"

namespace orrery::exec {
namespace {

// Global, because a signal handler gets only the signal's number.
std::atomic<RankPage*> noting_page = nullptr;

constexpr std::array kFatalSignals{SIGTERM, SIGABRT, SIGBUS, SIGFPE, SIGILL, SIGSEGV};
std::array<struct sigaction, kFatalSignals.size()> earlier_actions;

/// Async-signal-safe.
std::int64_t monotonic_ns() {
    timespec now{};
    clock_gettime(CLOCK_MONOTONIC, &now);
    return static_cast<std::int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}

/// Signal handler: only async-signal-safe calls. Records only the first signal.
void note_signal(int number) {
    RankPage* const page = noting_page.load();
    if (page != nullptr && page->signal.load() == 0) {
        page->signal_ns = monotonic_ns();
        page->signal = number;
    }
    for (std::size_t i = 0; i < kFatalSignals.size(); ++i) {
        if (kFatalSignals[i] == number) sigaction(number, &earlier_actions[i], nullptr);
    }
    raise(number);  // delivered when this returns
}

void install(std::size_t index) {
    struct sigaction present {};
    sigaction(kFatalSignals[index], nullptr, &present);
    if (present.sa_handler == note_signal) return;  // already installed by an earlier recorder
    struct sigaction action {};
    action.sa_handler = note_signal;
    sigemptyset(&action.sa_mask);
    sigaction(kFatalSignals[index], &action, &earlier_actions[index]);
}

std::array<struct sigaction, kEndingSignals.size()> actions_before_holding;
/// How long output waits for the launcher, which updates its progress line four times a second.
constexpr int kTerminalPatience_ms = 1000;
constexpr useconds_t kPoll_us = 50;

void restore_signals() {
    for (std::size_t i = 0; i < kEndingSignals.size(); ++i) {
        sigaction(kEndingSignals[i], &actions_before_holding[i], nullptr);
    }
}

/// Signal handler: only async-signal-safe calls.
void hold_signal(int number) {
    RankPage* const page = noting_page.load();
    const std::int64_t now = monotonic_ns();
    if (page->stop_signal.load() == 0) {
        page->signal_ns = now;
        page->stop_signal = number;
        return;
    }
    if (static_cast<double>(now - page->signal_ns.load()) * 1e-9 < kSameSignal_s) return;
    restore_signals();
    raise(number);  // delivered when this returns
}

/// Maps the rank's page in the file of all pages; null if that fails.
RankPage* map_page(const char* path, int rank) {
    const int file = open(path, O_RDWR | O_CLOEXEC);
    if (file < 0) return nullptr;
    struct stat status {};
    const auto end = static_cast<off_t>(sizeof(RankPage)) * (rank + 1);
    void* pages = MAP_FAILED;
    if (fstat(file, &status) == 0 && end <= status.st_size) {
        pages = mmap(nullptr, static_cast<std::size_t>(end), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    }
    close(file);
    return pages == MAP_FAILED ? nullptr : static_cast<RankPage*>(pages) + rank;
}

}  // namespace

FlightRecorder::FlightRecorder() {
    if (!attach()) {
        own_ = std::make_unique<RankPage>();
        page_ = own_.get();
    }
    // The starter ends the other ranks by SIGTERM when one has died. The handler must be installed before the page
    // shows the process: the launcher takes a rank that ends without a recorded signal for the first to die.
    if (is_watched()) {
        noting_page = page_;
        install(0);  // SIGTERM
    }
    page_->start_ticks = process_facts(getpid()).start_ticks;
    page_->pid = getpid();
    enter(RankStage::starting);
}

// The launcher's page stays mapped, because a signal may be recorded until the process is gone.
FlightRecorder::~FlightRecorder() {
    if (holds_signals_) restore_signals();
}

bool FlightRecorder::attach() {
    const char* path = std::getenv(kPagesVariable);
    const int rank = launched_rank();
    if (path != nullptr && rank >= 0) page_ = map_page(path, rank);
    return page_ != nullptr;
}

void FlightRecorder::fail(int exit_code) {
    page_->exit_code = exit_code;
    enter(RankStage::failed);
}

void FlightRecorder::follow(const program::Program& program, std::int64_t rank) {
    program_ = &program;
    rank_ = rank;
}

bool FlightRecorder::begin_step(std::int64_t step) {
    page_->steps_begun = step + 1;  // must come before stop_before is read: see JobPages::stop_training
    for (;; usleep(kPoll_us)) {
        const bool is_settled = page_->stop_is_settled;
        const std::int64_t before = page_->stop_before;
        if (before == 0 || step < before) return true;
        if (!is_settled) continue;
        page_->steps_begun = step;
        return false;
    }
}

void FlightRecorder::finish_step(double loss_sum) {
    const std::int64_t step = page_->steps_done;
    page_->losses[static_cast<std::size_t>(step % kLossesInPage)] = loss_sum;
    page_->steps_done = step + 1;
}

void FlightRecorder::hold_signals() {
    if (is_watched() || holds_signals_) return;
    holds_signals_ = true;
    noting_page = page_;
    for (std::size_t i = 0; i < kEndingSignals.size(); ++i) {
        sigaction(kEndingSignals[i], nullptr, &actions_before_holding[i]);
        if (actions_before_holding[i].sa_handler == SIG_IGN) continue;
        struct sigaction action {};
        action.sa_handler = hold_signal;
        action.sa_flags = SA_RESTART;
        sigemptyset(&action.sa_mask);
        sigaction(kEndingSignals[i], &action, nullptr);
    }
}

void FlightRecorder::wait_for_the_terminal() const {
    for (int waited_ms = 0; page_->progress_is_shown && waited_ms < kTerminalPatience_ms; ++waited_ms) usleep(1000);
}

void FlightRecorder::answer(const std::string& pending) {
    const std::size_t length = std::min(pending.size(), page_->pending.size() - 1);
    std::copy_n(pending.data(), length, page_->pending.data());
    page_->pending[length] = '\0';
    page_->answered = 1;
}

std::string FlightRecorder::place() const {
    const RankSnapshot now = snapshot();
    if (program_ == nullptr || !now.next.exists()) return "";
    return describe_place(*program_, rank_, now);
}

void FlightRecorder::note_signals() {
    if (!is_watched()) return;
    for (std::size_t i = 1; i < kFatalSignals.size(); ++i) install(i);
}

}  // namespace orrery::exec
