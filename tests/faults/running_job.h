// Jobs by the built orrery that a test interferes with.
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
    Faults();

    /// Runs a plan, or whatever the words say, with a fault; nothing may be left afterwards beside `results`.
    CommandResult run(const std::string& fault, const std::vector<std::string>& words,
                      const std::vector<std::string>& results = {});
    /// Runs a command and does `interfere` with its process once its ranks have had time to train.
    CommandResult run_and(const std::vector<std::string>& words, const std::function<void(pid_t)>& interfere,
                          const std::vector<std::string>& results = {}, const std::string& fault = "");
    /// One rank, without mpirun. Open MPI keeps a daemon for it, which goes, and its files, a moment later.
    CommandResult run_alone(const std::string& fault);

    [[nodiscard]] CommandOptions environment(const std::string& fault) const;
    /// Of the plan for four ranks.
    void expect_fails(const std::string& fault, int exit_code, const std::vector<std::string>& words,
                      const std::string& timeout = "0");
    static void expect_says(const CommandResult& result, int exit_code, const std::vector<std::string>& words);

    Workplace here_;
};

/// Under the user's own mpirun nobody reads along: the ranks find out by themselves.
class UnderMpirun : public Faults {
  protected:
    /// Words of mpirun, from its number of ranks on.
    [[nodiscard]] CommandResult run_ranks(const std::string& fault, const std::vector<std::string>& words) const;
};

/// The mpirun that the process, or a child of it, has started; 0: none yet.
[[nodiscard]] pid_t mpirun_below(pid_t process);
/// Returns once an mpirun of this process has so many ranks, which compute for longer than they start.
void wait_for_ranks(std::size_t ranks = 2);

}  // namespace orrery::test
