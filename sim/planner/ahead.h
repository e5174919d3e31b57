// Private to the planner: results that other threads compute before they are asked for.
#pragma once

#include <oneapi/tbb/task_arena.h>
#include <oneapi/tbb/task_group.h>

#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <utility>

namespace orrery::sim {

/// Results of a pure function by its argument. One thread asks, in an order of its own; what it will probably ask for
/// can be started on other threads of its task arena. Results, and the exceptions in place of them, are those of
/// computing each when it is asked for, so that the number of threads changes nothing but the time. What no thread has
/// begun when it is asked for is computed by the thread that asks, so that it never waits for threads that do not come.
template <typename Key, typename Result>
class Ahead {
  public:
    /// `compute` must not change anything that another call reads. `running` counts what is started and neither ended
    /// nor taken back, of all that share the threads.
    Ahead(std::function<Result(const Key&)> compute, std::atomic<int>& running)
        : compute_(std::move(compute)), running_(running) {}
    ~Ahead() {
        for (auto& [key, task] : tasks_) {
            if (!task->is_claimed.exchange(true)) --running_;
        }
        group_.wait();
    }
    Ahead(const Ahead&) = delete;
    Ahead& operator=(const Ahead&) = delete;

    void start(const Key& key) {
        const auto [entry, fresh] = tasks_.try_emplace(key);
        if (!fresh) return;
        ++running_;
        group_.run([this, key, task = entry->second = std::make_shared<Task>()] {
            if (task->is_claimed.exchange(true)) return;
            try {
                task->result = compute_(key);
            } catch (...) {
                task->error = std::current_exception();
            }
            --running_;
            task->is_done = true;
            task->is_done.notify_one();
        });
    }
    /// Computes it now unless a thread has begun it. Each result can be taken once.
    [[nodiscard]] Result take(const Key& key) {
        const auto started = tasks_.extract(key);
        if (started.empty()) return compute_(key);
        Task& task = *started.mapped();
        if (!task.is_claimed.exchange(true)) {
            --running_;
            return compute_(key);
        }
        task.is_done.wait(false);
        if (task.error) std::rethrow_exception(task.error);
        return std::move(task.result.value());
    }

  private:
    struct Task {
        std::atomic<bool> is_claimed = false, is_done = false;
        std::optional<Result> result;
        std::exception_ptr error;
    };

    std::function<Result(const Key&)> compute_;
    std::map<Key, std::shared_ptr<Task>> tasks_;
    std::atomic<int>& running_;
    tbb::task_group group_;
};

/// Whether the task arena has a thread beside those that are running and the calling one.
[[nodiscard]] inline bool has_free_thread(const std::atomic<int>& running) {
    return running + 1 < tbb::this_task_arena::max_concurrency();
}

}  // namespace orrery::sim
