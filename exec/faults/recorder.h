// A rank's end of its page: it writes down what it does, in nanoseconds an instruction, so that whoever finds it dead
// or standing still can say where.
#pragma once

#include <memory>
#include <string>

#include "exec/faults/rank_page.h"
#include "sim/program/program.h"

namespace orrery::exec {

class FlightRecorder {
  public:
    /// Takes this rank's page of its launcher's, where there is one (kPagesVariable), else a page of its own.
    FlightRecorder();
    ~FlightRecorder();
    FlightRecorder(const FlightRecorder&) = delete;
    FlightRecorder& operator=(const FlightRecorder&) = delete;

    /// A launcher reads along: it finds who is dead or hangs.
    [[nodiscard]] bool is_watched() const { return own_ == nullptr; }

    void enter(RankStage stage) { page_->stage.store(stage, std::memory_order_release); }
    /// Stage failed, with the exit code that the job will have.
    void fail(int exit_code);
    /// So that place() can name instructions. The Program outlives this, or the next call.
    void follow(const program::Program& program, std::int64_t rank);

    // Of the thread that issues instructions.
    /// The first step of this run, counted from the first of the training, as begin_step counts.
    void start_at(std::int64_t first_step) { page_->first_step = first_step; }
    /// False when the launcher has ended the training before this step.
    [[nodiscard]] bool begin_step(std::int64_t step);
    /// The next step of this run is done, with what this rank's tokens added to its loss.
    void finish_step(double loss_sum);
    /// No further step is begun, though more were asked for.
    void stop() { page_->has_stopped = true; }
    [[nodiscard]] bool has_stopped() const { return page_->has_stopped; }
    void begin(InstructionPlace place) {
        page_->next.store(packed(place), std::memory_order_relaxed);
        count_instruction();
    }
    /// Work that is none, but gets on all the same.
    void count_instruction() { page_->instructions.store(++instructions_, std::memory_order_relaxed); }
    void finish(InstructionPlace place) { page_->finished.store(packed(place), std::memory_order_relaxed); }
    void wait_for(AwaitedOperation operation) { page_->awaited.store(packed(operation), std::memory_order_relaxed); }
    void stop_waiting() { page_->awaited.store(0, std::memory_order_relaxed); }
    void exchange(bool begins) { page_->exchanging.store(begins, std::memory_order_relaxed); }
    /// The launcher, or a thread of this process's own, wants to know what is pending, and has no answer yet.
    [[nodiscard]] bool is_asked() const {
        return page_->asked.load(std::memory_order_relaxed) != 0 && page_->answered.load() == 0;
    }
    void ask() { page_->asked = 1; }
    void answer(const std::string& pending);

    // Of the progress thread.
    void count_messages(std::uint64_t completed) {
        page_->messages.store(messages_ += completed, std::memory_order_relaxed);
    }

    /// By which the user has asked to end the training after the step; 0: none has come.
    [[nodiscard]] int stop_signal() const { return page_->stop_signal; }
    /// From now on the first SIGINT, SIGTERM or SIGHUP only asks for that. A second one, a second later or more, ends
    /// the process. Only where no launcher reads along, which takes them otherwise.
    void hold_signals();
    /// Before something is printed: returns once the launcher shows no progress on the terminal.
    void wait_for_the_terminal() const;

    /// Where the rank is, for a message: see describe_place. "" before its first instruction.
    [[nodiscard]] std::string place() const;
    /// Of the last step that is done: what this rank's tokens added to its loss.
    [[nodiscard]] double last_loss_sum() const {
        return page_->losses[static_cast<std::size_t>((page_->steps_done - 1) % kLossesInPage)];
    }
    [[nodiscard]] RankSnapshot snapshot() const { return read_page(*page_); }

    /// From now on signals that end this process are noted in the page first. Only where a launcher reads along; called
    /// when MPI has set its own handlers, which then still have their say.
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
