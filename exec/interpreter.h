// Executes a Program on this rank, with real kernels and real messages: the second interpreter beside the simulator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "exec/arena.h"
#include "exec/cpu/cpu_backend.h"
#include "exec/data.h"
#include "exec/executable.h"
#include "exec/shards.h"
#include "exec/transport/progress.h"
#include "exec/transport/transport.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::exec {

/// What one rank saw of one step. Times are nanoseconds of the machine's monotonic clock.
struct StepTimes {
    std::int64_t begin_ns = 0;
    std::int64_t end_ns = 0;
    double loss_sum = 0;               // of this rank's tokens; 0 where the head is not
    std::vector<program::Span> spans;  // in list order; times in picoseconds from begin_ns; see kStepsWithSpans
};

/// Only the last steps of a run keep their spans, so that memory does not grow with the number of steps.
inline constexpr std::int64_t kStepsWithSpans = 64;

struct RunTimes {
    std::vector<StepTimes> steps;
    std::array<std::int64_t, program::kStreamCount> bytes_sent{};  // all steps together
};

class Interpreter {
  public:
    /// Makes the groups, the arena and the weights. Collective over all ranks. Throws InputError as
    /// check_executable does, or when the world has another size.
    Interpreter(const program::Program& program, Transport& transport);

    /// Runs `steps` steps back to back. `before_optimizer(step)`, when given, is called in each step once all gradients
    /// are complete.
    RunTimes run(std::int64_t steps, const std::function<void(std::int64_t)>& before_optimizer = {});

    [[nodiscard]] const program::Program& program() const { return program_; }
    [[nodiscard]] const program::RankClass& rank_class() const { return class_; }
    [[nodiscard]] std::int32_t class_index() const { return class_index_; }
    [[nodiscard]] program::MeshCoordinates coordinates() const { return coordinates_; }
    [[nodiscard]] const Arena& arena() const { return *arena_; }
    [[nodiscard]] const Shards& shards() const { return shards_; }

  private:
    using StreamCounts = std::array<std::int64_t, program::kStreamCount>;
    struct Cursor;       // where in the step's list the host is
    struct PendingStep;  // a step whose transfers may still be under way
    void wait_for_step(std::int64_t step);
    void run_step(PendingStep& pending, const std::function<void(std::int64_t)>& before_optimizer);
    void issue(Cursor& at, const program::Body& body, const program::Instruction& instruction, OperationTimes& times);
    void run_compute(const Cursor& at, const program::Body& body, const program::Instruction& instruction);
    void post(const Cursor& at, const program::Body& body, const program::Instruction& instruction,
              OperationTimes& times);
    void wait_for_action(const program::Action& action, std::int64_t step);
    void wait_for_segment(const Cursor& at);
    [[nodiscard]] std::int64_t sequence_of(const program::Wait& wait, std::int64_t step) const;
    [[nodiscard]] static std::int64_t sequence_of(const program::SegmentWait& wait, const Cursor& at);
    void fill_samples(std::int64_t step, std::int32_t micro_batch);
    void initialise_weights();
    [[nodiscard]] OperatorPointers pointers_of(const Cursor& at, const program::Body& body,
                                               const models::Operator& op) const;
    /// Makes the groups that the class's communications run in, and finds the peers of its transfers.
    void find_partners();

    const program::Program& program_;
    Transport& transport_;
    std::int64_t rank_ = 0;
    program::MeshCoordinates coordinates_;
    std::int32_t class_index_ = 0;
    const program::RankClass& class_;
    std::unique_ptr<Arena> arena_;
    CpuBackend backend_;
    TokenSource data_;
    OperatorContext context_;
    std::vector<std::int64_t> samples_;
    Shards shards_;
    std::vector<UpdateRange> updates_;
    std::array<GroupHandle, program::kAxisCount> groups_{};  // by GroupAxis
    std::array<int, program::kStreamCount> peers_{};         // pipeline streams
    /// Operations posted on each stream by the end of each action, in one step; the step's total in the last entry.
    std::vector<StreamCounts> posted_by_;
    std::unique_ptr<ProgressEngine> progress_;  // last: its thread stops before what it uses goes
};

}  // namespace orrery::exec
