// By which the ranks of a machine agree on the one that reports a failure: messages between ranks are unreliable at
// that moment.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

namespace orrery::exec {

class Transport;

class AbortFlag {
  public:
    AbortFlag() = default;
    ~AbortFlag();
    AbortFlag(const AbortFlag&) = delete;
    AbortFlag& operator=(const AbortFlag&) = delete;

    /// Shares a word of memory among the ranks of this machine; collective over all ranks. Without shared memory (no
    /// /dev/shm) every failing rank reports.
    void share(Transport& transport);
    /// Raises it. None on the first rank of the machine that does; otherwise the exit code of the first.
    [[nodiscard]] std::optional<int> raise(int exit_code);
    [[nodiscard]] bool is_raised() const { return word_ != nullptr && word_->load() != 0; }

  private:
    std::atomic<std::uint32_t>* word_ = nullptr;  // 0, or the exit code of the first rank that failed
};

}  // namespace orrery::exec
