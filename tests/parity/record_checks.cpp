#include "tests/parity/record_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

namespace orrery::parity {
namespace {

using program::ActionIndex;
using program::CommKind;
using program::InstructionIndex;
using program::PerStream;
using program::Program;
using program::SegmentIndex;
using program::Span;
using program::Stream;

constexpr std::int64_t kCommonMultiple = 24;  // of all group sizes here, to count fractions of a byte in integers

/// Calls visit(action index, segment index, body, instruction index) in list order.
template <typename Visit>
void for_each_instruction(const Program& program, const program::RankClass& rank_class, const Visit& visit) {
    for (const ActionIndex a : rank_class.actions.indices()) {
        const program::SegmentList& segments = rank_class.segment_lists[rank_class.actions[a].segments];
        for (const SegmentIndex s : segments.indices()) {
            const program::Body& body = program.bodies[segments[s].body];
            for (const InstructionIndex i : body.instructions.indices()) visit(a, s, body, i);
        }
    }
}

/// The data that a rank of a class sends on one stream in a step.
struct Expected {
    std::int64_t parts = 0;   // in units of 1/kCommonMultiple byte, the mean over each group
    std::int64_t leeway = 0;  // possible deviation by unequal blocks, in bytes
    std::int64_t operations = 0;
};

PerStream<Expected> expected_of(const Program& program, const program::RankClass& rank_class) {
    PerStream<Expected> result{};
    const auto add = [&](ActionIndex, SegmentIndex, const program::Body& body, InstructionIndex i) {
        const program::Instruction& instruction = body.instructions[i];
        if (!instruction.is_communication || instruction.communication.kind == CommKind::recv) return;
        const program::Communication& communication = instruction.communication;
        Expected& sum = result[instruction.stream];
        ++sum.operations;
        if (communication.kind == CommKind::send || communication.kind == CommKind::exchange) {
            sum.parts += communication.bytes() * kCommonMultiple;
            return;
        }
        const std::int64_t n = program.mesh->group_size(communication.axis);
        const std::int64_t rounds = communication.kind == CommKind::all_reduce ? 2 * (n - 1) : n - 1;
        ASSERT_EQ(kCommonMultiple % n, 0) << n;
        if (communication.kind == CommKind::scatter || communication.kind == CommKind::gather) {
            sum.parts += communication.bytes() / n * (n - 1) * (kCommonMultiple / n);
            return;
        }
        sum.parts += communication.bytes() * rounds * (kCommonMultiple / n);
        // Blocks differ by at most one element. In a ring a rank sends all blocks but two; in recursive halving the
        // blocks that it keeps vary in each step.
        if (communication.elements % n != 0) {
            sum.leeway += 2 * std::bit_width(static_cast<std::uint64_t>(n)) * size_of(communication.dtype);
        }
    };
    for_each_instruction(program, rank_class, add);
    return result;
}

/// Checks one rank's spans against the instructions of the Program.
class Timeline {
  public:
    Timeline(const Program& program, const program::RankRecord& record, std::int64_t resolution_ps)
        : program_(program),
          class_(program.classes[record.rank_class]),
          record_(record),
          resolution_ps_(resolution_ps) {}

    void check() {
        std::size_t next = 0;
        PerStream<const Span*> last{};
        for_each_instruction(program_, class_,
                             [&](ActionIndex a, SegmentIndex s, const program::Body& body, InstructionIndex i) {
                                 if (next >= record_.spans.size()) {
                                     ++next;
                                     return;
                                 }
                                 if (i == 0) body_begin_ = next;
                                 if (i == 0 && s == 0) begin_action();
                                 if (i == 0) begin_segment();
                                 const Span& span = record_.spans[next++];
                                 const program::Instruction& instruction = body.instructions[i];
                                 ASSERT_TRUE(span.action == a && span.segment == s && span.instruction == i)
                                     << "expected action " << a.value() << ", segment " << s.value() << ", instruction "
                                     << instruction.name << ", found " << key_of(program_, record_.rank_class, span);
                                 check_times(instruction, span, last[instruction.stream]);
                                 check_action_waits(instruction.stream, span);
                                 check_segment_waits(instruction.stream, span);
                                 ends_.back()[instruction.stream] = span.end_ps;
                                 segment_ends_.back()[instruction.stream] = span.end_ps;
                                 last[instruction.stream] = &span;
                             });
        EXPECT_EQ(next, record_.spans.size());
    }

  private:
    void begin_action() {
        ends_.push_back(ends_.empty() ? Ends{} : ends_.back());
        waits_pending_.fill(true);
        segment_ends_.clear();
    }
    void begin_segment() {
        segment_ends_.push_back(segment_ends_.empty() ? Ends{} : segment_ends_.back());
        segment_waits_pending_.fill(true);
    }

    void check_times(const program::Instruction& instruction, const Span& span, const Span* before) const {
        const std::string key = key_of(program_, record_.rank_class, span);
        EXPECT_LE(span.ready_ps, span.begin_ps + resolution_ps_) << key;
        EXPECT_LE(span.begin_ps, span.end_ps + resolution_ps_) << key;
        if (before != nullptr) {
            EXPECT_LE(before->end_ps, span.ready_ps + resolution_ps_)
                << key << " is ready before the end of " << key_of(program_, record_.rank_class, *before);
        }
        for (const InstructionIndex earlier : instruction.after) {
            const Span& needed = record_.spans[body_begin_ + earlier.position()];
            EXPECT_LE(needed.end_ps, span.ready_ps + resolution_ps_)
                << key << " does not wait for " << key_of(program_, record_.rank_class, needed);
        }
    }

