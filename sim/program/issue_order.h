// The instructions that one class of ranks issues in a step, in that order, and what each of them comes after.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

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
    IssueOrder(const Program& program, std::int32_t rank_class);

    struct Entry {
        std::int32_t action = 0;
        std::int32_t segment = 0;
        std::int32_t instruction = 0;  // in the body
        BodyId body = 0;
        Stream stream{};
        std::int32_t on_stream = 0;  // how many of the step were issued to the stream before
    };
    [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(entries_.size()); }
    [[nodiscard]] const Entry& at(std::int64_t index) const { return entries_[static_cast<std::size_t>(index)]; }
    [[nodiscard]] std::int64_t index_of(const Span& span) const;
    [[nodiscard]] std::string key_at(std::int64_t index) const;
    /// In issue order.
    [[nodiscard]] const std::vector<std::int64_t>& on(Stream stream) const {
        return streams_[static_cast<std::size_t>(stream)];
    }
    /// Everything that holds the instruction on its own rank but the host: the one before it on its stream and, of a
    /// communication, on its communicator; `after`; its segment's and its action's waits. Of each stream the last.
    [[nodiscard]] std::vector<Predecessor> predecessors(std::int64_t index) const;
    /// Whether the host's thread itself executes or waits in it: then nothing behind it is issued before it is done.
    [[nodiscard]] bool is_host_own(std::int64_t index) const;
    /// The last of those before it; steps_back 1 where it is the last one of the step before; -1: there is none.
    [[nodiscard]] Predecessor host_before(std::int64_t index) const;

    [[nodiscard]] const Instruction& instruction(std::int64_t index) const {
        const Entry& entry = at(index);
        return program_.bodies[static_cast<std::size_t>(entry.body)]
            .instructions[static_cast<std::size_t>(entry.instruction)];
    }

  private:
    using ByStream = std::array<std::int32_t, kStreamCount>;
    struct Extent {  // by stream, in a body or a list: the first and last instruction; -1: none
        ByStream first, last;
    };
    [[nodiscard]] std::int64_t segment_start(std::int32_t action, std::int32_t segment) const;
    void add_waits(std::int64_t index, std::vector<Predecessor>& result) const;

    const Program& program_;
    std::int32_t rank_class_ = 0;
    const RankClass& ranks_;
    bool host_runs_compute_ = false;
    std::vector<Extent> bodies_, lists_;
    std::vector<std::vector<std::int32_t>> segment_starts_;  // by list: from the start of its action
    std::vector<std::int64_t> action_starts_;
    std::vector<Entry> entries_;
    std::array<std::vector<std::int64_t>, kStreamCount> streams_;
    std::vector<std::int64_t> host_own_;
    std::vector<std::int32_t> communicator_;                               // by entry: index in communicators_, -1
    std::vector<std::int32_t> on_communicator_;                            // by entry
    std::array<std::vector<std::int64_t>, 2 * kAxisCount> communicators_;  // by axis; receivers of pairs apart
};

/// The spans of a record in the issue order of its class. Throws InputError when one is missing or stands twice.
[[nodiscard]] std::vector<Span> spans_in_order(const RankRecord& record, const IssueOrder& order);

}  // namespace orrery::program
