// Executes a Program on this rank, with real kernels and real messages: the second interpreter beside the simulator.
#pragma once

#include <cstdint>
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

/// What one rank saw of one step. Times are nanoseconds of the machine's monotonic clock.
struct StepTimes {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    std::int64_t paused_until_ns = 0;  // 0: the next step began at once
    double loss_sum = 0;               // of this rank's tokens; 0 where the head is not
    std::vector<program::Span> spans;  // in list order; times in picoseconds from begin_ns; see kStepsWithSpans
};

/// Only the last steps of a run keep their spans, so that memory does not grow with the number of steps.
inline constexpr std::int64_t kStepsWithSpans = 64;
/// So many steps, beside the one that it issues, the host may be ahead of a device: enough that the device never waits
/// for it, few enough that who asks for an end, or for the loss, need not wait long.
inline constexpr std::int64_t kStepsAhead = 2;

struct RunTimes {
    std::vector<StepTimes> steps;
    program::PerStream<std::int64_t> bytes_sent{};  // all steps together
    std::vector<program::KindBytes> collectives;    // likewise
};

/// What run() calls; each may be empty. Steps count from 0 in each run.
struct StepHooks {
    std::function<void(std::int64_t step)> before_optimizer;  // once all gradients of the step are complete
    /// With transfers still under way. Returns whether it paused the training.
    std::function<bool(std::int64_t step)> after;
    /// Whether the run ends before this step, which is then said on all ranks.
    std::function<bool(std::int64_t step)> ends_before;
};

class Interpreter {
  public:
    /// Makes the arena, the weights and the groups of this rank of a world of `world_size` ranks. Collective over all
    /// ranks. Program, backend and recorder outlive the interpreter. Throws InputError as check_executable does, or
    /// when the Program is for another number of ranks.
    Interpreter(const program::Program& program, int rank, int world_size, Backend& backend, FlightRecorder& recorder);

    /// Of the whole training, the first step that run() runs: it decides on samples and on the optimizer's number of
    /// steps. 0 unless this is called before.
    void start_at(std::int64_t step) {
        first_step_ = step;
        recorder_.start_at(step);
    }
    /// Runs `steps` steps back to back, fewer when the launcher or a hook ends the training before.
    RunTimes run(std::int64_t steps, const StepHooks& hooks = {});
    /// Blocks until all transfers of the steps so far are over.
    void finish_transfers() { backend_.wait_all(); }

    [[nodiscard]] const program::Program& program() const { return program_; }
    [[nodiscard]] const program::RankClass& rank_class() const { return class_; }
    [[nodiscard]] program::ClassIndex class_index() const { return class_index_; }
    [[nodiscard]] program::MeshCoordinates coordinates() const { return coordinates_; }
    [[nodiscard]] const Arena& arena() const { return *arena_; }
    [[nodiscard]] Backend& backend() const { return backend_; }
    [[nodiscard]] const Shards& shards() const { return shards_; }

  private:
    using StreamCounts = program::PerStream<std::int64_t>;
    struct Cursor;       // where in the step's list the host is
    struct PendingStep;  // a step of which something may still be under way
    void wait_for_step(std::int64_t step);
    [[nodiscard]] StepTimes with_spans(PendingStep& pending) const;
    void run_step(PendingStep& pending, const std::function<void(std::int64_t)>& before_optimizer);
    void issue(Cursor& at, const program::Body& body, const program::Instruction& instruction, OperationTimes& times);
    void run_operators(const Cursor& at, const program::Body& body, const program::Instruction& instruction,
                       OperationTimes& times);
    void post(const Cursor& at, const program::Body& body, const program::Instruction& instruction,
              OperationTimes& times);
    /// What the Program says must have completed before the instruction starts.
    [[nodiscard]] Dependencies dependencies_of(const Cursor& at, const program::Call& call) const;
    /// Blocks the host until the action's computation could begin and what was computed before is there.
    void wait_for_computation(const Cursor& at);
    void fill_samples(std::int64_t step, std::int32_t micro_batch);
    void initialise_weights();
    [[nodiscard]] OperatorPointers pointers_of(const Cursor& at, const program::Body& body,
                                               const models::Operator& op) const;
    void initialise(const program::Parameter& parameter, const UpdateOperator& update);
    /// The groups that the class's communications run in; also finds the peers of its transfers.
    [[nodiscard]] AxisMembers find_partners();
    /// A fault on purpose.
    void poison_first_parameter();
    /// Where the backend has computed already: throws JobError when the loss or the norm of gradients is no number.
    void check_results(const Cursor& at) const;

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
    program::PerStream<int> peers_{};   // of pipeline streams
    std::vector<BoundOperator> bound_;  // of the instruction at hand
    program::Trace trace_;              // of one step
    struct OnStream {
        program::Stream stream{};
        std::int64_t sequence = 0;
    };
    program::PerAxis<OnStream> latest_on_axis_{};
    FlightRecorder& recorder_;
    InstructionWatch watch_;
};

}  // namespace orrery::exec
