// Runs parts of a test as processes of their own. The process that forks must not have used the device.
#pragma once

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace emulated {

/// Calls the body with 0 … ranks - 1, each in a process of its own with RANK, which ends with 1 if the body has failed.
/// Returns the exit codes, or the negative numbers of signals.
inline std::vector<int> on_ranks(int ranks, const std::function<void(int rank)>& body) {
    std::vector<pid_t> children;
    for (int rank = 0; rank < ranks; ++rank) {
        const pid_t child = fork();
        if (child != 0) {
            children.push_back(child);
            continue;
        }
        setenv("RANK", std::to_string(rank).c_str(), 1);
        body(rank);
        _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    std::vector<int> codes;
    for (const pid_t child : children) {
        int status = 0;
        EXPECT_EQ(waitpid(child, &status, 0), child);
        codes.push_back(WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    }
    return codes;
}

/// One process, for failures of the device that stay until the process ends.
inline int in_process(const std::function<void()>& body) {
    return on_ranks(1, [&](int) { body(); }).front();
}

}  // namespace emulated
