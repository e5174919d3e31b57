#include "cli/child.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "core/error.h"
#include "core/file.h"
#include "exec/faults/held_signals.h"

extern char** environ;

namespace orrery::cli {
namespace {

pid_t start(const std::string& program, std::vector<std::string> words, const posix_spawn_file_actions_t* files,
            const std::string& what) {
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    pid_t child = 0;
    const int failed = posix_spawn(&child, program.c_str(), files, nullptr, argv.data(), environ);
    if (failed != 0) throw JobError("cannot start " + what + ": " + std::strerror(failed));
    return child;
}

int wait_for(pid_t child, const std::string& what) {
    int status = 0;
    while (waitpid(child, &status, 0) < 0) {
        if (errno != EINTR) throw JobError("lost " + what + ": " + std::strerror(errno));
    }
    return status;
}

/// Waits for the child and passes signals on to it. Throws StoppedBySignal after the child has ended if there was one.
int wait_and_pass_on(pid_t child, const exec::HeldSignals& signals) {
    constexpr int kPoll_ms = 1000;  // SIGCHLD ends the wait early
    int status = 0, ending = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
        const int signal = signals.wait(kPoll_ms);
        if (signal == 0 || signal == SIGCHLD) continue;
        ending = signal;
        kill(child, signal);
    }
    if (ending != 0) throw StoppedBySignal(ending);
    return status;
}

}  // namespace

TemporaryFolder::TemporaryFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "orrery-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
        throw JobError("cannot create a temporary folder: " + std::string(std::strerror(errno)));
    }
    path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
}

std::string own_program() {
    return std::filesystem::read_symlink("/proc/self/exe").string();
}

std::string emulated_program() {
    return (std::filesystem::path(own_program()).parent_path() / "orrery_emulated").string();
}

void run_self(const std::vector<std::string>& arguments, const std::string& what) {
    std::vector<std::string> words{"orrery"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    const exec::HeldSignals signals;
    const pid_t child = start("/proc/self/exe", words, nullptr, what);
    const int status = wait_and_pass_on(child, signals);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
    throw JobError(what + " failed; its message is above");
}

CommandOutput run_and_read(const std::vector<std::string>& words) {
    const TemporaryFolder folder;  // files, unlike pipes, cannot fill up and block the child
    const std::string out = folder.file("out"), err = folder.file("err");
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    constexpr int kFlags = O_WRONLY | O_CREAT | O_TRUNC;
    posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), kFlags, 0600);
    posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err.c_str(), kFlags, 0600);
    int status = 0;
    try {
        status = wait_for(start(words.front(), words, &files, words.front()), words.front());
    } catch (...) {
        posix_spawn_file_actions_destroy(&files);
        throw;
    }
    posix_spawn_file_actions_destroy(&files);
    if (!WIFEXITED(status)) throw JobError(words.front() + " was ended by signal " + std::to_string(WTERMSIG(status)));
    return {WEXITSTATUS(status), read_text_file(out), read_text_file(err)};
}

}  // namespace orrery::cli
