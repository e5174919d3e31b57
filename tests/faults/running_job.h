// Runs jobs of the built orrery, with injected faults or signals.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/cli/checks.h"

namespace orrery::test {

/// A folder with plans for one, two and four ranks.
class Faults : public testing::Test {
  protected:
    /// `program` runs the commands: a variant of orrery.
    explicit Faults(std::string program = orrery_path());

    /// Runs an orrery command with a fault. Expects that it leaves nothing behind except `results`.
    CommandResult run(const std::string& fault, const std::vector<std::string>& words,
                      const std::vector<std::string>& results = {});
    /// Runs a command and calls `interfere` with its process when its ranks train.
    CommandResult run_and(const std::vector<std::string>& words, const std::function<void(pid_t)>& interfere,
                          const std::vector<std::string>& results = {}, const std::string& fault = "");
    /// Runs one rank without mpirun. Open MPI starts a daemon for it, which ends and removes its files a moment later.
    CommandResult run_alone(const std::string& fault);

    [[nodiscard]] CommandOptions environment(const std::string& fault) const;
    /// Runs the plan for four ranks with a fault, and expects this exit code and these words on standard error.
    void expect_fails(const std::string& fault, int exit_code, const std::vector<std::string>& words,
                      const std::string& timeout = "0");
    static void expect_says(const CommandResult& result, int exit_code, const std::vector<std::string>& words);

    const std::string program_;
    Workplace here_;
};

/// Under the user's own mpirun no launcher watches: the ranks detect faults by themselves.
class UnderMpirun : public Faults {
  protected:
    /// `words` are the arguments of mpirun from its number of ranks on.
    [[nodiscard]] CommandResult run_ranks(const std::string& fault, const std::vector<std::string>& words) const;
};

/// The process that starts ranks among the descendants of the process, mpirun or ours; 0: none yet.
[[nodiscard]] pid_t starter_below(pid_t process);
/// Returns when a starter of this process has so many ranks, and all of them train.
void wait_for_ranks(std::size_t ranks = 2);
/// Returns when all these ranks have begun their training so far that a signal ends it gracefully.
void wait_for_training(const std::vector<pid_t>& ranks);

}  // namespace orrery::test
