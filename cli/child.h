// Other processes that a command starts, and what they leave behind.
#pragma once

#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

namespace orrery::cli {

/// A folder of our own that goes when we do.
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

/// The user ended the command by a signal, and a child of it has said so.
class StoppedBySignal : public std::runtime_error {
  public:
    explicit StoppedBySignal(int signal) : std::runtime_error("signal " + std::to_string(signal)), signal_(signal) {}
    [[nodiscard]] int exit_code() const { return 128 + signal_; }

  private:
    int signal_;
};

/// Runs this executable with other arguments and waits for it. Throws JobError saying that `what` failed when it exits
/// with anything but 0; its own message has gone to standard error. A signal by which the user ends this command goes
/// to the child as well, which ends in order; then throws StoppedBySignal.
void run_self(const std::vector<std::string>& arguments, const std::string& what);

struct CommandOutput {
    int exit_code = 0;
    std::string out, err;
};

/// Runs words[0], a path, and waits for what it prints. Throws JobError when it cannot be started or a signal ends it.
[[nodiscard]] CommandOutput run_and_read(const std::vector<std::string>& words);

}  // namespace orrery::cli
