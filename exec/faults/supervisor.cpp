#include "exec/faults/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <optional>

#include "core/error.h"
#include "exec/elapsed.h"
#include "exec/faults/diagnosis.h"
#include "exec/faults/held_signals.h"
#include "exec/faults/process_facts.h"
#include "exec/faults/rank_watch.h"

namespace orrery::exec {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPoll_ms = 250;
constexpr int kStartPoll_ms = 10;  // while ranks are starting
/// How long the starter may take to end its ranks before it is killed. It gives them a second between SIGTERM and
/// SIGKILL.
constexpr double kGrace_s = 5;
/// How long waiting ranks have to describe their pending operations; they look for requests twice a second.
constexpr double kAnswer_s = 1.5;

int say(const std::string& text, int exit_code) {
    std::fflush(stdout);
    std::fprintf(stderr, "orrery: %s\n", text.c_str());
    return exit_code;
}

/// Turns the forked child into the starter.
[[noreturn]] void become(const Starter& starter, pid_t parent, const HeldSignals& signals, const sigset_t& mask) {
    signals.release();
    prctl(PR_SET_PDEATHSIG, SIGTERM);  // if the launcher dies, the starter gets SIGTERM and ends its ranks
    if (getppid() != parent) _exit(kExitJobFailed);
    setpgid(0, 0);  // the terminal's signals then reach only the launcher
    const int no_input =
        open("/dev/null", O_RDONLY | O_CLOEXEC);  // reading the terminal would stop a background process
    if (no_input >= 0) dup2(no_input, STDIN_FILENO);
    starter.become(mask);
    _exit(kExitJobFailed);
}

class Supervisor {
  public:
    Supervisor(JobPages& pages, const Supervision& options)
        : pages_(pages),
          options_(options),
          watched_(static_cast<std::size_t>(pages.ranks())),
          processes_(watched_.size(), -1) {}
    ~Supervisor() {
        for (const int file : processes_) close(file);
    }
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;
    int run(const Starter& starter);

  private:
    void watch();
    void observe();
    [[nodiscard]] int wait_for_news();
    bool open_processes();
    [[nodiscard]] bool is_gone(int rank) const { return std::find(gone_.begin(), gone_.end(), rank) != gone_.end(); }
    [[nodiscard]] bool take_signal(int signal);
    void show_progress(bool trains);
    void ask_what_is_pending();
    void kill_ranks() const;
    void end_job();
    void sweep() const;
    [[nodiscard]] bool has_ended();
    [[nodiscard]] std::vector<RankSnapshot> snapshots() const;
    [[nodiscard]] int judge() const;
    [[nodiscard]] int say_died(const Verdict& verdict) const;
    [[nodiscard]] int job_status() const { return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_); }

    JobPages& pages_;
    const Supervision options_;
    HeldSignals signals_;
    std::string name_;  // of the starter
    pid_t starter_ = -1;
    bool ended_ = false;  // whether the starter has ended, with status_
    int status_ = 0;
    int user_signal_ = 0;
    bool ends_at_once_ = false;  // the user signalled twice, or no step can be completed: see take_signal()
    Clock::time_point signalled_, observed_;
    double starter_stopped_s_ = 0;  // observed time for which the starter has been stopped
    std::optional<TrainingProgress> shown_;
    std::vector<RankWatch> watched_;
    std::vector<int> processes_;  // by rank: its pidfd, which is readable once the process has ended; -1: none
    std::vector<int> gone_;       // ranks in the order in which their end was observed
    std::optional<Verdict> verdict_;
    std::vector<RankSnapshot> at_verdict_;
};

int Supervisor::run(const Starter& starter) {
    prctl(PR_SET_CHILD_SUBREAPER, 1UL, 0UL, 0UL, 0UL);  // ranks that outlive it become children of this process
    const pid_t self = getpid();
    std::fflush(nullptr);
    name_ = starter.name;
    sigset_t all, mask;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &mask);  // until the child has its own handlers
    starter_ = fork();
    const int failed = errno;
    if (starter_ == 0) become(starter, self, signals_, mask);
    pthread_sigmask(SIG_SETMASK, &mask, nullptr);
    if (starter_ < 0) throw JobError(name_ + ": cannot be started: " + std::strerror(failed));
    watch();
    show_progress(false);
    if (!ended_) end_job();
    sweep();
    return judge();
}

