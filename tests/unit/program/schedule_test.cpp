// Placement, exact orders, legality, and properties of the orders of every schedule.
#include "sim/program/schedule.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <tuple>

#include "core/error.h"
#include "tests/unit/program/schedule_shapes.h"

namespace orrery::program {
namespace {

using PassKind = ComputeTask::Kind;

/// "F2" is the forward of micro-batch 2, or with chunks "F1.2" that of chunk 1; "+" joins overlapped tasks.
std::string text(const ScheduleShape& shape, std::int64_t rank) {
    static const std::map<PassKind, std::string> letters = {{PassKind::forward, "F"},
                                                            {PassKind::backward, "B"},
                                                            {PassKind::backward_input, "I"},
                                                            {PassKind::backward_weight, "W"}};
    std::string result;
    const auto orders = compute_orders(shape);
    for (const ComputeTask& task : orders[static_cast<std::size_t>(rank)]) {
        if (!result.empty()) result += task.overlaps_previous ? "+" : " ";
        result += letters.at(task.kind);
        if (shape.chunks > 1) result += std::to_string(task.chunk.value()) + ".";
        result += std::to_string(task.micro_batch);
    }
    return result;
}

TEST(ScheduleOrder, NaiveKeepsOneMicroBatchInThePipeline) {
    const ScheduleShape shape = shape_of(Schedule::naive, 3, 2);
    for (std::int64_t rank = 0; rank < 3; ++rank) EXPECT_EQ(text(shape, rank), "F0 B0 F1 B1");
}

TEST(ScheduleOrder, GpipeRunsAllForwardsFirst) {
    EXPECT_EQ(text(shape_of(Schedule::gpipe, 2, 3), 1), "F0 F1 F2 B0 B1 B2");
}

TEST(ScheduleOrder, OneForwardOneBackward) {
    const ScheduleShape shape = shape_of(Schedule::one_f_one_b, 3, 4);
    EXPECT_EQ(text(shape, 0), "F0 F1 F2 B0 F3 B1 B2 B3");
    EXPECT_EQ(text(shape, 1), "F0 F1 B0 F2 B1 F3 B2 B3");
    EXPECT_EQ(text(shape, 2), "F0 B0 F1 B1 F2 B2 F3 B3");
    EXPECT_EQ(text(shape_of(Schedule::one_f_one_b, 5, 2), 0), "F0 F1 B0 B1");  // fewer micro-batches than ranks
}

TEST(ScheduleOrder, InterleavedFollowsTheGroupTable) {
    const ScheduleShape shape = shape_of(Schedule::interleaved, 2, 4);
    EXPECT_EQ(text(shape, 0), "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3");
    EXPECT_EQ(text(shape, 1), "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3");
}

TEST(ScheduleOrder, InterleavedGroupsAndAShorterLastGroup) {
    ScheduleShape shape = shape_of(Schedule::interleaved, 2, 5);
    shape.group = 3;
    EXPECT_EQ(text(shape, 1),
              "F0.0 F0.1 F0.2 F1.0 B1.0 F1.1 B1.1 F1.2 B1.2 F0.3 B0.0 F0.4 B0.1 F1.3 B0.2 F1.4 B1.3 B1.4 B0.3 B0.4");
}

TEST(ScheduleOrder, ZeroBubbleH1AndH2) {
    const ScheduleShape h1 = shape_of(Schedule::zb_h1, 3, 4);
    EXPECT_EQ(text(h1, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
    EXPECT_EQ(text(h1, 2), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
    const ScheduleShape h2 = shape_of(Schedule::zb_h2, 2, 4);
    EXPECT_EQ(text(h2, 0), "F0 F1 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3");
    EXPECT_EQ(text(h2, 1), "F0 I0 F1 I1 F2 I2 W0 F3 I3 W1 W2 W3");
}

TEST(ScheduleOrder, ZeroBubbleV) {
    const ScheduleShape shape = shape_of(Schedule::zb_v, 2, 4);
    EXPECT_EQ(text(shape, 0),
              "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 I1.1 W1.1 F0.3 I0.0 W0.0 F1.2 I1.2 W1.2 I0.1 W0.1 F1.3 I1.3 W1.3 "
              "I0.2 W0.2 I0.3 W0.3");
    EXPECT_EQ(text(shape, 1),
              "F0.0 F1.0 F0.1 F1.1 I1.0 W1.0 F0.2 I0.0 W0.0 F1.2 I1.1 W1.1 F0.3 I0.1 W0.1 F1.3 I1.2 W1.2 I0.2 I1.3 "
              "I0.3 W0.2 W1.3 W0.3");
}

TEST(ScheduleOrder, DualPipe) {
    const ScheduleShape shape = shape_of(Schedule::dualpipe, 2, 4);
    EXPECT_EQ(text(shape, 0), "F0.0 F1.2 F0.1 B1.2 F1.3+B0.0 B1.3 I0.1 W0.1");
    EXPECT_EQ(text(shape, 1), "F1.2 F0.0 F1.3 B0.0 F0.1+B1.2 B0.1 I1.3 W1.3");
}

TEST(ScheduleOrder, DualPipeV) {
    const ScheduleShape shape = shape_of(Schedule::dualpipe_v, 2, 4);
    EXPECT_EQ(text(shape, 0),
              "F0.0 F0.1 F0.2 F1.0 I1.0 W1.0 F1.1 F0.3+B1.1 F1.2+B0.0 B1.2 F1.3+B0.1 B1.3 I0.2 W0.2 I0.3 W0.3");
    EXPECT_EQ(text(shape, 1),
              "F0.0 F1.0 F0.1 F1.1 F0.2 B1.0 F1.2+B0.0 F0.3+B1.1 F1.3+B0.1 B1.2 B0.2 I1.3 I0.3 W1.3 W0.3");
}

TEST(SchedulePlace, LoopedVShapedAndBidirectional) {
    ScheduleShape looped = shape_of(Schedule::interleaved, 4, 8);
    looped.chunks = 3;
    EXPECT_EQ(virtual_stages(looped), 12);
    EXPECT_EQ(chunk_place(looped, 1, 2), (ChunkPlace{.virtual_stage = 9}));
    const ScheduleShape v = shape_of(Schedule::zb_v, 4, 8);
    EXPECT_EQ(virtual_stages(v), 8);
    EXPECT_EQ(chunk_place(v, 1, 0), (ChunkPlace{.virtual_stage = 1}));
    EXPECT_EQ(chunk_place(v, 1, 1), (ChunkPlace{.virtual_stage = 6, .up = true}));
    const ScheduleShape dual = shape_of(Schedule::dualpipe, 4, 8);
    EXPECT_EQ(virtual_stages(dual), 4);
    EXPECT_EQ(chunk_place(dual, 3, 0), (ChunkPlace{.virtual_stage = 3}));
    EXPECT_EQ(chunk_place(dual, 3, 1), (ChunkPlace{.virtual_stage = 0, .up = true, .direction = 1}));
}

TEST(SchedulePlace, HoldersAreTheInverse) {
    ShapeSource source(7);
    for (const Schedule schedule : kSchedules) {
        const ScheduleShape shape = source.shape(schedule);
        std::int64_t found = 0;
        for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
            for (ChunkIndex chunk = 0; chunk.value() < shape.chunks; ++chunk) {
                const ChunkPlace place = chunk_place(shape, rank, chunk);
                EXPECT_EQ(stage_holder(shape, place.virtual_stage, place.direction), (StageHolder{rank, chunk}));
                ++found;
            }
        }
        EXPECT_EQ(found, virtual_stages(shape) * (schedule == Schedule::dualpipe ? 2 : 1)) << name_of(schedule);
    }
}

TEST(SchedulePlace, PlacesOutOfRangeAreBugs) {
    const ScheduleShape shape = shape_of(Schedule::zb_v, 4, 8);
    EXPECT_THROW((void)chunk_place(shape, 4, 0), BugError);
    EXPECT_THROW((void)chunk_place(shape, 0, 2), BugError);
    EXPECT_THROW((void)stage_holder(shape, 8, 0), BugError);
    EXPECT_THROW((void)stage_holder(shape, 0, 1), BugError);
}

struct IllegalShape {
    ScheduleShape shape;
    std::string problem;
};

TEST(ScheduleProblem, NamesTheBrokenRule) {
    const auto with = [](ScheduleShape shape, auto change) {
        change(shape);
        return shape;
    };
    const std::vector<IllegalShape> cases = {
        {shape_of(Schedule::gpipe, 0, 4), "gpipe needs pp of at least 1, got 0"},
        {shape_of(Schedule::one_f_one_b, 4, 0), "1f1b needs at least 1 micro-batch, got 0"},
        {with(shape_of(Schedule::zb_h1, 4, 8), [](ScheduleShape& s) { s.chunks = 2; }),
         "zb-h1 has 1 chunk a rank, got 2"},
        {with(shape_of(Schedule::zb_v, 4, 8), [](ScheduleShape& s) { s.chunks = 1; }),
         "zb-v needs 2 chunks a rank, got 1"},
        {with(shape_of(Schedule::interleaved, 4, 8), [](ScheduleShape& s) { s.chunks = 1; }),
         "interleaved-1f1b needs at least 2 chunks a rank, got 1"},
        {shape_of(Schedule::interleaved, 1, 8), "interleaved-1f1b needs pp > 1"},
        {shape_of(Schedule::interleaved, 4, 3), "interleaved-1f1b needs at least pp = 4 micro-batches, got 3"},
        {shape_of(Schedule::interleaved, 4, 9),
         "interleaved-1f1b needs a last group of at least pp = 4 micro-batches, got 1 (9 micro-batches in groups of "
         "4)"},
        {with(shape_of(Schedule::interleaved, 4, 8), [](ScheduleShape& s) { s.group = 3; }),
         "interleaved-1f1b needs a group of at least pp = 4 and at most 8 micro-batches, got 3"},
        {with(shape_of(Schedule::interleaved, 4, 8), [](ScheduleShape& s) { s.group = 9; }),
         "interleaved-1f1b needs a group of at least pp = 4 and at most 8 micro-batches, got 9"},
        {with(shape_of(Schedule::gpipe, 4, 8), [](ScheduleShape& s) { s.group = 4; }),
         "gpipe has no groups of micro-batches, got a group of 4"},
        {shape_of(Schedule::dualpipe, 3, 8), "dualpipe needs an even pp, got 3"},
        {shape_of(Schedule::dualpipe, 4, 9), "dualpipe needs an even number of micro-batches, got 9"},
        {shape_of(Schedule::dualpipe, 4, 6), "dualpipe needs at least 2*pp = 8 micro-batches, got 6"},
        {shape_of(Schedule::dualpipe_v, 2, 3), "dualpipe-v needs at least 2*pp = 4 micro-batches, got 3"},
        {shape_of(Schedule::gpipe, 4, 1'000'000'000),
         "gpipe needs chunks x micro-batches and chunks x pp of at most 715827882"},
        {with(shape_of(Schedule::zb_1p, 4, 8), [](ScheduleShape& s) { s.times.resize(3); }),
         "zb-1p needs the times of every rank or of none, got 3 of 4"},
        {with(shape_of(Schedule::zb_1p, 4, 8), [](ScheduleShape& s) { s.forward_time = 0; }),
         "zb-1p needs finite times, of F and I above 0; those of rank 0 are not"},
        {with(shape_of(Schedule::zb_2p, 2, 8),
              [](ScheduleShape& s) {
                  s.times = {{}, {.weight = std::numeric_limits<double>::infinity()}};
              }),
         "zb-2p needs finite times, of F and I above 0; those of rank 1 are not"},
        {with(shape_of(Schedule::zb_2p, 4, 8), [](ScheduleShape& s) { s.transfer_time = -1; }),
         "zb-2p needs a finite transfer time of at least 0"},
        {with(shape_of(Schedule::zb_2p, 4, 8), [](ScheduleShape& s) { s.activation_after_input = 1.5; }),
         "zb-2p needs the share of activations kept after I to be within 0..1, got 1.500000"},
    };
    for (const IllegalShape& illegal : cases) {
        EXPECT_EQ(schedule_problem(illegal.shape), illegal.problem);
        EXPECT_THROW((void)compute_orders(illegal.shape), BugError) << illegal.problem;
    }
}

TEST(ScheduleProblem, LimitsThemselvesAreLegal) {
    for (const Schedule schedule : {Schedule::naive, Schedule::gpipe, Schedule::one_f_one_b, Schedule::zb_h1,
                                    Schedule::zb_h2, Schedule::zb_1p, Schedule::zb_2p, Schedule::zb_v}) {
        EXPECT_EQ(schedule_problem(shape_of(schedule, 1, 1)), "") << name_of(schedule);
        EXPECT_EQ(schedule_problem(shape_of(schedule, 8, 3)), "") << name_of(schedule);
    }
    EXPECT_EQ(schedule_problem(shape_of(Schedule::interleaved, 4, 4)), "");
    EXPECT_EQ(schedule_problem(shape_of(Schedule::dualpipe, 2, 4)), "");
    EXPECT_EQ(schedule_problem(shape_of(Schedule::dualpipe_v, 1, 2)), "");
    ScheduleShape last_group_of_pp = shape_of(Schedule::interleaved, 4, 9);
    last_group_of_pp.group = 5;
    EXPECT_EQ(schedule_problem(last_group_of_pp), "");
}

/// Positions of a (chunk, micro-batch) in a rank's order, by kind; -1: none.
struct Positions {
    int forward = -1, backward = -1, input = -1, weight = -1;
};

void expect_each_once(const ScheduleShape& shape, std::int64_t rank, const std::vector<ComputeTask>& order) {
    std::map<std::pair<ChunkIndex, std::int32_t>, Positions> seen;
    for (std::size_t t = 0; t < order.size(); ++t) {
        Positions& at = seen[{order[t].chunk, order[t].micro_batch}];
        int& position = order[t].kind == PassKind::forward          ? at.forward
                        : order[t].kind == PassKind::backward       ? at.backward
                        : order[t].kind == PassKind::backward_input ? at.input
                                                                    : at.weight;
        EXPECT_EQ(position, -1) << "twice: task " << t;
        position = static_cast<int>(t);
        if (order[t].kind != PassKind::forward && order[t].kind != PassKind::backward) {
            EXPECT_TRUE(row_of(shape.schedule).splits_backward());
        }
        if (order[t].overlaps_previous) {
            EXPECT_EQ(order[t].kind, PassKind::backward);
            ASSERT_GT(t, 0U);
            EXPECT_EQ(order[t - 1].kind, PassKind::forward);
            EXPECT_NE(order[t - 1].chunk, order[t].chunk);
        }
    }
    std::size_t expected = 0;
    for (ChunkIndex chunk = 0; chunk.value() < shape.chunks; ++chunk) {
        for (std::int32_t i = 0; i < shape.micro_batches; ++i) {
            const bool second = i >= shape.micro_batches / 2;
            if (shape.schedule == Schedule::dualpipe && second != (chunk == 1)) continue;
            ++expected;
            const Positions& at = seen[{chunk, i}];
            const std::string where = name_of(shape.schedule) + ", rank " + std::to_string(rank) + ", chunk " +
                                      std::to_string(chunk.value()) + ", micro-batch " + std::to_string(i);
            EXPECT_GE(at.forward, 0) << where;
            if (at.backward >= 0) {
                EXPECT_GT(at.backward, at.forward) << where;
                EXPECT_TRUE(at.input < 0 && at.weight < 0) << where;
            } else {
                EXPECT_GT(at.input, at.forward) << where;
                EXPECT_GT(at.weight, at.input) << where;
            }
        }
    }
    EXPECT_EQ(seen.size(), expected);
}

/// For each pair of ranks and pass, messages must be received in the order in which they were sent, so that neighbours
/// need only one FIFO channel for activations and one for gradients.
void expect_fifo(const ScheduleShape& shape, const std::vector<std::vector<ComputeTask>>& orders) {
    using Channel = std::tuple<std::int64_t, std::int64_t, bool>;         // from, to, forward
    using Parcel = std::tuple<std::int64_t, std::int32_t, std::int32_t>;  // receiving virtual stage, direction, mb
    std::map<Channel, std::vector<Parcel>> sent, taken;
    for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
        for (const ComputeTask& task : orders[static_cast<std::size_t>(rank)]) {
            if (task.kind == PassKind::backward_weight) continue;
            const bool forward = task.kind == PassKind::forward;
            const ChunkPlace place = chunk_place(shape, rank, task.chunk);
            const std::int64_t next = place.virtual_stage + (forward ? 1 : -1);
            const std::int64_t previous = place.virtual_stage - (forward ? 1 : -1);
            if (next >= 0 && next < virtual_stages(shape)) {
                const std::int64_t to = stage_holder(shape, next, place.direction).rank;
                if (to != rank) sent[{rank, to, forward}].push_back({next, place.direction, task.micro_batch});
            }
            if (previous >= 0 && previous < virtual_stages(shape)) {
                const std::int64_t from = stage_holder(shape, previous, place.direction).rank;
                if (from != rank) {
                    taken[{from, rank, forward}].push_back({place.virtual_stage, place.direction, task.micro_batch});
                }
            }
        }
    }
    EXPECT_EQ(sent, taken) << name_of(shape.schedule) << ", pp " << shape.ranks << ", " << shape.micro_batches;
}

TEST(ScheduleProperty, RandomShapesAreCompleteFifoAndDeadlockFree) {
    ShapeSource source(20240611);
    for (const Schedule schedule : kSchedules) {
        for (int round = 0; round < 40; ++round) {
            ScheduleShape shape = source.shape(schedule);
            source.random_times(shape);
            const auto orders = compute_orders(shape);
            ASSERT_EQ(static_cast<std::int64_t>(orders.size()), shape.ranks);
            for (std::int64_t rank = 0; rank < shape.ranks; ++rank) {
                expect_each_once(shape, rank, orders[static_cast<std::size_t>(rank)]);
            }
            expect_fifo(shape, orders);
            EXPECT_EQ(time_orders(shape, orders).stuck, "") << name_of(schedule);
            EXPECT_EQ(compute_orders(shape), orders) << name_of(schedule);
        }
    }
}

TEST(ScheduleTimingTest, NamesTheDeadlockedTask) {
    const ScheduleShape shape = shape_of(Schedule::one_f_one_b, 2, 2);
    auto orders = compute_orders(shape);
    EXPECT_EQ(time_orders(shape, orders).stuck, "");
    std::swap(orders[0][0], orders[0][1]);  // F1 F0 on rank 0, F0 B0 … on rank 1: still no cycle
    EXPECT_EQ(time_orders(shape, orders).stuck, "");
    std::swap(orders[0][0], orders[0][2]);  // rank 0 now begins with a backward
    EXPECT_EQ(time_orders(shape, orders).stuck, "rank 0, task 0: chunk 0, micro-batch 0");
}

}  // namespace
}  // namespace orrery::program
