#include "exec/faults/starter.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <memory>

#include "core/error.h"
#include "exec/faults/held_signals.h"

namespace orrery::exec {
namespace {

/// How long ranks have between SIGTERM and SIGKILL.
constexpr time_t kEndTime_s = 1;
constexpr long kLook_ns = 50'000'000;

std::vector<char*> pointers_to(std::vector<std::string>& words) {
    std::vector<char*> pointers;
    pointers.reserve(words.size() + 1);
    for (std::string& word : words) pointers.push_back(word.data());
    pointers.push_back(nullptr);
    return pointers;
}

/// Says why a program cannot be run, and ends.
[[noreturn]] void give_up(const char* program) {
    std::fprintf(stderr, "orrery: %s: cannot be run: %s\n", program, std::strerror(errno));
    _exit(kExitJobFailed);
}

/// All that it needs is allocated before it is forked, and it makes only async-signal-safe calls then, because its
/// parent may have threads.
class RankStarter {
  public:
    explicit RankStarter(RankProcesses ranks) : ranks_(std::move(ranks)), processes_(ranks_.variables.size(), 0) {
        ranks_.arguments.insert(ranks_.arguments.begin(), ranks_.program);
        arguments_ = pointers_to(ranks_.arguments);
        for (std::vector<std::string>& of_rank : ranks_.variables) variables_.push_back(pointers_to(of_rank));
    }
    RankStarter(const RankStarter&) = delete;
    RankStarter& operator=(const RankStarter&) = delete;
    [[noreturn]] void run(const sigset_t& mask);

  private:
    [[noreturn]] void become_rank(std::size_t rank, pid_t starter, const sigset_t& mask) const;
    void take_ends();
    void end(int exit_code);
    void signal_all(int signal) const;

    RankProcesses ranks_;
    std::vector<char*> arguments_;
    std::vector<std::vector<char*>> variables_;
    std::vector<pid_t> processes_;  // by rank; 0: has ended
    std::size_t left_ = 0;
    int exit_code_ = kExitDone;
    bool ends_ = false;
    timespec end_began_{};
};

void RankStarter::run(const sigset_t& mask) {
    prctl(PR_SET_NAME, "orrery-starter");
    sigset_t awaited;
    sigemptyset(&awaited);
    for (const int signal : kEndingSignals) sigaddset(&awaited, signal);
    sigaddset(&awaited, SIGCHLD);
    sigprocmask(SIG_BLOCK, &awaited, nullptr);
    const pid_t self = getpid();
    for (std::size_t rank = 0; rank < processes_.size() && !ends_; ++rank) {
        const pid_t child = fork();
        if (child == 0) become_rank(rank, self, mask);
        if (child < 0) {
            end(kExitJobFailed);
            break;
        }
        processes_[rank] = child;
        ++left_;
    }
    while (left_ > 0) {
        const timespec look{0, kLook_ns};
        const int signal = sigtimedwait(&awaited, nullptr, &look);
        take_ends();
        if (signal > 0 && signal != SIGCHLD) end(128 + signal);
        timespec now{};
        clock_gettime(CLOCK_MONOTONIC, &now);
        if (ends_ && now.tv_sec - end_began_.tv_sec > kEndTime_s) signal_all(SIGKILL);
    }
    _exit(exit_code_);
}

void RankStarter::become_rank(std::size_t rank, pid_t starter, const sigset_t& mask) const {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // no rank outlives the starter
    if (getppid() != starter) _exit(kExitJobFailed);
    if (rank == 0 && ranks_.file_of_rank_0 >= 0) fcntl(ranks_.file_of_rank_0, F_SETFD, 0);
    sigprocmask(SIG_SETMASK, &mask, nullptr);
    execve(arguments_.front(), arguments_.data(), variables_[rank].data());
    give_up(arguments_.front());
}

void RankStarter::take_ends() {
    int status = 0;
    for (pid_t child = 0; (child = waitpid(-1, &status, WNOHANG)) > 0;) {
        for (pid_t& process : processes_) {
            if (process != child) continue;
            process = 0;
            --left_;
            const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
            if (code != kExitDone) end(code);
        }
    }
}

/// Begins to end all ranks. The first reason counts.
void RankStarter::end(int exit_code) {
    if (ends_) return;
    ends_ = true;
    exit_code_ = exit_code;
    clock_gettime(CLOCK_MONOTONIC, &end_began_);
    signal_all(SIGTERM);
}

void RankStarter::signal_all(int signal) const {
    for (const pid_t process : processes_) {
        if (process > 0) kill(process, signal);
    }
}

}  // namespace

Starter starter_command(const std::string& name, std::vector<std::string> command) {
    return {.name = name, .become = [words = std::move(command)](const sigset_t& mask) mutable {
                sigprocmask(SIG_SETMASK, &mask, nullptr);
                const std::vector<char*> pointers = pointers_to(words);
                execv(pointers.front(), pointers.data());
                give_up(pointers.front());
            }};
}

Starter starter_of(RankProcesses ranks) {
    auto starter = std::make_shared<RankStarter>(std::move(ranks));
    return {.name = "the starter of the ranks", .become = [starter](const sigset_t& mask) { starter->run(mask); }};
}

}  // namespace orrery::exec
