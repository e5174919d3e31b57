// Signals that end a command, held back so that it can shut down gracefully.
#pragma once

#include <array>
#include <csignal>
#include <string>

namespace orrery::exec {

/// The signals by which users end a command.
inline constexpr std::array kEndingSignals{SIGINT, SIGTERM, SIGHUP};
/// Signals within this time count as one: a terminal signals every process, and a parent may forward the same signal.
inline constexpr double kSameSignal_s = 1;
/// "SIGTERM"; "" if the number has no name.
[[nodiscard]] std::string name_of_signal(int signal);

/// Catches these signals and SIGCHLD during its lifetime, whichever thread gets them: libraries may have started
/// threads of their own, in which no signal is blocked. Signals that were ignored stay ignored. One object at a time.
/// Programs that this process starts get the signals as before.
class HeldSignals {
  public:
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;
    /// Waits at most this long for one of the signals or the end of a child. Returns the signal (SIGCHLD for a child's
    /// end), or 0.
    [[nodiscard]] int wait(int milliseconds) const;
    /// A file descriptor for poll(): readable while wait() would return a signal at once.
    [[nodiscard]] int file() const { return ends_[0]; }
    /// What the destructor does. Async-signal-safe, for a forked child that does not become another program.
    void release() const;

  private:
    std::array<int, 2> ends_{-1, -1};  // of a pipe, into which the handler writes the signals
    std::array<struct sigaction, kEndingSignals.size() + 1> earlier_{};
};

}  // namespace orrery::exec