/// Returns when the starter has ended, the user ends the job, or there is a verdict.
void Supervisor::watch() {
    observed_ = Clock::now();
    watched_.assign(watched_.size(), RankWatch(observed_));
    while (!has_ended()) {
        if (take_signal(wait_for_news())) return;
        if (has_ended()) return;
        if (seconds_since(observed_) * 1000 < kPoll_ms) continue;
        observe();
        show_progress(true);
        std::vector<RankView> views;
        for (const RankWatch& rank : watched_) views.push_back(rank.view());
        verdict_ = find_trouble(views, options_.timeout_s);
        const bool late = options_.timeout_s > 0 && starter_stopped_s_ >= options_.timeout_s;
        if (!verdict_.has_value() && late) verdict_ = Verdict{Trouble::starter_stopped, -1};
        if (!verdict_.has_value()) continue;
        ask_what_is_pending();
        at_verdict_ = snapshots();
        kill_ranks();
        return;
    }
}

bool has_process_ended(int file) {
    pollfd one{file, POLLIN, 0};
    return poll(&one, 1, 0) == 1;
}

/// Opens the pidfds of ranks that have started since the last call. A rank that has already ended is added to gone_.
/// True if all ranks have started.
bool Supervisor::open_processes() {
    bool all = true;
    for (std::size_t r = 0; r < processes_.size(); ++r) {
        const int rank = static_cast<int>(r);
        if (processes_[r] >= 0 || is_gone(rank)) continue;
        const pid_t process = pages_.read(rank).pid;
        all = all && process > 0;
        if (process <= 0) continue;
        processes_[r] = static_cast<int>(syscall(SYS_pidfd_open, process, 0));
        const bool ended = processes_[r] < 0 ? errno == ESRCH : has_process_ended(processes_[r]);
        if (ended) gone_.push_back(rank);
    }
    return all;
}

/// Waits for a signal, the end of a rank or the next poll; returns the signal or 0. Pidfds give the order in which
/// ranks end: the first is the culprit, and the starter ends the others within milliseconds, too fast for polling.
int Supervisor::wait_for_news() {
    const bool all = open_processes();
    std::vector<pollfd> files{{signals_.file(), POLLIN, 0}};
    std::vector<int> ranks;
    for (std::size_t r = 0; r < processes_.size(); ++r) {
        const int rank = static_cast<int>(r);
        if (processes_[r] < 0 || is_gone(rank)) continue;
        files.push_back({processes_[r], POLLIN, 0});
        ranks.push_back(rank);
    }
    poll(files.data(), files.size(), all ? kPoll_ms : kStartPoll_ms);
    // Ranks that started and ended during the poll come first: the starter has then ended the others because of them.
    (void)open_processes();
    for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (files[i + 1].revents != 0) gone_.push_back(ranks[i]);
    }
    return signals_.wait(0);
}

void Supervisor::observe() {
    const Clock::time_point now = Clock::now();
    for (std::size_t r = 0; r < watched_.size(); ++r) {
        if (now - observed_ > kLostTime) watched_[r].forgive(now - observed_);
        watched_[r].observe(now, pages_.read(static_cast<int>(r)));
    }
    // As with ranks, time for which this process itself was stopped does not count.
    const std::chrono::duration<double> passed =
        now - observed_ > kLostTime ? Clock::duration::zero() : now - observed_;
    starter_stopped_s_ = process_facts(starter_).is_stopped ? starter_stopped_s_ + passed.count() : 0;
    observed_ = now;
}

/// Handles the user's signal. True if the job must end at once.
bool Supervisor::take_signal(int signal) {
    if (signal == 0 || signal == SIGCHLD) return false;
    const bool is_first = user_signal_ == 0;
    if (!is_first && seconds_since(signalled_) < kSameSignal_s) return false;
    user_signal_ = signal;
    signalled_ = Clock::now();
    ends_at_once_ = !is_first || options_.program == nullptr || !pages_.stop_training(signal);
    if (ends_at_once_) return true;
    show_progress(false);
    say(name_of_signal(signal) + ": the training ends after this step; a second signal ends it at once", kExitDone);
    return false;
}

void Supervisor::show_progress(bool trains) {
    if (!options_.show) return;
    const auto progress = trains ? progress_of(pages_, *options_.program) : std::nullopt;
    if (progress == shown_) return;
    options_.show(progress);
    pages_.show_progress(progress.has_value());  // last, because it lets waiting ranks write to the terminal
    shown_ = progress;
}

