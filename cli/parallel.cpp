#include "cli/parallel.h"

#include <fmt/core.h>
#include <oneapi/tbb/global_control.h>
#include <oneapi/tbb/task_arena.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "cli/commands.h"

namespace orrery::cli {
namespace {

/// A progress bar on standard error, with the rate and the time that is left; shows nothing without a terminal.
class Progress {
  public:
    Progress(std::string verb, std::size_t total)
        : verb_(std::move(verb)), total_(total), shown_(isatty(STDERR_FILENO) != 0 && total > 0) {}
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;
    ~Progress() {
        if (!shown_) return;
        say("\r\033[K");
    }
    void next() {
        if (!shown_) return;
        const std::lock_guard lock(mutex_);
        ++done_;
        constexpr std::size_t kWidth = 40;
        const std::size_t filled = done_ * kWidth / total_;
        const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began_;
        const double rate = static_cast<double>(done_) / elapsed.count();
        const double left_s = static_cast<double>(total_ - done_) / rate;
        say(fmt::format("\r\033[K{} [{}{}] {}/{}, {:.3g} a second, {:.0f} s left", verb_, std::string(filled, '#'),
                        std::string(kWidth - filled, ' '), done_, total_, rate, left_s));
    }

  private:
    std::string verb_;
    std::size_t total_, done_ = 0;
    bool shown_;
    std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
    std::mutex mutex_;
};

}  // namespace

int on_threads(int threads, const std::function<int()>& work) {
    if (threads == 0) return tbb::task_arena(tbb::task_arena::automatic).execute(work);
    // Otherwise oneTBB warns of more threads than cores, and has no more.
    const tbb::global_control most(tbb::global_control::max_allowed_parallelism, static_cast<std::size_t>(threads));
    return tbb::task_arena(threads).execute(work);
}

void in_parallel(const std::string& verb, std::size_t count, const std::function<void(std::size_t)>& work) {
    Progress progress(verb, count);
    std::atomic<std::size_t> next = 0;
    std::vector<std::exception_ptr> errors(count);
    const auto run = [&] {
        for (std::size_t i = next++; i < count; i = next++) {
            try {
                work(i);
            } catch (...) {
                errors[i] = std::current_exception();
            }
            progress.next();
        }
    };
    std::vector<std::jthread> threads;
    const auto most = static_cast<std::size_t>(std::max(1, tbb::this_task_arena::max_concurrency()));
    for (std::size_t t = 1; t < std::min(most, count); ++t) threads.emplace_back(run);
    run();
    threads.clear();
    const auto first = std::find_if(errors.begin(), errors.end(), [](const auto& error) { return error != nullptr; });
    if (first != errors.end()) std::rethrow_exception(*first);
}

}  // namespace orrery::cli
