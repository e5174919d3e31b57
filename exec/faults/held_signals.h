// Ending in order when the user ends a command.
#pragma once

#include <array>
#include <csignal>
#include <string>

namespace orrery::exec {

/// By which users end a command.
inline constexpr std::array kEndingSignals{SIGINT, SIGTERM, SIGHUP};
/// Two signals within this time are one: a terminal sends its own to every process, and a parent may pass it on.
inline constexpr double kSameSignal_s = 1;
/// "SIGTERM"; "" of a number without a name.
[[nodiscard]] std::string name_of_signal(int signal);

/// Those signals, held back as long as this lives, so that the
/// command ends in order. Those that were ignored stay ignored.
class HeldSignals {
  public:
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;
    /// Waits for one of them, or for a child's end, this long at most: the signal, or 0.
    [[nodiscard]] int wait(int milliseconds) const;
    /// Readable, for poll(), while wait() would not have to wait.
    [[nodiscard]] int file() const { return file_; }
    /// What a child shall have held back: what this process did before.
    [[nodiscard]] const sigset_t& earlier() const { return earlier_; }

  private:
    sigset_t held_{}, earlier_{};
    int file_ = -1;
};

}  // namespace orrery::exec