    /// An action's waits apply to its first instruction on each stream.
    void check_action_waits(Stream stream, const Span& span) {
        if (!waits_pending_[stream]) return;
        waits_pending_[stream] = false;
        const program::Action& action = class_.actions[span.action];
        for (std::int32_t w = 0; w < action.wait_count; ++w) {
            const program::Wait& wait = class_.waits[static_cast<std::size_t>(action.first_wait + w)];
            if (wait.steps_back > 0 || !wait.holds(stream)) continue;  // the record has the spans of one step only
            EXPECT_LE(ends_[wait.action][wait.stream], span.ready_ps + resolution_ps_)
                << key_of(program_, record_.rank_class, span) << " does not wait for action " << wait.action.value()
                << " on " << name_of(wait.stream);
        }
    }

    /// A segment's waits apply to its first instruction on each stream.
    void check_segment_waits(Stream stream, const Span& span) {
        if (!segment_waits_pending_[stream]) return;
        segment_waits_pending_[stream] = false;
        const program::Action& action = class_.actions[span.action];
        const program::Segment& segment = class_.segment_lists[action.segments][span.segment];
        for (std::int32_t w = 0; w < segment.wait_count; ++w) {
            const program::SegmentWait& wait = class_.segment_waits[static_cast<std::size_t>(segment.first_wait + w)];
            EXPECT_LE(segment_ends_[wait.segment][wait.stream], span.ready_ps + resolution_ps_)
                << key_of(program_, record_.rank_class, span) << " does not wait for segment " << wait.segment.value()
                << " on " << name_of(wait.stream);
        }
    }

    using Ends = PerStream<std::int64_t>;
    const Program& program_;
    const program::RankClass& class_;
    const program::RankRecord& record_;
    std::int64_t resolution_ps_;
    std::size_t body_begin_ = 0;                      // first span of the current body
    IndexedVector<ActionIndex, Ends> ends_;           // by action: the last end on each stream so far
    IndexedVector<SegmentIndex, Ends> segment_ends_;  // the same by segment of the current action
    PerStream<bool> waits_pending_{}, segment_waits_pending_{};
};

}  // namespace

/// Allowed relative deviation of routed bytes from an even distribution, with hundreds of tokens per step and an
/// untrained router.
constexpr double kChoiceSpread = 0.25;

void expect_bytes_of_program(const Program& program, const program::RunRecord& record) {
    ASSERT_EQ(static_cast<std::int64_t>(record.ranks.size()), program.world_size());
    PerStream<std::int64_t> sent{}, should{};
    const program::Parallelism& parallelism = program.plan->parallelism;
    const bool master = parallelism.data_parallel == program::DataParallel::dp;
    const bool spread = parallelism.vocabulary_parallel != program::VocabularyParallel::none;
    const bool uneven = program.plan->parallelism.ep > 1;  // the router decides where tokens go
    for (const program::RankRecord& rank : record.ranks) {
        const auto expected = expected_of(program, program.classes[rank.rank_class]);
        PerStream<std::int64_t> wire{}, operations{};
        for (const program::StreamVolume& volume : program::volumes(program, rank.rank_class)) {
            wire[volume.stream] += volume.wire_bytes;
            if (volume.kind != CommKind::recv) operations[volume.stream] += volume.operations;
        }
        for (const Stream s : program::kStreams) {
            const std::string where =
                "rank " + std::to_string(rank.rank) + ", stream " + std::string(program::name_of(s));
            sent[s] += rank.bytes_sent[s] * kCommonMultiple;
            should[s] += expected[s].parts;
            EXPECT_EQ(operations[s], expected[s].operations) << where;
            if (uneven && s == Stream::ep) {
                EXPECT_NEAR(static_cast<double>(rank.bytes_sent[s]), static_cast<double>(wire[s]),
                            kChoiceSpread * static_cast<double>(wire[s]))
                    << where;
                continue;
            }
            // The expected bytes are a mean over the group, but its root sends other amounts than the other members.
            if (master || (spread && s == Stream::tp)) continue;
            if (expected[s].leeway == 0) {
                EXPECT_EQ(rank.bytes_sent[s], wire[s]) << where;
                EXPECT_EQ(rank.bytes_sent[s] * kCommonMultiple, expected[s].parts) << where;
            } else {
                EXPECT_LE(std::abs(rank.bytes_sent[s] - wire[s]), expected[s].leeway) << where;
            }
        }
    }
    for (const Stream s : program::kStreams) {
        if (uneven && s == Stream::ep) continue;
        EXPECT_EQ(sent[s], should[s]) << "all ranks, stream " << program::name_of(s);
    }
}

void expect_order_of_program(const Program& program, const program::RunRecord& record, std::int64_t resolution_ps) {
    ASSERT_EQ(static_cast<std::int64_t>(record.ranks.size()), program.world_size());
    for (const program::RankRecord& rank : record.ranks) {
        SCOPED_TRACE("rank " + std::to_string(rank.rank));
        Timeline(program, rank, resolution_ps).check();
        if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace orrery::parity
