// Steps of a few picoseconds whose parts are computed by hand.
#include "reports/breakdown.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "tests/unit/reports/tiny_program.h"

namespace orrery::reports {
namespace {

using program::CommKind;
using program::GroupAxis;
using program::Stream;
using tiny::compute;
using tiny::group;
using tiny::on;

using Expected = std::vector<std::pair<TimePart, std::int64_t>>;

Expected present(const PartTimes& times) {
    Expected result;
    for (const TimePart part : kTimeParts) {
        if (times[part] != 0) result.emplace_back(part, times[part]);
    }
    return result;
}

Breakdown mean_of(const tiny::Step& step) {
    const PartTable table(step.program, tiny::same_weight);
    return breakdown_of(step.program, step.record, table).mean;
}

TEST(Breakdown, SeparatesExposedCommunicationFromWaiting) {
    const Breakdown one =
        mean_of(tiny::step(20, {compute(0, 10),
                                {group(Stream::tp, GroupAxis::tp, CommKind::all_reduce, {0}), 10, 12, 16},
                                compute(16, 20, {1})}));
    EXPECT_EQ(present(one.parts), (Expected{{TimePart::elementwise, 14}, {TimePart::tp, 6}}));
    EXPECT_EQ(present(one.waiting), (Expected{{TimePart::tp, 2}}));
    EXPECT_EQ(present(one.busy), (Expected{{TimePart::tp, 4}}));
    EXPECT_EQ(present(one.hidden), Expected{});
    EXPECT_EQ(one.step_ps(), 20);
}

TEST(Breakdown, CommunicationOverlappedWithComputationIsHidden) {
    // The reduction runs in [10, 16] and overlaps with computation until 13; only [13, 16] is exposed.
    const Breakdown one =
        mean_of(tiny::step(20, {compute(0, 10),
                                {group(Stream::dp, GroupAxis::dp, CommKind::all_reduce, {0}), 10, 10, 16},
                                compute(10, 13),
                                compute(16, 20, {1})}));
    EXPECT_EQ(present(one.parts), (Expected{{TimePart::elementwise, 17}, {TimePart::dp, 3}}));
    EXPECT_EQ(present(one.hidden), (Expected{{TimePart::dp, 3}}));
    EXPECT_EQ(present(one.busy), (Expected{{TimePart::dp, 6}}));
}

TEST(Breakdown, AReceiveIsSplitIntoTransferAndBubble) {
    const Breakdown one = mean_of(tiny::step(
        12, {{group(Stream::pp_recv_forward, GroupAxis::down_forward, CommKind::recv), 0, 5, 7}, compute(7, 12, {0})}));
    EXPECT_EQ(present(one.parts), (Expected{{TimePart::elementwise, 5}, {TimePart::pp, 2}, {TimePart::bubble, 5}}));
    EXPECT_EQ(present(one.waiting), Expected{}) << "waiting for the neighbour is the bubble";
}

TEST(Breakdown, IdleTimeIsAttributedAlongAChain) {
    // Idle from 4 to 20: reduce-scatter, copy to the host, wait of the host, launch, all-gather.
    const Breakdown one =
        mean_of(tiny::step(20,
                           {compute(0, 4),
                            {group(Stream::dp, GroupAxis::edp, CommKind::reduce_scatter, {0}), 4, 5, 9},
                            {on(Stream::copy_out, "copy", {1}), 9, 9, 11},
                            {on(Stream::host, "wait", {2}), 11, 11, 12},
                            {group(Stream::dp_gather, GroupAxis::dp, CommKind::all_gather), 14, 15, 18},
                            compute(18, 20, {4})},
                           2e-6));
    EXPECT_EQ(present(one.parts), (Expected{{TimePart::elementwise, 6},
                                            {TimePart::edp, 5},
                                            {TimePart::dp_gather, 4},
                                            {TimePart::host, 3},
                                            {TimePart::copies, 2}}));
    EXPECT_EQ(present(one.waiting), (Expected{{TimePart::edp, 1}, {TimePart::dp_gather, 1}}));
}

TEST(Breakdown, StepsArePeriodic) {
    // The first computation waits for the gather that the previous step began; the period is 20.
    tiny::Step step = tiny::step(
        20, {compute(0, 10), {group(Stream::dp_gather, GroupAxis::dp, CommKind::all_gather, {0}), 12, 12, 20}});
    step.program.classes[0].waits = {{0, Stream::dp_gather, 1}};
    step.program.classes[0].actions[0].wait_count = 1;
    const Breakdown one = mean_of(step);
    // The record does not explain why the gather was not ready between 10 and 12.
    EXPECT_EQ(present(one.parts),
              (Expected{{TimePart::elementwise, 10}, {TimePart::dp_gather, 8}, {TimePart::idle, 2}}));
}

TEST(Breakdown, WaitsOfSegmentsAndActionsAreFollowed) {
    // Two segments of one body, compute then tp. The second segment waits for the tp of the first one; the second
    // action waits for the last tp of the first action.
    tiny::Step step =
        tiny::step(24, {compute(0, 3), {group(Stream::tp, GroupAxis::tp, CommKind::all_reduce, {0}), 3, 3, 6}});
    program::RankClass& ranks = step.program.classes[0];
    ranks.segment_waits = {{0, Stream::tp}};
    ranks.segment_lists = {{program::Segment{}, program::Segment{.first_wait = 0, .wait_count = 1}}};
    ranks.waits = {{0, Stream::tp, 0}, {1, Stream::tp, 1}};
    ranks.actions = {program::Action{.micro_batch = 0, .first_wait = 1, .wait_count = 1},
                     program::Action{.micro_batch = 1, .first_wait = 0, .wait_count = 1}};
    auto& spans = step.record.ranks[0].spans;
    for (std::int32_t call = 1; call < 4; ++call) {
        for (std::size_t i = 0; i < 2; ++i) {
            program::Span span = spans[i];
            span.action = program::ActionIndex::of(call / 2);
            span.segment = program::SegmentIndex::of(call % 2);
            span.ready_ps += call * 6;
            span.begin_ps += call * 6;
            span.end_ps += call * 6;
            spans.push_back(span);
        }
    }
    EXPECT_EQ(present(mean_of(step).parts), (Expected{{TimePart::elementwise, 12}, {TimePart::tp, 12}}));
}

TEST(Breakdown, WithoutHostInstructionsGapsAreLaunches) {
    const Breakdown one = mean_of(tiny::step(10, {compute(1, 3), compute(6, 9)}, 5e-6));
    EXPECT_EQ(present(one.parts), (Expected{{TimePart::elementwise, 5}, {TimePart::host, 5}}));
}

TEST(Breakdown, ACommunicatorRunsOneOperationAtATime) {
    // A gradient reduction on another stream uses the communicator until 9; the gather after it is ready only then.
    const Breakdown one =
        mean_of(tiny::step(14, {compute(0, 4),
                                {group(Stream::dp, GroupAxis::dp, CommKind::reduce_scatter, {0}), 4, 4, 9},
                                {group(Stream::dp_gather, GroupAxis::dp, CommKind::all_gather), 9, 9, 12},
                                compute(12, 14, {2})}));
    EXPECT_EQ(present(one.parts), (Expected{{TimePart::elementwise, 6}, {TimePart::dp, 5}, {TimePart::dp_gather, 3}}));
}

TEST(Breakdown, GapsBeforeMeasuredInstructionsAreHostTime) {
    tiny::Step step = tiny::step(20, {compute(0, 10),
                                      {group(Stream::tp, GroupAxis::tp, CommKind::all_reduce, {0}), 11, 12, 15},
                                      compute(17, 19, {1})});
    step.record.maker = program::Maker::executed;
    const Breakdown one = mean_of(step);
    // [10, 11] and [15, 17] are host time; [19, 20] lies between two steps.
    EXPECT_EQ(present(one.parts),
              (Expected{{TimePart::elementwise, 12}, {TimePart::tp, 4}, {TimePart::host, 3}, {TimePart::idle, 1}}));
}

TEST(Breakdown, AperiodicStepsAreCutToOneStep) {
    // 14 ps of work in a period of 10: the first 4 ps are cut off.
    const Breakdown one = mean_of(tiny::step(10, {compute(0, 6), compute(6, 14)}));
    EXPECT_EQ(present(one.parts), (Expected{{TimePart::elementwise, 10}}));
}

TEST(Breakdown, MeansKeepTheSum) {
    tiny::Step step = tiny::step(
        10,
        {compute(0, 5), {group(Stream::tp, GroupAxis::tp, CommKind::all_reduce, {0}), 5, 5, 10}, compute(10, 10, {1})});
    program::RankRecord other = step.record.ranks[0];
    other.rank = 2;
    other.multiplicity = 1;
    other.spans[0].end_ps = other.spans[1].ready_ps = other.spans[1].begin_ps = 3;
    step.record.ranks.push_back(other);
    const PartTable table(step.program, tiny::same_weight);
    const StepBreakdown whole = breakdown_of(step.program, step.record, table);
    // (2 * 5 + 3) / 3 = 4 1/3 and (2 * 5 + 7) / 3 = 5 2/3
    EXPECT_EQ(present(whole.mean.parts), (Expected{{TimePart::elementwise, 4}, {TimePart::tp, 6}}));
    ASSERT_EQ(whole.classes.size(), 1U);
    EXPECT_EQ(whole.classes[0].ranks, 3);
    EXPECT_EQ(whole.classes[0].mean.step_ps(), 10);
}

TEST(Breakdown, MissingInstructionsAreRefused) {
    tiny::Step step = tiny::step(10, {compute(0, 5), compute(5, 10)});
    step.record.ranks[0].spans.pop_back();
    EXPECT_THROW((void)mean_of(step), InputError);
    step.record.ranks[0].spans.push_back(step.record.ranks[0].spans[0]);
    EXPECT_THROW((void)mean_of(step), InputError);
    step.record.ranks.clear();
    EXPECT_THROW((void)mean_of(step), InputError);
}

TEST(PartTable, DividesAnInstructionByItsOperators) {
    tiny::Step step = tiny::step(10, {compute(0, 10)});
    program::Body& body = step.program.bodies[0];
    body.operators = {{.kind = models::OpKind::linear_forward},
                      {.kind = models::OpKind::attention_forward},
                      {.kind = models::OpKind::rms_norm_forward}};
    body.instructions[0].operator_count = 3;
    EXPECT_EQ(present(mean_of(step).parts),
              (Expected{{TimePart::attention, 4}, {TimePart::products, 3}, {TimePart::elementwise, 3}}))
        << "10/3, 20/3 rounded, 10";
    const PartTable table(step.program, [](const models::Operator& op) {
        return op.is_attention() ? 3.0 : op.is_matmul() ? 1.0 : 0.0;
    });
    PartTimes times{};
    table.add_compute(0, 0, 8, times);
    EXPECT_EQ(present(times), (Expected{{TimePart::attention, 6}, {TimePart::products, 2}}));
    EXPECT_EQ(table.of_instruction(0, 0), TimePart::attention);
    EXPECT_THROW((void)PartTable(step.program, [](const models::Operator&) { return -1.0; }), BugError);
}

TEST(PartTable, PartsDependOnOperatorLayerAndPhase) {
    program::Program program = sample::program();
    const auto body = [](program::Phase phase, models::LayerKind kind,
                         IndexedVector<program::OperatorIndex, models::Operator> operators) {
        program::Body one{.phase = phase, .layer_kind = kind, .operators = std::move(operators)};
        for (const char* name : {"norm.out", "norm.out.gradient", "hidden.out.again"}) {
            one.slots.push_back({.decl = {.name = name}});
        }
        return one;
    };
    using models::LayerKind;
    using models::OpKind;
    using program::Phase;
    program.bodies = {
        body(Phase::forward, LayerKind::block,
             {{.kind = OpKind::rms_norm_forward, .out = {0}},
              {.kind = OpKind::expert_linear_forward},
              {.kind = OpKind::router_forward},
              {.kind = OpKind::cast, .out = {0}},
              {.kind = OpKind::bias_add, .part = models::BlockPart::attention_core}}),
        body(Phase::backward, LayerKind::block,
             {{.kind = OpKind::rms_norm_forward, .out = {0}},
              {.kind = OpKind::cast, .out = {0}},
              {.kind = OpKind::cast, .out = {1}},
              {.kind = OpKind::rms_norm_backward, .out = {1}}}),
        body(Phase::forward, LayerKind::head, {{.kind = OpKind::linear_forward}, {.kind = OpKind::cross_entropy_max}}),
        body(Phase::optimizer, LayerKind::block, {{.kind = OpKind::adamw}, {.kind = OpKind::cast}}),
        body(Phase::reduce, LayerKind::block, {{.kind = OpKind::cast}})};
    const PartTable table(program, tiny::same_weight);
    const IndexedVector<program::BodyId, IndexedVector<program::OperatorIndex, TimePart>> expected = {
        {TimePart::elementwise, TimePart::expert_products, TimePart::expert_routing, TimePart::casts,
         TimePart::attention},
        {TimePart::recomputation, TimePart::recomputation, TimePart::casts, TimePart::elementwise},
        {TimePart::embedding_and_head, TimePart::embedding_and_head},
        {TimePart::optimizer, TimePart::optimizer},
        {TimePart::casts}};
    for (const program::BodyId b : expected.indices()) {
        for (const program::OperatorIndex o : expected[b].indices()) {
            EXPECT_EQ(name_of(table.of_operator(b, o)), name_of(expected[b][o]))
                << "body " << b.value() << ", operator " << o.value();
        }
    }
}

}  // namespace
}  // namespace orrery::reports
