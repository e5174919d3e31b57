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

/// Blocks these signals and SIGCHLD during its lifetime. Signals that were ignored stay ignored.
class HeldSignals {
  public:
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;
    /// Waits at most this long for one of the signals or the end of a child. Returns the signal (SIGCHLD for a child's
    /// end), or 0.
    [[nodiscard]] int wait(int milliseconds) const;
    /// A file descriptor for poll(): readable while a signal is pending.
    [[nodiscard]] int file() const { return file_; }
    /// The signal mask before this object, to restore in child processes.
    [[nodiscard]] const sigset_t& earlier() const { return earlier_; }

  private:
    sigset_t held_{}, earlier_{};
    int file_ = -1;
};

}  // namespace orrery::exec
