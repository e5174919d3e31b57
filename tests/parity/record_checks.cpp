#include "tests/parity/record_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>

namespace orrery::parity {
namespace {

using program::CommKind;
using program::kStreamCount;
using program::Program;
using program::Span;
using program::Stream;

constexpr std::int64_t kCommonMultiple = 24;  // of all group sizes here, to count fractions of a byte in integers

std::size_t index_of(Stream stream) {
    return static_cast<std::size_t>(stream);
}

/// Calls visit(action index, segment index, body, instruction index) in list order.
template <typename Visit>
void for_each_instruction(const Program& program, const program::RankClass& rank_class, const Visit& visit) {
    for (std::size_t a = 0; a < rank_class.actions.size(); ++a) {
        const auto& segments = rank_class.segment_lists[static_cast<std::size_t>(rank_class.actions[a].segments)];
        for (std::size_t s = 0; s < segments.size(); ++s) {
            const program::Body& body = program.bodies[static_cast<std::size_t>(segments[s].body)];
            for (std::size_t i = 0; i < body.instructions.size(); ++i) visit(a, s, body, i);
        }
    }
}

/// The data that a rank of a class sends on one stream in a step.
struct Expected {
    std::int64_t parts = 0;   // in units of 1/kCommonMultiple byte, the mean over each group
    std::int64_t leeway = 0;  // possible deviation by unequal blocks, in bytes
    std::int64_t operations = 0;
};

std::array<Expected, kStreamCount> expected_of(const Program& program, const program::RankClass& rank_class) {
    std::array<Expected, kStreamCount> result{};
    for_each_instruction(program, rank_class, [&](std::size_t, std::size_t, const program::Body& body, std::size_t i) {
        const program::Instruction& instruction = body.instructions[i];
        if (!instruction.is_communication || instruction.communication.kind == CommKind::recv) return;
        const program::Communication& communication = instruction.communication;
        Expected& sum = result[index_of(instruction.stream)];
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
    });
    return result;
}

/// Checks one rank's spans against the instructions of the Program.
class Timeline {
  public:
    Timeline(const Program& program, const program::RankRecord& record)
        : program_(program), class_(program.classes[static_cast<std::size_t>(record.rank_class)]), record_(record) {}

