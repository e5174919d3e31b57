// Executes a Program on this rank with real kernels and real messages. The simulator is the other interpreter of
// Programs.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/arena.h"
#include "exec/backend.h"
#include "exec/data.h"
#include "exec/executable.h"
#include "exec/faults/instruction_watch.h"
#include "exec/operator_call.h"
#include "exec/shards.h"
#include "exec/update_operator.h"
#include "sim/program/issue_trace.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::exec {

/// One rank's times of one step, in nanoseconds of the machine's monotonic clock.
struct StepTimes {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t paused_until_ns = 0;  // end of the pause after the step (a checkpoint); 0: no pause
    double loss_sum = 0;               // over this rank's tokens; 0 if the rank does not have the head
    std::vector<program::Span> spans;  // in issue order; times in picoseconds from begin_ns; see kStepsWithSpans
};

/// Only the last steps of a run keep their spans, so that memory does not grow with the number of steps.
inline constexpr std::int64_t kStepsWithSpans = 64;
/// How many steps the host may run ahead of an asynchronous device, besides the step that it issues. Enough that the
/// device never waits for the host, few enough that the loss and a graceful stop are not late.
inline constexpr std::int64_t kStepsAhead = 2;

struct RunTimes {
    std::vector<StepTimes> steps;
    program::PerStream<std::int64_t> bytes_sent{};  // by stream, over all steps
    std::vector<program::KindBytes> collectives;    // by stream and kind, over all steps
};

/// Callbacks of run(); each may be empty. Steps count from 0 in each run.
struct StepHooks {
    std::function<void(std::int64_t step)> before_optimizer;  // called when all gradients of the step are complete
    /// Called after each step, possibly with transfers in flight. Returns whether it paused the training.
    std::function<bool(std::int64_t step)> after;
    /// Whether the run ends before this step. Must return the same on all ranks.
    std::function<bool(std::int64_t step)> ends_before;
};

class Interpreter {
  public:
    /// Allocates the arena, initialises the weights and creates the process groups of this rank. Collective over all
    /// `world_size` ranks. Program, backend and recorder must outlive the interpreter. Throws InputError as
    /// check_executable does, or if the Program is for another number of ranks.
    Interpreter(const program::Program& program, int rank, int world_size, Backend& backend, FlightRecorder& recorder);

    /// Sets the number, within the whole training, of the first step that run() runs; 0 by default. It determines the
    /// samples and the optimizer's step count. Call it before run().
    void start_at(std::int64_t step) {
        first_step_ = step;
        recorder_.start_at(step);
    }
    /// Runs `steps` steps back to back, or fewer if the launcher or a hook ends the training early.
    RunTimes run(std::int64_t steps, const StepHooks& hooks = {});
    /// Blocks until all operations of the steps so far have completed. Throws JobError if a result is not finite.
    void finish_transfers();

    [[nodiscard]] const program::Program& program() const { return program_; }
    [[nodiscard]] const program::RankClass& rank_class() const { return class_; }
    [[nodiscard]] program::ClassIndex class_index() const { return class_index_; }
    [[nodiscard]] program::MeshCoordinates coordinates() const { return coordinates_; }
    [[nodiscard]] const Arena& arena() const { return *arena_; }
    [[nodiscard]] Backend& backend() const { return backend_; }
    [[nodiscard]] const Shards& shards() const { return shards_; }

  private:
    using StreamCounts = program::PerStream<std::int64_t>;
    struct Cursor;       // the host's position in the step
    struct PendingStep;  // a step that may still have operations in flight
    void wait_for_step(std::int64_t step);
    [[nodiscard]] StepTimes with_spans(PendingStep& pending) const;
    void run_step(PendingStep& pending, const std::function<void(std::int64_t)>& before_optimizer);
    void issue(Cursor& at, const program::Body& body, const program::Instruction& instruction, OperationTimes& times);
    void run_operators(const Cursor& at, const program::Body& body, const program::Instruction& instruction,
                       OperationTimes& times);
    void post(const Cursor& at, const program::Body& body, const program::Instruction& instruction,
              OperationTimes& times);
    /// The operations that, by the Program, must have completed before the instruction starts.
    [[nodiscard]] Dependencies dependencies_of(const Cursor& at, const program::Call& call) const;
    /// Blocks the host until all earlier computation has completed and the dependencies of the action's first
    /// computation are met.
    void wait_for_computation(const Cursor& at);
    void fill_samples(std::int64_t step, std::int32_t micro_batch);
    void initialise_weights();
    [[nodiscard]] OperatorPointers pointers_of(const Cursor& at, const program::Body& body,
                                               const models::Operator& op) const;
    void initialise(const program::Parameter& parameter, const UpdateOperator& update);
    [[nodiscard]] Partners find_partners() const;
    /// Fault injection: overwrites this rank's first parameter with NaN.
    void poison_first_parameter();
    /// Throws JobError if the loss or the gradient norm is not finite after the current instruction. On an asynchronous
    /// backend this only queues the fetch of the norm, and check_finite() throws when the step has completed.
    void check_results(const Cursor& at) const;
    void check_finite(const PendingStep& done) const;

    const program::Program& program_;
    Backend& backend_;
    std::int64_t rank_ = 0;
    std::int64_t first_step_ = 0;
    program::MeshCoordinates coordinates_;
    program::ClassIndex class_index_ = 0;
    const program::RankClass& class_;
    std::unique_ptr<Arena> arena_;
    TokenSource data_;
    OperatorContext context_;
    std::vector<std::int64_t> samples_;
    Shards shards_;
    std::vector<UpdateRange> updates_;
    AxisGroups groups_{};
    Partners partners_;
    std::vector<BoundOperator> bound_;          // operators of the current instruction
    program::Trace trace_;                      // of one step
    std::deque<const PendingStep*> unchecked_;  // steps whose results an asynchronous backend may not have yet
    struct OnStream {
        program::Stream stream{};
        std::int64_t sequence = 0;
    };
    program::PerAxis<OnStream> latest_on_axis_{};
    FlightRecorder& recorder_;
    InstructionWatch watch_;
};

}  // namespace orrery::exec
