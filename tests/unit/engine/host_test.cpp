// Host instructions, copies to and from host memory, and waits between segments.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "sim/engine/simulate.h"
#include "sim/engine/symmetry.h"
#include "tests/unit/engine/hand_made.h"
#include "tests/unit/engine/table_communication.h"

namespace orrery::sim {
namespace {

using hand_made::compute;
using hand_made::ListCost;
using hand_made::on_stream;
using hand_made::one_action;
using hand_made::one_body;
using hand_made::reduce;
using program::RunRecord;
using program::Stream;
using topologies::Cluster;

constexpr std::int64_t kMicrosecond = 1'000'000;

program::Instruction host(const std::string& name, std::vector<program::InstructionIndex> after = {}) {
    return on_stream(Stream::host, name, std::move(after));
}

topologies::ClusterSpec gpus(std::int64_t devices, double launch_us) {
    topologies::ClusterSpec spec = hand_made::gpu_cluster(1, devices, 0);
    spec.device.launch_us.value = launch_us;
    return spec;
}

/// (begin, end) by (segment, instruction) of rank 0, counted from its first begin.
std::map<std::pair<int, int>, std::pair<std::int64_t, std::int64_t>> times(const RunRecord& record) {
    std::map<std::pair<int, int>, std::pair<std::int64_t, std::int64_t>> result;
    for (const program::Span& span : record.ranks.at(0).spans) {
        result[{span.segment.value(), span.instruction.value()}] = {span.begin_ps, span.end_ps};
    }
    return result;
}

RunRecord run(const program::Program& program, const topologies::ClusterSpec& spec, const ListCost& cost,
              int steps = 1) {
    const TableCommunication communication(
        {{{program::GroupAxis::tp, program::CommKind::all_reduce}, Picoseconds(30)}});
    return simulate(program, Cluster(spec), cost, communication, {.steps = steps, .record_spans = true});
}

TEST(HostInstruction, NothingIsIssuedWhileTheHostWaits) {
    const program::Program program = one_body(1, {compute("a"), host("wait", {0}), compute("b"), compute("c")});
    const ListCost cost(std::vector<std::int64_t>{5 * kMicrosecond, 0, 10, 10});
    // a is issued at 1 us and ends at 6 us; then the host issues b at 7 us and c at 8 us.
    EXPECT_EQ(step_ps(run(program, gpus(1, 1.0), cost)), 8 * kMicrosecond + 10);
    // The next step's a is issued one launch after c, at 9 us: every step takes 8 us.
    EXPECT_EQ(step_ps(run(program, gpus(1, 1.0), cost, 3)), 8 * kMicrosecond);
    // Without launch overhead only the wait itself takes effect.
    EXPECT_EQ(step_ps(run(program, gpus(1, 0.0), cost)), 5 * kMicrosecond + 20);
    // Without the wait the host runs ahead: b and c are issued while a runs.
    const program::Program ahead = one_body(1, {compute("a"), compute("b"), compute("c")});
    EXPECT_EQ(step_ps(run(ahead, gpus(1, 1.0), ListCost(std::vector<std::int64_t>{5 * kMicrosecond, 10, 10}))),
              6 * kMicrosecond + 20);
}

TEST(HostInstruction, InstructionsIssuedBeforeItKeepRunning) {
    // b was issued at 2 us, before the host waits for a.
    const program::Program program = one_body(1, {compute("a"), compute("b"), host("wait", {0}), compute("c")});
    const RunRecord record = run(program, gpus(1, 1.0), ListCost(std::vector<std::int64_t>{3'500'000, 7, 0, 10}));
    const auto at = times(record);
    // Times count from a's begin, one launch after the start.
    EXPECT_EQ(at.at({0, 1}).first, 3'500'000);
    EXPECT_EQ(at.at({0, 2}).first, 3'500'000);  // reached at 2 us, a ends at 4.5 us
    EXPECT_EQ(at.at({0, 3}).first, 4'500'000);  // one launch later
}

TEST(HostInstruction, WorkOfTheHostDelaysTheNextLaunch) {
    // Two launches, then the host works for 2 us while the device still runs the 5 us of b, then one launch.
    const program::Program program = one_body(1, {compute("a"), compute("b"), host("update"), compute("c")});
    const ListCost cost(std::vector<std::int64_t>{10, 5 * kMicrosecond, 2 * kMicrosecond, 10});
    const auto at = times(run(program, gpus(1, 1.0), cost));
    EXPECT_EQ(at.at({0, 2}).first, kMicrosecond);      // the host works after two launches; a began after one
    EXPECT_EQ(at.at({0, 3}).first, 6 * kMicrosecond);  // issued at 3 + 1 us, but b runs from 2 to 7 us
    const ListCost slower(std::vector<std::int64_t>{10, 5 * kMicrosecond, 9 * kMicrosecond, 10});
    EXPECT_EQ(times(run(program, gpus(1, 1.0), slower)).at({0, 3}).first, 11 * kMicrosecond);
}

TEST(HostInstruction, ActsAcrossBodiesAndSteps) {
    // The wait is in another body than the instructions that it delays, and delays the next step, too.
    const program::Program program = one_action(1, {{compute("a")}, {host("wait")}, {compute("b")}});
    program::Program waiting = program;
    waiting.classes[0].segment_waits = {{0, Stream::compute}};
    waiting.classes[0].segment_lists[0][1].wait_count = 1;
    const ListCost cost(std::vector<std::vector<std::int64_t>>{{4 * kMicrosecond}, {0}, {10}});
    // a is issued 2 us after the wait's end (b, then a) and runs 4 us.
    EXPECT_EQ(step_ps(run(waiting, gpus(1, 1.0), cost, 3)), 6 * kMicrosecond);
    // Without a wait only launches take host time.
    EXPECT_EQ(step_ps(run(program, gpus(1, 1.0), cost, 3)), 4 * kMicrosecond + 10);
}

TEST(HostInstruction, LaunchesTakeWhatTheImplementationNeeds) {
    const program::Program program = one_body(1, {compute("a"), compute("b")});
    program::Plan plan = *program.plan;
    plan.implementation.host.launch_factor = 2.5;
    program::Program slower = program;
    slower.plan = std::make_shared<const program::Plan>(plan);
    const ListCost cost(std::vector<std::int64_t>{10, 10});
    EXPECT_EQ(step_ps(run(program, gpus(1, 1.0), cost, 3)), 2 * kMicrosecond);
    EXPECT_EQ(step_ps(run(slower, gpus(1, 1.0), cost, 3)), 5 * kMicrosecond);
}

TEST(HostInstruction, OnACpuItUsesACoreAndRunsInOrder) {
    topologies::ClusterSpec spec = hand_made::cpu_cluster(1, 2, 1);
    // Two ranks on one core: computation and host work of a rank run one after another, and the ranks share the core.
    const program::Program program = one_body(2, {compute("a"), host("update"), compute("b")});
    EXPECT_EQ(step_ps(run(program, spec, ListCost(std::vector<std::int64_t>{100, 50, 10}))), 2 * 160);
    spec.device.launch_us.value = 1.0;
    // The host launches a and b, not its own work.
    spec.device.cores_per_node = 2;
    EXPECT_EQ(step_ps(run(program, spec, ListCost(std::vector<std::int64_t>{100, 50, 10}))), 2 * kMicrosecond + 160);
    // A reduction after the host's work is issued when that ends.
    const program::Program behind = one_body(2, {host("update"), reduce("r")});
    EXPECT_EQ(step_ps(run(behind, spec, ListCost(std::vector<std::int64_t>{70, 0}))), kMicrosecond + 70 + 30);
}

TEST(Copies, OverlapWithComputationOnePerDirection) {
    const program::Program program =
        one_body(1, {compute("a"), on_stream(Stream::copy_out, "out", {0}), on_stream(Stream::copy_out, "out2", {0}),
                     on_stream(Stream::copy_in, "in"), compute("b"), compute("c", {2})});
    const RunRecord record = run(program, gpus(1, 0.0), ListCost(std::vector<std::int64_t>{10, 40, 40, 70, 30, 5}));
    const auto at = times(record);
    EXPECT_EQ(at.at({0, 3}), (std::pair<std::int64_t, std::int64_t>{0, 70}));  // at once
    EXPECT_EQ(at.at({0, 1}), (std::pair<std::int64_t, std::int64_t>{10, 50}));
    EXPECT_EQ(at.at({0, 2}), (std::pair<std::int64_t, std::int64_t>{50, 90}));  // after the first one
    EXPECT_EQ(at.at({0, 4}), (std::pair<std::int64_t, std::int64_t>{10, 40}));
    EXPECT_EQ(at.at({0, 5}).first, 90);
    const auto& streams = record.ranks[0].streams;
    EXPECT_EQ(streams[Stream::copy_out].busy_ps, 80);
    EXPECT_EQ(streams[Stream::copy_out].exposed_ps, 50);  // b hides 30 of it
    EXPECT_EQ(streams[Stream::copy_in].busy_ps, 70);
    EXPECT_EQ(streams[Stream::compute].busy_ps, 45);
}

TEST(SegmentWaits, DelayTheFirstInstructionOnEachStream) {
    // The second segment's reduction and computation wait for the first segment's copy; the third's only for FIFO.
    program::Program program = one_action(2, {{compute("a"), on_stream(Stream::copy_out, "out")},
                                              {compute("b"), reduce("r"), compute("c")},
                                              {compute("d"), on_stream(Stream::copy_in, "in")}});
    const ListCost cost(std::vector<std::vector<std::int64_t>>{{10, 100}, {20, 0, 5}, {7, 3}});
    auto at = times(run(program, gpus(2, 0.0), cost));
    EXPECT_EQ(at.at({1, 0}).first, 10);
    EXPECT_EQ(at.at({1, 1}).first, 0);
    program.classes[0].segment_waits = {{0, Stream::copy_out}};
    program.classes[0].segment_lists[0][1].wait_count = 1;
    at = times(run(program, gpus(2, 0.0), cost));
    EXPECT_EQ(at.at({1, 0}).first, 100);
    EXPECT_EQ(at.at({1, 1}).first, 100);
    EXPECT_EQ(at.at({2, 1}).first, 0);
    // A wait across a segment in between is only for the named segment.
    program.classes[0].segment_lists[0][1].wait_count = 0;
    program.classes[0].segment_lists[0][2].wait_count = 1;
    at = times(run(program, gpus(2, 0.0), cost));
    EXPECT_EQ(at.at({1, 0}).first, 10);
    EXPECT_EQ(at.at({2, 0}).first, 100);
    EXPECT_EQ(at.at({2, 1}).first, 100);
    // In later steps, too: copies run back to back, and each step ends 7 ps after its own copy.
    EXPECT_EQ(step_ps(run(program, gpus(2, 0.0), cost)), 107);
    EXPECT_EQ(step_ps(run(program, gpus(2, 0.0), cost, 3)), 100);
}

TEST(ActionWaits, DelayTheActionsFirstInstructionOnAStreamInAnySegment) {
    program::Program program = one_action(2, {{on_stream(Stream::copy_out, "out")}, {compute("a")}, {reduce("r")}});
    program::RankClass& only = program.classes[0];
    only.segment_lists.push_back({only.segment_lists[0][1], only.segment_lists[0][2]});
    only.segment_lists[0].resize(1);
    only.actions.resize(2);
    only.actions[1].segments = 1;
    only.waits = {{0, Stream::copy_out, 0}};
    only.actions[1].wait_count = 1;
    const RunRecord record =
        run(program, gpus(2, 0.0), ListCost(std::vector<std::vector<std::int64_t>>{{50}, {10}, {0}}));
    std::map<program::SegmentIndex, std::int64_t> begins;  // of the second action, by segment
    for (const program::Span& span : record.ranks[0].spans) {
        if (span.action == 1) begins[span.segment] = span.begin_ps;
    }
    EXPECT_EQ(begins, (std::map<program::SegmentIndex, std::int64_t>{{program::SegmentIndex{0}, 50},
                                                                     {program::SegmentIndex{1}, 50}}));
}

TEST(Placement, DeterminesTheDeviceOfEachRank) {
    // Two pairs on two nodes: by default each pair is inside a node; placed crosswise each spans both nodes.
    const auto nodes_of_pair = [](std::vector<std::int64_t> placement) {
        program::Plan plan;
        plan.parallelism.tp = 2;
        plan.parallelism.dp = 2;
        plan.parallelism.placement = std::move(placement);
        program::Program program = one_body(2, {reduce("r")});
        program.plan = std::make_shared<const program::Plan>(plan);
        program.mesh = std::make_shared<const program::Mesh>(plan);
        return hand_made::placed(program, hand_made::gpu_cluster(2, 2, 2)).placements().at(0).devices;
    };
    EXPECT_EQ(nodes_of_pair({}), (std::vector<std::int64_t>{0, 1}));
    EXPECT_EQ(nodes_of_pair({2, 0, 3, 1}), (std::vector<std::int64_t>{0, 2}));
    EXPECT_THROW((void)nodes_of_pair({0, 1, 2}), BugError);
    EXPECT_THROW((void)nodes_of_pair({0, 1, 2, 4}), BugError);
    EXPECT_THROW((void)nodes_of_pair({0, 1, 2, 2}), BugError);
}

}  // namespace
}  // namespace orrery::sim
