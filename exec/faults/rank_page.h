// What a rank tells about itself while it runs: a page of memory that the launcher of its machine can read, also after
// the rank was killed. Each field has one writer and is written without locks; all bytes 0 is a page that no rank has
// taken yet.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>

#include "sim/program/program.h"

namespace orrery::exec {

/// How far a rank has come.
enum class RankStage : std::int32_t {
    absent,     // no process has taken the page
    starting,   // not yet connected with the others
    preparing,  // reads the plan, makes groups and weights
    training,   // issues instructions
    saving,     // between two steps: writes a checkpoint
    finishing,  // all steps are over: results are gathered and written
    done,       // has nothing more to do
    failed,     // has said why and ends the job
};

/// A file system may be slow, and a rank that writes waits for nobody.
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

/// In one word, so that a reader never sees half of it; 0: none. Room for 2^24 actions of 2^16 segments of 2^24
/// instructions.
[[nodiscard]] constexpr std::uint64_t packed(InstructionPlace place) {
    return static_cast<std::uint64_t>(place.action + 1) << 40U | static_cast<std::uint64_t>(place.segment) << 24U |
           static_cast<std::uint64_t>(place.instruction);
}
[[nodiscard]] constexpr InstructionPlace unpacked(std::uint64_t word) {
    return {static_cast<std::int32_t>(word >> 40U) - 1, static_cast<std::int32_t>(word >> 24U & 0xffffU),
            static_cast<std::int32_t>(word & 0xffffffU)};
}

/// The operation of a communication stream for which a rank's host waits; sequence 0: for none.
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

/// Of how many of its last steps a rank's losses stand in its page. No rank is so many steps ahead of another.
inline constexpr std::int64_t kLossesInPage = 8;

/// Of text; the last field, with the one before, fills its lines of the cache.
inline constexpr std::size_t kPendingBytes = 2040;

struct RankPage {
    std::atomic<std::int32_t> pid;
    std::atomic<RankStage> stage;
    std::atomic<std::int64_t> start_ticks;  // of the process, which tells it from a later one of the same number
    std::atomic<std::int64_t> steps_begun;  // counted from the first of the training, as first_step is
    std::atomic<std::int64_t> first_step;   // of this run
    std::atomic<std::int64_t> steps_done;   // of this run, with their losses
    std::array<std::atomic<double>, kLossesInPage> losses;  // sums over this rank's tokens, by step of the run
    std::atomic<std::uint64_t> finished, next;              // packed(InstructionPlace)
    std::atomic<std::uint64_t> instructions;                // issued since the start
    std::atomic<std::uint64_t> awaited;                     // packed(AwaitedOperation)
    std::atomic<std::int32_t> exit_code;                    // stage failed: with which it ends the job
    std::atomic<std::int32_t> signal;                       // that it was sent and ends by
    std::atomic<std::int64_t> signal_ns;                    // when, by now_ns()
    // How the launcher ends the training after a step. stop_before is a step that the rank does not begin once
    // stop_is_settled; until then it waits there, since another rank may be ahead.
    std::atomic<std::int64_t> stop_before;  // 0: trains on
    std::atomic<std::int32_t> stop_signal;  // by which the user has asked for it
    std::atomic<bool> stop_is_settled;
    std::atomic<bool> has_stopped;        // by the rank: it left steps out
    std::atomic<bool> progress_is_shown;  // on the terminal, by the launcher
    std::atomic<bool> exchanging;         // waits for all ranks outside of any stream
    std::atomic<std::uint32_t> asked;     // by the launcher: what is pending?
    std::atomic<std::uint32_t> answered;
    alignas(64) std::atomic<std::uint64_t> messages;  // completed since the start; written by the progress thread
    std::array<char, kPendingBytes> pending;          // text, with a NUL at its end
};
static_assert(std::atomic<std::uint64_t>::is_always_lock_free && std::atomic<RankStage>::is_always_lock_free);

/// A copy of a page.
struct RankSnapshot {
    std::int32_t pid = 0;
    std::int64_t start_ticks = 0;
    RankStage stage = RankStage::absent;
    std::int64_t step = -1;  // that it is in; -1: before the first
    std::int64_t first_step = 0, steps_done = 0;
    InstructionPlace finished, next;
    std::uint64_t instructions = 0, messages = 0;
    AwaitedOperation awaited;
    bool exchanging = false;
    std::int32_t exit_code = 0;
    std::int32_t signal = 0;
    std::int64_t signal_ns = 0;
    std::string pending;  // once asked
    bool has_stopped = false;
    /// Whether it waits for others, so that its standing still is not its own fault.
    [[nodiscard]] bool waits() const { return exchanging || awaited.sequence > 0; }
    /// Whether it has left the job in order, or said why not.
    [[nodiscard]] bool has_ended() const { return stage == RankStage::done || stage == RankStage::failed; }
};
[[nodiscard]] RankSnapshot read_page(const RankPage& page);

/// The environment variable that tells a rank where the pages of its job are: a file of one RankPage a rank.
inline constexpr const char* kPagesVariable = "ORRERY_RANK_PAGES";

/// A launcher's end: the pages of all ranks, in memory that has no name in any file system and goes with its readers.
class JobPages {
  public:
    /// Throws JobError when the system gives no such memory.
    explicit JobPages(int ranks);
    ~JobPages();
    JobPages(const JobPages&) = delete;
    JobPages& operator=(const JobPages&) = delete;
    /// For kPagesVariable; of use while this process lives.
    [[nodiscard]] std::string path() const;
    [[nodiscard]] int ranks() const { return ranks_; }
    [[nodiscard]] RankSnapshot read(int rank) const { return read_page(pages_[rank]); }
    /// Has the rank, while it waits, write what is pending; true once it has.
    [[nodiscard]] bool ask(int rank);
    /// Has the ranks end their training after the step in which the first of them is, as the user asked by a signal.
    /// False when none has begun a step.
    [[nodiscard]] bool stop_training(int signal);
    /// What the rank's tokens added to the loss of a step of this run, one of the last kLossesInPage that it has done.
    [[nodiscard]] double loss_sum(int rank, std::int64_t step) const;
    /// Ranks wait with what they print until no progress is shown.
    void show_progress(bool is_shown);

  private:
    [[nodiscard]] std::int64_t most_steps_begun() const;
    int ranks_ = 0;
    int file_ = -1;
    RankPage* pages_ = nullptr;
};

}  // namespace orrery::exec