void Supervisor::ask_what_is_pending() {
    const auto begin = Clock::now();
    for (bool all = false; !all && seconds_since(begin) < kAnswer_s; usleep(50'000)) {
        all = true;
        for (std::size_t r = 0; r < watched_.size(); ++r) {
            const RankView& rank = watched_[r].view();
            const bool answers = rank.exists && !rank.is_stopped && rank.page.awaited.sequence > 0;
            if (answers && !pages_.ask(static_cast<int>(r))) all = false;
        }
    }
}

/// The launcher kills the ranks itself. A starter may first continue stopped ranks, and a short job could then run to
/// its end and write its results.
void Supervisor::kill_ranks() const {
    for (const int process : processes_) {
        if (process >= 0) syscall(SYS_pidfd_send_signal, process, SIGKILL, nullptr, 0);
    }
}

bool Supervisor::has_ended() {
    if (!ended_) ended_ = waitpid(starter_, &status_, WNOHANG) == starter_;
    return ended_;
}

/// Ends the starter by SIGTERM. After another signal of the user or after kGrace_s, or if it is stopped, kills it and
/// leaves the ranks to sweep().
void Supervisor::end_job() {
    kill(starter_, SIGTERM);
    const Clock::time_point begin = Clock::now();
    while (!has_ended()) {
        const int signal = signals_.wait(kPoll_ms);
        const bool impatient =
            user_signal_ != 0 && seconds_since(signalled_) > kSameSignal_s && signal != SIGCHLD && signal != 0;
        const bool deaf = process_facts(starter_).is_stopped;
        if (!impatient && !deaf && seconds_since(begin) < kGrace_s) continue;
        kill(-starter_, SIGKILL);
        while (waitpid(starter_, &status_, 0) < 0 && errno == EINTR) {
        }
        ended_ = true;
    }
}

/// Kills processes that the starter left behind, which are children of this process by now (PR_SET_CHILD_SUBREAPER).
void Supervisor::sweep() const {
    const Clock::time_point begin = Clock::now();
    while (seconds_since(begin) < kGrace_s) {
        const std::vector<pid_t> left = children_of(getpid());
        if (left.empty()) return;
        for (const pid_t process : left) kill(process, SIGKILL);
        usleep(10'000);
        while (waitpid(-1, nullptr, WNOHANG) > 0) {
        }
    }
}

std::vector<RankSnapshot> Supervisor::snapshots() const {
    std::vector<RankSnapshot> all;
    all.reserve(watched_.size());
    for (int r = 0; r < pages_.ranks(); ++r) all.push_back(pages_.read(r));
    return all;
}

int Supervisor::say_died(const Verdict& verdict) const {
    const std::vector<RankSnapshot> ranks = snapshots();
    const int noted = ranks[static_cast<std::size_t>(verdict.rank)].signal;
    return say(explain(verdict, ranks, options_.timeout_s, describe_death(noted, job_status()), options_.program),
               kExitJobFailed);
}

int Supervisor::judge() const {
    if (ends_at_once_) {
        return say("stopped by signal " + std::to_string(user_signal_) + " (" + name_of_signal(user_signal_) + ")",
                   128 + user_signal_);
    }
    if (verdict_.has_value() && verdict_->trouble != Trouble::died) {
        const std::string stopped =
            name_ + " does not respond for " + short_seconds(options_.timeout_s) + ", its process is stopped";
        return say(explain(*verdict_, at_verdict_, options_.timeout_s, stopped, options_.program), kExitJobFailed);
    }
    const std::vector<RankSnapshot> ranks = snapshots();
    const int status = job_status();
    const bool ours = status == kExitJobFailed || status == kExitInputWrong || status == kExitBug;
    for (const RankSnapshot& rank : ranks) {
        if (rank.stage == RankStage::failed) return ours ? status : rank.exit_code;
    }
    if (!verdict_.has_value() && WIFSIGNALED(status_)) {
        return say(name_ + " " + describe_death(0, status), kExitJobFailed);
    }
    if (const auto died = find_first_to_die(ranks, gone_)) return say_died(*died);
    const bool none_began = std::all_of(ranks.begin(), ranks.end(),
                                        [](const RankSnapshot& rank) { return rank.stage == RankStage::absent; });
    const bool has_stopped = std::any_of(ranks.begin(), ranks.end(), [](const auto& rank) { return rank.has_stopped; });
    if (status == kExitDone && has_stopped) return 128 + user_signal_;
    if (status == kExitDone || (ours && !none_began)) return status;
    return say(name_ + " ended with exit code " + std::to_string(status), kExitJobFailed);
}

}  // namespace

int supervise(const Starter& starter, JobPages& pages, const Supervision& options) {
    return Supervisor(pages, options).run(starter);
}

}  // namespace orrery::exec