    void check() {
        std::size_t next = 0;
        std::array<const Span*, kStreamCount> last{};
        for_each_instruction(
            program_, class_, [&](std::size_t a, std::size_t s, const program::Body& body, std::size_t i) {
                if (next >= record_.spans.size()) {
                    ++next;
                    return;
                }
                if (i == 0) body_begin_ = next;
                if (i == 0 && s == 0) begin_action();
                if (i == 0) begin_segment();
                const Span& span = record_.spans[next++];
                ASSERT_TRUE(span.action == static_cast<std::int32_t>(a) &&
                            span.segment == static_cast<std::int32_t>(s) &&
                            span.instruction == static_cast<std::int32_t>(i))
                    << "expected action " << a << ", segment " << s << ", instruction " << body.instructions[i].name
                    << ", found " << key_of(program_, record_.rank_class, span);
                check_times(body.instructions[i], span, last[index_of(body.instructions[i].stream)]);
                check_action_waits(body.instructions[i].stream, span);
                check_segment_waits(body.instructions[i].stream, span);
                ends_.back()[index_of(body.instructions[i].stream)] = span.end_ps;
                segment_ends_.back()[index_of(body.instructions[i].stream)] = span.end_ps;
                last[index_of(body.instructions[i].stream)] = &span;
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
        EXPECT_LE(span.ready_ps, span.begin_ps) << key;
        EXPECT_LE(span.begin_ps, span.end_ps) << key;
        if (before != nullptr) {
            EXPECT_LE(before->end_ps, span.ready_ps)
                << key << " is ready before the end of " << key_of(program_, record_.rank_class, *before);
        }
        for (const program::InstructionIndex earlier : instruction.after) {
            const Span& needed = record_.spans[body_begin_ + static_cast<std::size_t>(earlier)];
            EXPECT_LE(needed.end_ps, span.ready_ps)
                << key << " does not wait for " << key_of(program_, record_.rank_class, needed);
        }
    }

    /// An action's waits apply to its first instruction on each stream.
    void check_action_waits(Stream stream, const Span& span) {
        if (!waits_pending_[index_of(stream)]) return;
        waits_pending_[index_of(stream)] = false;
        const program::Action& action = class_.actions[static_cast<std::size_t>(span.action)];
        for (std::int32_t w = 0; w < action.wait_count; ++w) {
            const program::Wait& wait = class_.waits[static_cast<std::size_t>(action.first_wait + w)];
            if (wait.steps_back > 0 || !wait.holds(stream)) continue;  // the record has the spans of one step only
            EXPECT_LE(ends_[static_cast<std::size_t>(wait.action)][index_of(wait.stream)], span.ready_ps)
                << key_of(program_, record_.rank_class, span) << " does not wait for action " << wait.action << " on "
                << name_of(wait.stream);
        }
    }

    /// A segment's waits apply to its first instruction on each stream.
    void check_segment_waits(Stream stream, const Span& span) {
        if (!segment_waits_pending_[index_of(stream)]) return;
        segment_waits_pending_[index_of(stream)] = false;
        const program::Action& action = class_.actions[static_cast<std::size_t>(span.action)];
        const program::Segment& segment =
            class_.segment_lists[static_cast<std::size_t>(action.segments)][static_cast<std::size_t>(span.segment)];
        for (std::int32_t w = 0; w < segment.wait_count; ++w) {
            const program::SegmentWait& wait = class_.segment_waits[static_cast<std::size_t>(segment.first_wait + w)];
            EXPECT_LE(segment_ends_[static_cast<std::size_t>(wait.segment)][index_of(wait.stream)], span.ready_ps)
                << key_of(program_, record_.rank_class, span) << " does not wait for segment " << wait.segment << " on "
                << name_of(wait.stream);
        }
    }

    using Ends = std::array<std::int64_t, kStreamCount>;
    const Program& program_;
    const program::RankClass& class_;
    const program::RankRecord& record_;
    std::size_t body_begin_ = 0;      // first span of the current body
    std::vector<Ends> ends_;          // by action: the last end on each stream so far
    std::vector<Ends> segment_ends_;  // the same by segment of the current action
    std::array<bool, kStreamCount> waits_pending_{}, segment_waits_pending_{};
};

}  // namespace

/// Allowed relative deviation of routed bytes from an even distribution, with hundreds of tokens per step and an
/// untrained router.
constexpr double kChoiceSpread = 0.25;

void expect_bytes_of_program(const Program& program, const program::RunRecord& record) {
    ASSERT_EQ(static_cast<std::int64_t>(record.ranks.size()), program.world_size());
    std::array<std::int64_t, kStreamCount> sent{}, should{};
    const program::Parallelism& parallelism = program.plan->parallelism;
    const bool master = parallelism.data_parallel == program::DataParallel::dp;
    const bool spread = parallelism.vocabulary_parallel != program::VocabularyParallel::none;
    const bool uneven = program.plan->parallelism.ep > 1;  // the router decides where tokens go
    for (const program::RankRecord& rank : record.ranks) {
        const auto expected = expected_of(program, program.classes[static_cast<std::size_t>(rank.rank_class)]);
        std::array<std::int64_t, kStreamCount> wire{}, operations{};
        for (const program::StreamVolume& volume : program::volumes(program, rank.rank_class)) {
            wire[index_of(volume.stream)] += volume.wire_bytes;
            if (volume.kind != CommKind::recv) operations[index_of(volume.stream)] += volume.operations;
        }
        for (std::size_t s = 0; s < kStreamCount; ++s) {
            const std::string where = "rank " + std::to_string(rank.rank) + ", stream " +
                                      std::string(program::name_of(static_cast<Stream>(s)));
            sent[s] += rank.bytes_sent[s] * kCommonMultiple;
            should[s] += expected[s].parts;
            EXPECT_EQ(operations[s], expected[s].operations) << where;
            if (uneven && static_cast<Stream>(s) == Stream::ep) {
                EXPECT_NEAR(static_cast<double>(rank.bytes_sent[s]), static_cast<double>(wire[s]),
                            kChoiceSpread * static_cast<double>(wire[s]))
                    << where;
                continue;
            }
            // The expected bytes are a mean over the group, but its root sends other amounts than the other members.
            if (master || (spread && static_cast<Stream>(s) == Stream::tp)) continue;
            if (expected[s].leeway == 0) {
                EXPECT_EQ(rank.bytes_sent[s], wire[s]) << where;
                EXPECT_EQ(rank.bytes_sent[s] * kCommonMultiple, expected[s].parts) << where;
            } else {
                EXPECT_LE(std::abs(rank.bytes_sent[s] - wire[s]), expected[s].leeway) << where;
            }
        }
    }
    for (std::size_t s = 0; s < kStreamCount; ++s) {
        if (uneven && static_cast<Stream>(s) == Stream::ep) continue;
        EXPECT_EQ(sent[s], should[s]) << "all ranks, stream " << program::name_of(static_cast<Stream>(s));
    }
}

void expect_order_of_program(const Program& program, const program::RunRecord& record) {
    ASSERT_EQ(static_cast<std::int64_t>(record.ranks.size()), program.world_size());
    for (const program::RankRecord& rank : record.ranks) {
        SCOPED_TRACE("rank " + std::to_string(rank.rank));
        Timeline(program, rank).check();
        if (testing::Test::HasFatalFailure()) return;
    }
}

}  // namespace orrery::parity
