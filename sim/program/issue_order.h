// The instructions that one class of ranks issues in a step, in that order, and what each of them comes after.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "sim/program/issue_trace.h"
#include "sim/program/program.h"
#include "sim/program/run_record.h"

namespace orrery::program {

/// What an instruction comes after: another of its own rank, this step's or an earlier one's.
struct Predecessor {
    std::int64_t instruction = 0;  // in issue order
    std::int32_t steps_back = 0;
};

/// Of one rank class; the Program must outlive it.
class IssueOrder {
  public:
    IssueOrder(const Program& program, ClassIndex rank_class);

    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(trace_.calls.size()); }
    [[nodiscard]] const Call& at(std::int64_t index) const { return trace_.calls[static_cast<std::size_t>(index)]; }
    [[nodiscard]] std::int64_t index_of(const Span& span) const;
    [[nodiscard]] std::string key_at(std::int64_t index) const;
    /// In issue order.
    [[nodiscard]] const std::vector<std::int32_t>& on(Stream stream) const { return trace_.calls_on[stream]; }
    /// Everything that holds the instruction on its own rank but the host: the one before it on its stream and, of a
    /// communication, on its communicator; `after`; its segment's and its action's waits. Of each stream the last.
    [[nodiscard]] std::vector<Predecessor> predecessors(std::int64_t index) const;
    /// Whether the host's thread itself executes or waits in it: then nothing behind it is issued before it is done.
    [[nodiscard]] bool is_host_own(std::int64_t index) const;
    /// The last of those before it; steps_back 1 where it is the last one of the step before; -1: there is none.
    [[nodiscard]] Predecessor host_before(std::int64_t index) const;

    [[nodiscard]] const Instruction& instruction(std::int64_t index) const {
        return instruction_of(program_, at(index));
    }

  private:
    const Program& program_;
    const RankClass& ranks_;
    bool host_runs_compute_ = false;
    Trace trace_;
    IndexedVector<SegmentListId, IndexedVector<SegmentIndex, std::int32_t>>
        segment_starts_;  // by list: from the start of its action
    IndexedVector<ActionIndex, std::int64_t> action_starts_;
    std::vector<std::int64_t> host_own_;
    std::vector<std::int32_t> communicator_;                               // by entry: index in communicators_, -1
    std::vector<std::int32_t> on_communicator_;                            // by entry
    std::array<std::vector<std::int64_t>, 2 * kAxisCount> communicators_;  // by axis; receivers of pairs apart
};

/// The spans of a record in the issue order of its class. Throws InputError when one is missing or stands twice.
[[nodiscard]] std::vector<Span> spans_in_order(const RankRecord& record, const IssueOrder& order);

}  // namespace orrery::program
