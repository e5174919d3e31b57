#include "exec/faults/held_signals.h"

#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>

namespace orrery::exec {

std::string name_of_signal(int signal) {
    const char* const name = sigabbrev_np(signal);
    return name == nullptr ? "" : std::string("SIG") + name;
}

HeldSignals::HeldSignals() {
    sigemptyset(&held_);
    sigaddset(&held_, SIGCHLD);
    for (const int signal : kEndingSignals) {
        struct sigaction action {};
        if (sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) sigaddset(&held_, signal);
    }
    sigprocmask(SIG_BLOCK, &held_, &earlier_);
    file_ = signalfd(-1, &held_, SFD_CLOEXEC);
}

HeldSignals::~HeldSignals() {
    while (wait(0) != 0) {  // discard pending signals, which would end the command when they are unblocked
    }
    sigprocmask(SIG_SETMASK, &earlier_, nullptr);
    close(file_);
}

int HeldSignals::wait(int milliseconds) const {
    const timespec time{milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
    return std::max(0, sigtimedwait(&held_, nullptr, &time));
}

}  // namespace orrery::exec
