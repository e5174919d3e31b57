#include "exec/faults/held_signals.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "core/error.h"

namespace orrery::exec {
namespace {

// Global, because a signal handler gets only the signal's number.
std::atomic<int> pipe_of_signals = -1;

/// Signal handler: only async-signal-safe calls. A full pipe has enough to wake the reader.
void write_signal(int number) {
    const int earlier_errno = errno;
    const auto byte = static_cast<unsigned char>(number);
    const int file = pipe_of_signals;
    if (file >= 0) (void)!write(file, &byte, 1);
    errno = earlier_errno;
}

constexpr int held_signal(std::size_t index) {
    return index < kEndingSignals.size() ? kEndingSignals[index] : SIGCHLD;
}

}  // namespace

std::string name_of_signal(int signal) {
    const char* const name = sigabbrev_np(signal);
    return name == nullptr ? "" : std::string("SIG") + name;
}

HeldSignals::HeldSignals() {
    if (pipe2(ends_.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
        throw JobError("no pipe for signals: " + std::string(std::strerror(errno)));
    }
    pipe_of_signals = ends_[1];
    for (std::size_t i = 0; i < earlier_.size(); ++i) {
        sigaction(held_signal(i), nullptr, &earlier_[i]);
        if (earlier_[i].sa_handler == SIG_IGN && held_signal(i) != SIGCHLD) continue;
        struct sigaction action {};
        action.sa_handler = write_signal;
        action.sa_flags = SA_RESTART;
        sigemptyset(&action.sa_mask);
        sigaction(held_signal(i), &action, nullptr);
    }
}

HeldSignals::~HeldSignals() {
    release();
    pipe_of_signals = -1;
    for (const int end : ends_) close(end);
}

void HeldSignals::release() const {
    for (std::size_t i = 0; i < earlier_.size(); ++i) sigaction(held_signal(i), &earlier_[i], nullptr);
}

int HeldSignals::wait(int milliseconds) const {
    pollfd pipe{file(), POLLIN, 0};
    unsigned char signal = 0;
    poll(&pipe, 1, milliseconds);
    return read(file(), &signal, 1) == 1 ? signal : 0;
}

}  // namespace orrery::exec
