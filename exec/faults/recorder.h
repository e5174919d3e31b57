// The rank's side of its page: it records what the rank does, at a cost of nanoseconds per instruction, so that the
// launcher can report where a dead or hanging rank is.
#pragma once

#include <memory>
#include <string>

#include "exec/faults/rank_page.h"
#include "sim/program/program.h"

namespace orrery::exec {

class FlightRecorder {
  public:
    /// Attaches to this rank's page in the launcher's memory (kPagesVariable), or allocates a private page without one.
    FlightRecorder();
    ~FlightRecorder();
    FlightRecorder(const FlightRecorder&) = delete;
    FlightRecorder& operator=(const FlightRecorder&) = delete;

    /// Whether a launcher reads the page and looks for dead and hanging ranks.
    [[nodiscard]] bool is_watched() const { return own_ == nullptr; }

    void enter(RankStage stage) { page_->stage.store(stage, std::memory_order_release); }
    /// Enters the stage `failed`, with the exit code of the job.
    void fail(int exit_code);
    /// Sets the Program, so that place() can name instructions. It must live until this is destroyed or follow() is
    /// called again.
    void follow(const program::Program& program, std::int64_t rank);

    // Called by the thread that issues instructions.
    /// Sets the number of this run's first step within the whole training.
    void start_at(std::int64_t first_step) { page_->first_step = first_step; }
    /// Records that a step begins; `step` counts from the start of the training. False if the launcher has stopped the
    /// training before this step.
    [[nodiscard]] bool begin_step(std::int64_t step);
    /// Records that the next step of this run is done, with this rank's sum of losses.
    void finish_step(double loss_sum);
    /// Records that the remaining steps are skipped.
    void stop() { page_->has_stopped = true; }
    [[nodiscard]] bool has_stopped() const { return page_->has_stopped; }
    void begin(InstructionPlace place) {
        page_->next.store(packed(place), std::memory_order_relaxed);
        count_instruction();
    }
    /// Counts progress; also called for work outside of instructions.
    void count_instruction() { page_->instructions.store(++instructions_, std::memory_order_relaxed); }
    void finish(InstructionPlace place) { page_->finished.store(packed(place), std::memory_order_relaxed); }
    void wait_for(AwaitedOperation operation) { page_->awaited.store(packed(operation), std::memory_order_relaxed); }
    void stop_waiting() { page_->awaited.store(0, std::memory_order_relaxed); }
    void exchange(bool begins) { page_->exchanging.store(begins, std::memory_order_relaxed); }
    /// Whether the launcher, or a thread of this process, has asked for the pending operations and has no answer yet.
    [[nodiscard]] bool is_asked() const {
        return page_->asked.load(std::memory_order_relaxed) != 0 && page_->answered.load() == 0;
    }
    void ask() { page_->asked = 1; }
    void answer(const std::string& pending);

    // Called by the progress thread.
    void count_messages(std::uint64_t completed) {
        page_->messages.store(messages_ += completed, std::memory_order_relaxed);
    }

    /// The signal that asked for a graceful stop after the current step; 0 if none has arrived.
    [[nodiscard]] int stop_signal() const { return page_->stop_signal; }
    /// From now on the first SIGINT, SIGTERM or SIGHUP only asks for a graceful stop; another one at least a second
    /// later ends the process. Has no effect if a launcher watches, because the launcher then handles the signals.
    void hold_signals();
    /// Call it before printing: returns when the launcher shows no progress on the terminal, or after a second.
    void wait_for_the_terminal() const;

    /// Where the rank is, for a message (describe_place). "" before its first instruction and without a Program.
    [[nodiscard]] std::string place() const;
    /// This rank's sum of losses in the last step done.
    [[nodiscard]] double last_loss_sum() const {
        return page_->losses[static_cast<std::size_t>((page_->steps_done - 1) % kLossesInPage)];
    }
    [[nodiscard]] RankSnapshot snapshot() const { return read_page(*page_); }

    /// From now on fatal signals are recorded in the page before they end the process. Has no effect unless a launcher
    /// watches. Call it after MPI has installed its handlers, which are then called after ours.
    void note_signals();

  private:
    bool attach();
    bool holds_signals_ = false;
    std::unique_ptr<RankPage> own_;
    RankPage* page_ = nullptr;
    std::uint64_t instructions_ = 0;
    std::uint64_t messages_ = 0;
    const program::Program* program_ = nullptr;
    std::int64_t rank_ = 0;
};

}  // namespace orrery::exec
