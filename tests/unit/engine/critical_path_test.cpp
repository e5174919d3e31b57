#include "sim/engine/critical_path.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/error.h"
#include "sim/cost/table_cost.h"
#include "sim/engine/simulate.h"
#include "tests/unit/engine/hand_made.h"
#include "tests/unit/engine/random_program.h"
#include "tests/unit/engine/table_communication.h"

namespace orrery::sim {
namespace {

using hand_made::compute;
using hand_made::ListCost;
using hand_made::on_stream;
using hand_made::one_body;
using hand_made::reduce;
using program::ActionKind;
using program::RunRecord;
using program::Stream;
using topologies::Cluster;

std::int64_t stream_time(const CriticalPath& path, Stream stream) {
    return path.stream_ps[stream];
}

/// Checks that the path covers the step from start to end without a gap, and that its sums add up.
void expect_whole(const CriticalPath& path, const RunRecord& record) {
    std::int64_t end = 0;
    for (const program::RankRecord& rank : record.ranks) {
        for (const program::Span& span : rank.spans) end = std::max(end, span.end_ps);
    }
    ASSERT_FALSE(path.elements.empty());
    EXPECT_EQ(path.length_ps, end);
    std::int64_t here = 0;
    for (const PathElement& element : path.elements) {
        EXPECT_EQ(element.from_ps, here);
        EXPECT_GE(element.start_ps, element.from_ps);
        EXPECT_GE(element.to_ps, element.start_ps);
        here = element.to_ps;
    }
    EXPECT_EQ(here, end);
    EXPECT_EQ(std::accumulate(path.stream_ps.begin(), path.stream_ps.end(), std::int64_t{0}) +
                  std::accumulate(path.delay_ps.begin(), path.delay_ps.end(), std::int64_t{0}),
              end);
}

program::Program on_cluster(program::Program program, const topologies::ClusterSpec& spec) {
    program::Plan plan = *program.plan;
    plan.cluster = spec;
    program.plan = std::make_shared<const program::Plan>(plan);
    return program;
}

TEST(CriticalPath, OfOneMicroBatchCrossesEveryStageAndTransfer) {
    const std::int64_t p = 4;
    const topologies::ClusterSpec spec = hand_made::gpu_cluster(1, p, 0);
    const program::Program program = on_cluster(hand_made::make_program({.pp = p}), spec);
    const ActionTableCost cost({{ActionKind::forward, Picoseconds(100)}, {ActionKind::backward, Picoseconds(200)}});
    const TableCommunication communication(
        {{{program::GroupAxis::down_forward, program::CommKind::send}, Picoseconds(7)},
         {{program::GroupAxis::down_backward, program::CommKind::send}, Picoseconds(11)}});
    const RunRecord record = simulate(program, Cluster(spec), cost, communication, {.steps = 1, .record_spans = true});
    const CriticalPath path = critical_path(program, record);
    expect_whole(path, record);
    EXPECT_EQ(stream_time(path, Stream::compute), p * 300);
    std::int64_t transfers = 0;
    for (const Stream stream :
         {Stream::pp_send_forward, Stream::pp_recv_forward, Stream::pp_send_backward, Stream::pp_recv_backward}) {
        transfers += stream_time(path, stream);
    }
    EXPECT_EQ(transfers, (p - 1) * 18);
    // It ends with the first stage's optimizer and crosses from rank to rank where the sender came last.
    EXPECT_EQ(record.ranks[static_cast<std::size_t>(path.elements.front().record)].rank, 0);
    EXPECT_EQ(record.ranks[static_cast<std::size_t>(path.elements.back().record)].rank, 0);
    std::int64_t crossings = 0;
    for (const PathElement& element : path.elements) crossings += element.cause == PathCause::partner ? 1 : 0;
    EXPECT_EQ(crossings, 2 * (p - 1));
}

TEST(CriticalPath, TakesTheLongerBranch) {
    const topologies::ClusterSpec spec = hand_made::gpu_cluster(1, 2, 0);
    const program::Program program = on_cluster(one_body(2, {compute("a"), reduce("r", {0}), compute("b"),
                                                             on_stream(Stream::copy_out, "out"), compute("c", {1, 3})}),
                                                spec);
    const auto path_when = [&](std::int64_t reduction, std::int64_t beside, std::int64_t copy) {
        const TableCommunication communication(
            {{{program::GroupAxis::tp, program::CommKind::all_reduce}, Picoseconds(reduction)}});
        const RunRecord record =
            simulate(program, Cluster(spec), ListCost(std::vector<std::int64_t>{10, 0, beside, copy, 5}), communication,
                     {.steps = 1, .record_spans = true});
        const CriticalPath path = critical_path(program, record);
        expect_whole(path, record);
        std::vector<program::InstructionIndex> instructions;
        for (const PathElement& element : path.elements) instructions.push_back(element.span.instruction);
        return instructions;
    };
    EXPECT_EQ(path_when(30, 20, 1), (std::vector<program::InstructionIndex>{0, 1, 4}));
    EXPECT_EQ(path_when(30, 50, 1), (std::vector<program::InstructionIndex>{0, 2, 4}));
    EXPECT_EQ(path_when(30, 20, 90), (std::vector<program::InstructionIndex>{3, 4}));
}

TEST(CriticalPath, NamesTheHostIfItIsTheBottleneck) {
    topologies::ClusterSpec spec = hand_made::gpu_cluster(1, 1, 0);
    spec.device.launch_us.value = 1.0;
    const program::Program program =
        on_cluster(one_body(1, {compute("a"), on_stream(Stream::host, "wait", {0}), compute("b"), compute("c")}), spec);
    const RunRecord record = simulate(program, Cluster(spec), ListCost(std::vector<std::int64_t>{5'000'000, 0, 10, 20}),
                                      TableCommunication(), {.steps = 1, .record_spans = true});
    const CriticalPath path = critical_path(program, record);
    expect_whole(path, record);
    // a, the wait for it, two launches, c.
    ASSERT_EQ(path.elements.size(), 3U);
    EXPECT_EQ(path.elements[2].cause, PathCause::host);
    EXPECT_EQ(path.delay_ps[PathCause::host], 2'000'000);
    EXPECT_EQ(stream_time(path, Stream::compute), 5'000'020);
}

TEST(CriticalPath, HasNoGapsInRandomJobs) {
    for (std::uint64_t seed = 0; seed < 100 && !HasFailure(); ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        const hand_made::RandomJob job = hand_made::random_job(seed);
        const Cluster cluster(job.cluster);
        const hand_made::HashCost cost(seed, 1000);
        const hand_made::HashCommunication communication(job.cluster, seed, 3000);
        std::array<std::int64_t, 2> lengths{};
        for (const bool full : {false, true}) {
            const RunRecord record =
                simulate(job.program, cluster, cost, communication, {.full = full, .steps = 1, .record_spans = true});
            const CriticalPath path = critical_path(job.program, record);
            expect_whole(path, record);
            lengths[full ? 1 : 0] = path.length_ps;
            if (job.cluster.device.launch_us.value > 0) continue;
            for (const std::int64_t delay : path.delay_ps) EXPECT_EQ(delay, 0);  // one step has no delays
        }
        EXPECT_EQ(lengths[0], lengths[1]);
        const RunRecord steady =
            simulate(job.program, cluster, cost, communication, {.steps = 3, .record_spans = true});
        expect_whole(critical_path(job.program, steady), steady);
    }
}

TEST(CriticalPath, AMeasuredRecordMayHaveGaps) {
    const topologies::ClusterSpec spec = hand_made::gpu_cluster(1, 2, 0);
    const program::Program program = on_cluster(one_body(2, {compute("a"), reduce("r", {0}), compute("b", {1})}), spec);
    RunRecord record;
    record.maker = program::Maker::executed;
    // Rank 1 computes longer, so rank 0 waits for it; each instruction begins shortly after the end of its predecessor.
    record.ranks.resize(2);
    record.ranks[0].spans = {{0, 0, 0, 0, 0, 100}, {0, 0, 1, 101, 205, 300}, {0, 0, 2, 310, 310, 350}};
    record.ranks[1].rank = 1;
    record.ranks[1].spans = {{0, 0, 0, 5, 5, 200}, {0, 0, 1, 204, 204, 299}, {0, 0, 2, 303, 303, 340}};
    const CriticalPath path = critical_path(program, record);
    expect_whole(path, record);
    ASSERT_EQ(path.elements.size(), 4U);
    EXPECT_EQ(path.elements[0].record, 1);                  // rank 1's computation
    EXPECT_EQ(path.elements[1].record, 1);                  // rank 1's reduction becomes ready
    EXPECT_EQ(path.elements[2].cause, PathCause::partner);  // the reduction on rank 0, 204 to 300
    EXPECT_EQ(path.elements[3].record, 0);
    EXPECT_EQ(stream_time(path, Stream::tp), 96);
    EXPECT_EQ(stream_time(path, Stream::compute), 195 + 40);
}

TEST(CriticalPath, RefusesRecordsThatLackInstructionsOrHaveOneTwice) {
    const topologies::ClusterSpec spec = hand_made::gpu_cluster(1, 1, 0);
    const program::Program program = on_cluster(one_body(1, {compute("a"), compute("b")}), spec);
    RunRecord record = simulate(program, Cluster(spec), ListCost(std::vector<std::int64_t>{5, 5}), TableCommunication(),
                                {.steps = 1, .record_spans = true});
    EXPECT_EQ(critical_path(program, record).length_ps, 10);
    auto& spans = record.ranks[0].spans;
    spans.pop_back();
    EXPECT_THROW((void)critical_path(program, record), InputError);
    spans.push_back(spans.front());
    EXPECT_THROW((void)critical_path(program, record), InputError);
}

}  // namespace
}  // namespace orrery::sim
