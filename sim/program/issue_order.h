// The instructions that a rank class issues in one step, in issue order, and their dependencies on its own rank.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/issue_trace.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::program {

/// An instruction of the same rank that must complete first, in the same step or an earlier one.
struct Predecessor {
    std::int64_t instruction = 0;  // in issue order
    std::int32_t steps_back = 0;
};

/// The index of each instruction in the issue order of one rank class. The Program must outlive it.
class IssueIndex {
  public:
    IssueIndex(const Program& program, ClassIndex rank_class);

    [[nodiscard]] std::int64_t size() const { return size_; }
    /// Throws std::out_of_range for an action or a segment that the class does not have.
    [[nodiscard]] std::int64_t index_of(const Span& span) const;
    [[nodiscard]] std::string key_at(std::int64_t index) const;

  protected:
    const Program& program_;

  private:
    ClassIndex rank_class_;
    IndexedVector<ActionIndex, std::int64_t> action_starts_;
    /// The first instruction of each segment, counted from the start of its list.
    IndexedVector<SegmentListId, IndexedVector<SegmentIndex, std::int64_t>> segment_starts_;
    std::int64_t size_ = 0;
};

/// The issue order of one rank class, with the dependencies. The Program must outlive it.
class IssueOrder : public IssueIndex {
  public:
    IssueOrder(const Program& program, ClassIndex rank_class);

    [[nodiscard]] const Call& at(std::int64_t index) const { return trace_.calls[static_cast<std::size_t>(index)]; }
    /// The instructions on the stream, in issue order.
    [[nodiscard]] const std::vector<std::int32_t>& on(Stream stream) const { return trace_.calls_on[stream]; }
    /// The instructions of its own rank for which the instruction waits, apart from the host's issue: the previous one
    /// on its stream and, for a communication, on its communicator; and for each event (`after`, segment waits, action
    /// waits) the last instruction that the event counts.
    [[nodiscard]] std::vector<Predecessor> predecessors(std::int64_t index) const;
    /// Whether the host's own thread executes the instruction or waits in it. Later instructions are issued only after
    /// it has completed.
    [[nodiscard]] bool is_host_own(std::int64_t index) const;
    /// The last instruction of the host's own before this one, which may be in the previous step (steps_back 1);
    /// instruction -1: none.
    [[nodiscard]] Predecessor host_before(std::int64_t index) const;

    [[nodiscard]] const Instruction& instruction(std::int64_t index) const {
        return instruction_of(program_, at(index));
    }

  private:
    bool host_runs_compute_ = false;
    Trace trace_;
    std::vector<std::int64_t> host_own_;
    /// Communications by axis: receives, and all others. On an axis of pairs a rank sends to one neighbour and receives
    /// from another, which are two communicators.
    PerAxis<std::vector<std::int64_t>> communicators_, receivers_;
    std::vector<std::int32_t> on_communicator_;  // by instruction: its index in that list; -1: no communication
};

/// The spans of a record in the issue order of its class. Throws InputError if an instruction is missing or occurs
/// twice.
[[nodiscard]] std::vector<Span> spans_in_order(const RankRecord& record, const IssueIndex& order);

}  // namespace orrery::program
