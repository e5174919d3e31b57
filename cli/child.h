// Child processes of a command, and temporary folders.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace orrery::cli {

/// A new temporary folder, which the destructor removes.
class TemporaryFolder {
  public:
    TemporaryFolder();
    ~TemporaryFolder();
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    [[nodiscard]] std::string file(const std::string& name) const { return (path_ / name).string(); }

  private:
    std::filesystem::path path_;
};

/// The path of this executable, and of the command with emulated GPUs, which a build with tests makes beside it.
[[nodiscard]] std::string own_program();
[[nodiscard]] std::string emulated_program();

/// The user ended the command with a signal, which was passed to the child; the child has printed the message.
class StoppedBySignal : public std::runtime_error {
  public:
    explicit StoppedBySignal(int signal) : std::runtime_error("signal " + std::to_string(signal)), signal_(signal) {}
    [[nodiscard]] int exit_code() const { return 128 + signal_; }

  private:
    int signal_;
};

/// Runs this executable with other arguments and waits for it. Throws JobError saying that `what` failed if the exit
/// code is not 0; the child has printed its own message to standard error. A signal that ends this command is passed to
/// the child, which shuts down gracefully; then StoppedBySignal is thrown.
void run_self(const std::vector<std::string>& arguments, const std::string& what);

struct CommandOutput {
    int exit_code = 0;
    std::string out, err;
};

/// Runs the program at the path words[0] and collects its output. Throws JobError if it cannot be started or is ended
/// by a signal.
[[nodiscard]] CommandOutput run_and_read(const std::vector<std::string>& words);

}  // namespace orrery::cli
