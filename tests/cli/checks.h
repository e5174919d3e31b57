// Checks for refused and successful commands, small plans, and a folder to run commands in.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/cli/command.h"
#include "tests/unit/core/test_folder.h"

namespace orrery::test {

/// Expects the exit code, nothing on standard output, and one line "orrery: …" on standard error with all of `words`.
void expect_refused(const CommandResult& result, int exit_code, const std::vector<std::string>& words);

/// Expects exit code 0 and nothing on standard error.
void expect_done(const CommandResult& result);

/// A minimal plan of tiny-gpt on part of a DGX H100.
[[nodiscard]] nlohmann::json small_plan(int dp = 1, int tp = 1, int pp = 1);
/// The same for a made-up profile of `local`, so that it can be executed.
[[nodiscard]] nlohmann::json local_plan(int dp = 1, int tp = 1, int pp = 1);

/// A folder with a made-up profile of `local` and the test's files, in which commands run.
class Workplace {
  public:
    Workplace();
    /// Writes the file and returns its name, relative to the folder.
    std::string write(const std::string& name, const std::string& content) const;
    std::string write(const std::string& name, const nlohmann::json& document) const;
    [[nodiscard]] bool has(const std::string& name) const;
    [[nodiscard]] std::string read(const std::string& name) const;
    [[nodiscard]] std::string path(const std::string& name) const { return folder_.file(name); }
    [[nodiscard]] std::vector<std::string> names() const;
    /// Runs orrery in the folder, with the made-up profile as ORRERY_PROFILE unless `options` overrides it.
    [[nodiscard]] CommandResult run(const std::vector<std::string>& arguments, CommandOptions options = {},
                                    std::vector<std::string>* orphans = nullptr) const;

  private:
    TestFolder folder_;
};

}  // namespace orrery::test
