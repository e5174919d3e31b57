// A rank's status while it runs, in a page of shared memory that the launcher can read even after the rank was killed.
// Each field has one writer and needs no lock. A page of zero bytes has not been taken by a rank yet.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "sim/program/program.h"

namespace orrery::exec {

/// The stages of a rank's run.
enum class RankStage : std::int32_t {
    absent,      // no process has taken the page
    starting,    // not yet connected to the other ranks
    preparing,   // reads the plan, creates groups and weights
    connecting,  // waits for the other ranks while communicators are set up, which may take long
    training,    // issues instructions
    saving,      // writes a checkpoint between two steps
    finishing,   // after the last step: gathers and writes results
    done,        // has nothing more to do
    failed,      // has reported its error and ends the job
};

/// Whether the rank writes files in this stage. It may then be slow without waiting for other ranks.
[[nodiscard]] constexpr bool writes_files(RankStage stage) {
    return stage == RankStage::saving || stage == RankStage::finishing;
}

/// An instruction of a rank's step, as a program::Span names it.
struct InstructionPlace {
    std::int32_t action = -1;  // -1: none
    std::int32_t segment = 0;
    std::int32_t instruction = 0;
    [[nodiscard]] bool exists() const { return action >= 0; }
    friend bool operator==(const InstructionPlace&, const InstructionPlace&) = default;
};

/// A place in one word, so that readers never see half of an update; 0: none. Room for 2^24 actions of 2^16 segments of
/// 2^24 instructions.
[[nodiscard]] constexpr std::uint64_t packed(InstructionPlace place) {
    return static_cast<std::uint64_t>(place.action + 1) << 40U | static_cast<std::uint64_t>(place.segment) << 24U |
           static_cast<std::uint64_t>(place.instruction);
}
[[nodiscard]] constexpr InstructionPlace unpacked(std::uint64_t word) {
    return {static_cast<std::int32_t>(word >> 40U) - 1, static_cast<std::int32_t>(word >> 24U & 0xffffU),
            static_cast<std::int32_t>(word & 0xffffffU)};
}

/// The operation of a stream that a rank's main thread waits for, on an asynchronous device also one of a local stream;
/// sequence 0: none.
struct AwaitedOperation {
    program::Stream stream{};
    std::int64_t sequence = 0;
};
[[nodiscard]] constexpr std::uint64_t packed(AwaitedOperation awaited) {
    return static_cast<std::uint64_t>(awaited.sequence) << 8U | static_cast<std::uint64_t>(awaited.stream);
}
[[nodiscard]] constexpr AwaitedOperation unpacked_operation(std::uint64_t word) {
    return {static_cast<program::Stream>(word & 0xffU), static_cast<std::int64_t>(word >> 8U)};
}

/// For how many of the last steps a page holds the rank's losses. More than a rank can be ahead of another.
inline constexpr std::int64_t kLossesInPage = 8;

/// Size of RankPage::pending. Together with the field before it, `messages`, it fills whole cache lines.
inline constexpr std::size_t kPendingBytes = 2040;

struct RankPage {
    std::atomic<std::int32_t> pid;
    std::atomic<RankStage> stage;
    std::atomic<std::int64_t> start_ticks;                  // start time of the process, in case its pid is reused
    std::atomic<std::int64_t> steps_begun;                  // number of the current step in the whole training, plus 1
    std::atomic<std::int64_t> first_step;                   // number of this run's first step in the whole training
    std::atomic<std::int64_t> steps_done;                   // steps of this run whose losses have been written
    std::array<std::atomic<double>, kLossesInPage> losses;  // sums over this rank's tokens, by step of the run mod 8
    std::atomic<std::uint64_t> finished, next;              // packed(InstructionPlace)
    std::atomic<std::uint64_t> instructions;                // issued since the start
    std::atomic<std::uint64_t> awaited;                     // packed(AwaitedOperation)
    std::atomic<std::int32_t> exit_code;                    // in stage `failed`: the exit code of the job
    std::atomic<std::int32_t> signal;                       // the fatal signal that the process received; 0: none
    std::atomic<std::int64_t> signal_ns;                    // when, on the clock of now_ns()
    // Graceful stop by the launcher: the rank does not begin step stop_before once stop_is_settled. Until it is settled
    // the rank waits before that step, because another rank may be ahead and move stop_before.
    std::atomic<std::int64_t> stop_before;  // number of a step in the whole training; 0: no stop
    std::atomic<std::int32_t> stop_signal;  // the user's signal that asked for the stop; 0: none
    std::atomic<bool> stop_is_settled;
    std::atomic<bool> has_stopped;                    // set by the rank when it has skipped the remaining steps
    std::atomic<bool> progress_is_shown;              // the launcher shows progress on the terminal
    std::atomic<bool> exchanging;                     // the rank waits for all ranks outside of any stream
    std::atomic<std::uint32_t> asked;                 // set by the launcher to request `pending`
    std::atomic<std::uint32_t> answered;              // set by the rank when it has written `pending`
    alignas(64) std::atomic<std::uint64_t> messages;  // completed since the start; written by the progress thread
    std::array<char, kPendingBytes> pending;          // describes pending operations; NUL-terminated
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<RankStage>::is_always_lock_free);

/// A copy of a page.
struct RankSnapshot {
    std::int32_t pid = 0;
    std::int64_t start_ticks = 0;
    RankStage stage = RankStage::absent;
    std::int64_t step = -1;  // the current step; -1: before the first
    std::int64_t first_step = 0, steps_done = 0;
    InstructionPlace finished, next;
    std::uint64_t instructions = 0, messages = 0;
    AwaitedOperation awaited;
    bool exchanging = false;
    std::int32_t exit_code = 0;
    std::int32_t signal = 0;
    std::int64_t signal_ns = 0;
    std::string pending;  // "" until the rank has answered
    bool has_stopped = false;
    /// Whether it waits for other ranks, and so is not the cause of a hang.
    [[nodiscard]] bool waits() const { return exchanging || awaited.sequence > 0 || stage == RankStage::connecting; }
    /// Whether it has finished its work or reported its error.
    [[nodiscard]] bool has_ended() const { return stage == RankStage::done || stage == RankStage::failed; }
};
[[nodiscard]] RankSnapshot read_page(const RankPage& page);

/// The environment variable with the path of the job's pages: a file with one RankPage per rank.
inline constexpr const char* kPagesVariable = "ORRERY_RANK_PAGES";

/// The launcher's view of the pages of all ranks. They are in an anonymous memory file, which disappears with the last
/// process that uses it.
class JobPages {
  public:
    /// Throws JobError if the memory cannot be allocated.
    explicit JobPages(int ranks);
    ~JobPages();
    JobPages(const JobPages&) = delete;
    JobPages& operator=(const JobPages&) = delete;
    /// The value of kPagesVariable; valid while this process lives.
    [[nodiscard]] std::string path() const;
    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] RankSnapshot read(int rank) const { return read_page(pages_[rank]); }
    /// Asks a waiting rank to describe its pending operations; true once it has.
    [[nodiscard]] bool ask(int rank);
    /// Makes all ranks stop training after the step of the rank that is furthest ahead. `signal` is the user's signal.
    /// False if no rank has begun a step.
    [[nodiscard]] bool stop_training(int signal);
    /// The rank's sum of losses in a step of this run, which must be among the last kLossesInPage that it has done.
    [[nodiscard]] double loss_sum(int rank, std::int64_t step) const;
    /// Tells the ranks whether progress is on the terminal; they wait with their output until it is not.
    void show_progress(bool is_shown);

  private:
    [[nodiscard]] std::int64_t most_steps_begun() const;
    int ranks_ = 0;
    int file_ = -1;
    RankPage* pages_ = nullptr;
};

}  // namespace orrery::exec
