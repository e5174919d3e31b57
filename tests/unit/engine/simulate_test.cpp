#include "sim/engine/simulate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "sim/cost/table_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/symmetry.h"
#include "tests/unit/engine/hand_made.h"
#include "tests/unit/engine/table_communication.h"

namespace orrery::sim {
namespace {

using hand_made::compute;
using hand_made::ListCost;
using hand_made::one_body;
using hand_made::reduce;
using program::ActionKind;
using program::RunRecord;
using program::Stream;
using topologies::Cluster;

constexpr std::int64_t kMillisecond = 1'000'000'000;

const program::StreamTime& time_of(const RunRecord& record, std::size_t rank, Stream stream) {
    return record.ranks[rank].streams[stream];
}

/// Step time if a micro-batch takes 1 ms forward and 2 ms backward, and nothing else takes time.
std::int64_t pipeline_step(std::int64_t pp, std::int64_t micro_batches, program::Schedule schedule, int steps) {
    const program::Program program =
        hand_made::make_program({.pp = pp, .micro_batches = micro_batches, .layers = 2, .schedule = schedule});
    const ActionTableCost cost(
        {{ActionKind::forward, Picoseconds(kMillisecond)}, {ActionKind::backward, Picoseconds(2 * kMillisecond)}});
    const Cluster cluster(hand_made::gpu_cluster(1, pp, 0));
    return step_ps(simulate(program, cluster, cost, TableCommunication(), {.steps = steps}));
}

TEST(Pipeline, BubbleIsStagesMinusOneTimesForwardAndBackward) {
    for (const program::Schedule schedule : {program::Schedule::gpipe, program::Schedule::one_f_one_b}) {
        for (const int steps : {1, 3}) {
            EXPECT_EQ(pipeline_step(4, 8, schedule, steps) - 8 * 3 * kMillisecond, 9 * kMillisecond);
            EXPECT_EQ(pipeline_step(8, 16, schedule, steps) - 16 * 3 * kMillisecond, 21 * kMillisecond);
            EXPECT_EQ(pipeline_step(1, 4, schedule, steps), 12 * kMillisecond);
        }
    }
}

TEST(Pipeline, EveryTransferLengthensTheFill) {
    // One micro-batch: forward over p stages and back, with a transfer on each of the 2 (p - 1) hops.
    const std::int64_t p = 4;
    const program::Program program = hand_made::make_program({.pp = p});
    const ActionTableCost cost({{ActionKind::forward, Picoseconds(100)}, {ActionKind::backward, Picoseconds(200)}});
    const TableCommunication communication(
        {{{program::GroupAxis::down_forward, program::CommKind::send}, Picoseconds(7)},
         {{program::GroupAxis::down_backward, program::CommKind::send}, Picoseconds(11)}});
    const RunRecord record =
        simulate(program, Cluster(hand_made::gpu_cluster(1, p, 0)), cost, communication, {.steps = 1});
    EXPECT_EQ(step_ps(record), p * 300 + (p - 1) * 18);
    // From the start the last stage waits for its only input, 3 forwards and 3 transfers, all of it exposed.
    EXPECT_EQ(time_of(record, 3, Stream::pp_recv_forward).busy_ps, 3 * 107);
    EXPECT_EQ(time_of(record, 3, Stream::pp_recv_forward).exposed_ps, 3 * 107);
    EXPECT_EQ(time_of(record, 3, Stream::compute).busy_ps, 300);
    EXPECT_NEAR(record.idle_fraction, 1.0 - 4 * 300.0 / (4.0 * (p * 300 + (p - 1) * 18)), 1e-12);
}

const TableCommunication kReduceTakes30({{{program::GroupAxis::tp, program::CommKind::all_reduce}, Picoseconds(30)}});

TEST(Streams, CommunicationOverlapsWithIndependentComputation) {
    // 0: compute 10; 1: reduce 30 after it; 2: compute 20 concurrently; 3: compute 5 after the reduction.
    const program::Program program = one_body(2, {compute("a"), reduce("r", {0}), compute("b"), compute("c", {1})});
    const RunRecord record = simulate(program, Cluster(hand_made::gpu_cluster(1, 2, 0)), ListCost({10, 0, 20, 5}),
                                      kReduceTakes30, {.steps = 1, .record_spans = true});
    EXPECT_EQ(step_ps(record), 45);
    ASSERT_EQ(record.ranks.size(), 1U);
    EXPECT_EQ(record.ranks[0].multiplicity, 2);
    EXPECT_EQ(time_of(record, 0, Stream::tp).busy_ps, 30);
    EXPECT_EQ(time_of(record, 0, Stream::tp).exposed_ps, 10);
    EXPECT_EQ(time_of(record, 0, Stream::compute).busy_ps, 35);
    EXPECT_EQ(record.notes, std::vector<std::string>{"a note"});
    ASSERT_EQ(record.ranks[0].spans.size(), 4U);
    EXPECT_EQ(record.ranks[0].spans[3].begin_ps, 40);
    EXPECT_EQ(record.ranks[0].spans[3].end_ps, 45);
}

TEST(Streams, NotesOnTheNetworkAreInTheRecord) {
    // An all-to-all that was not measured, on a machine with measured times.
    program::Instruction shuffle = reduce("shuffle");
    shuffle.communication.kind = program::CommKind::all_to_all;
    const program::Program program = one_body(2, {shuffle});
    topologies::ClusterSpec spec = hand_made::cpu_cluster(1, 2, 2);
    spec.transport_samples = {{"send", 2, 1, 1e-6}, {"send", 2, 1'000'000'000, 1.0}};
    const Cluster cluster(spec);
    const RunRecord record =
        simulate(program, cluster, ListCost(std::vector<std::int64_t>{0}), NetworkCommunication(cluster));
    ASSERT_EQ(record.notes.size(), 2U);
    EXPECT_EQ(record.notes[0], "a note");
    EXPECT_NE(record.notes[1].find("composed of sends"), std::string::npos) << record.notes[1];
}

TEST(Streams, ACommunicatorRunsItsOperationsInIssueOrder) {
    // The second reduction over tp is on another stream and has no dependencies, but is issued after the first one.
    program::Instruction second = reduce("second");
    second.stream = Stream::dp;
    const program::Program program = one_body(2, {compute("a"), reduce("first", {0}), second});
    const RunRecord record = simulate(program, Cluster(hand_made::gpu_cluster(1, 2, 0)), ListCost({100, 0, 0}),
                                      kReduceTakes30, {.steps = 1, .record_spans = true});
    EXPECT_EQ(step_ps(record), 160);
    EXPECT_EQ(record.ranks[0].spans.back().ready_ps, 130);
}

TEST(Streams, AGroupOfOneTakesNoTime) {
    const program::Program program = one_body(1, {compute("a"), reduce("r", {0}), compute("b", {1})});
    const RunRecord record = simulate(program, Cluster(hand_made::gpu_cluster(1, 1, 0)), ListCost({10, 0, 20}),
                                      kReduceTakes30, {.steps = 1});
    EXPECT_EQ(step_ps(record), 30);
}

TEST(Host, OnAGpuTheHostRunsAheadUnlessLaunchesAreSlowerThanWork) {
    topologies::ClusterSpec spec = hand_made::gpu_cluster(1, 1, 0);
    spec.device.launch_us.value = 1.0;  // 10^6 ps
    const program::Program program = one_body(1, {compute("a"), compute("b"), compute("c")});
    // With a long first instruction the others are issued while it runs.
    RunRecord record =
        simulate(program, Cluster(spec), ListCost({9'000'000, 10, 10}), TableCommunication(), {.steps = 1});
    EXPECT_EQ(step_ps(record), 1'000'000 + 9'000'020);
    // With short ones the host is the bottleneck: one instruction per microsecond.
    record = simulate(program, Cluster(spec), ListCost({10, 10, 10}), TableCommunication(), {.steps = 3});
    EXPECT_EQ(step_ps(record), 3'000'000);
}

TEST(Host, OnACpuInstructionsAfterComputeAreIssuedAfterIt) {
    topologies::ClusterSpec spec = hand_made::cpu_cluster(1, 2, 16);
    // The reduction has no dependencies, but comes after the 100 ps of "a" in the list.
    const program::Program program = one_body(2, {compute("a"), reduce("r"), compute("b")});
    RunRecord record =
        simulate(program, Cluster(spec), ListCost({100, 0, 10}), kReduceTakes30, {.steps = 1, .record_spans = true});
    EXPECT_EQ(step_ps(record), 130);
    EXPECT_EQ(record.ranks[0].spans.back().begin_ps, 100);
    // With 1 us per launch "a" runs from 1e6 to 1e6 + 100; "r" is issued one launch later, "b" two launches later.
    spec.device.launch_us.value = 1.0;
    record =
        simulate(program, Cluster(spec), ListCost({100, 0, 10}), kReduceTakes30, {.steps = 1, .record_spans = true});
    EXPECT_EQ(step_ps(record), 3'000'110);
    EXPECT_EQ(record.ranks[0].spans[1].begin_ps, 1'000'100);  // the step begins when "a" is ready
    // Over several steps: between two executions of "a" the host issues "s", then "r".
    const program::Program around = one_body(2, {reduce("r"), compute("a"), reduce("s")});
    EXPECT_EQ(step_ps(simulate(around, Cluster(spec), ListCost({0, 100, 0}), kReduceTakes30, {.steps = 3})), 3'000'100);
    EXPECT_EQ(step_ps(simulate(around, Cluster(spec), ListCost({0, 100, 0}), kReduceTakes30, {.steps = 1})),
              3'000'100 + 30);
    // On a GPU the reduction overlaps "a".
    record = simulate(program, Cluster(hand_made::gpu_cluster(1, 2, 0)), ListCost({100, 0, 10}), kReduceTakes30,
                      {.steps = 1});
    EXPECT_EQ(step_ps(record), 110);
}

TEST(Sharing, FourRanksOnTwoCoresTakeTwiceAsLong) {
    const program::Program program = one_body(4, {compute("a"), reduce("r", {0})});
    for (const bool full : {false, true}) {
        const RunRecord record = simulate(program, Cluster(hand_made::cpu_cluster(1, 4, 2)), ListCost({1001, 0}),
                                          kReduceTakes30, {.full = full, .steps = 1});
        // 4 ranks on 2 cores compute at half speed. The cost of the reduction already includes its 4 members on this
        // node.
        EXPECT_EQ(step_ps(record), 2002 + 30);
        EXPECT_EQ(record.ranks.size(), full ? 4U : 1U);
    }
}

TEST(Sharing, RatesChangeAsWorkStartsAndEnds) {
    // Two ranks on two cores. "a" takes 100 ps, then "b" of 100 ps runs concurrently with a reduction of 30 ps: a
    // demand of 4 cores, so half speed for 60 ps; then the remaining 70 ps of "b" at full speed.
    const program::Program program = one_body(2, {compute("a"), reduce("r", {0}), compute("b")});
    const RunRecord record = simulate(program, Cluster(hand_made::cpu_cluster(1, 2, 2)), ListCost({100, 0, 100}),
                                      kReduceTakes30, {.steps = 1});
    EXPECT_EQ(step_ps(record), 100 + 60 + 70);
}

/// Sends and dp reductions that each use the whole NIC.
TEST(Sharing, TwoTransfersOnOneNicDivideIt) {
    class WholeNic final : public CommunicationCost {
      public:
        [[nodiscard]] std::vector<OperationCost> costs(program::GroupAxis, std::span<const Operation> operations,
                                                       std::span<const std::int64_t>) const override {
            return std::vector<OperationCost>(operations.size(), {Picoseconds(1'000'000), 0, 10'000});
        }
    };
    // 10 kB in 1 us use the whole NIC of 10 GB/s. Two stages of two replicas, with every device on its own node.
    const program::Program program = hand_made::make_program({.dp = 2, .pp = 2});
    const ActionTableCost cost({});
    const Cluster cluster(hand_made::gpu_cluster(4, 1, 1));
    const RunRecord record = simulate(program, cluster, cost, WholeNic(), {.steps = 1});
    // The forward transfer takes 1 us. Then the last stage's bucket (1 us) and the backward transfer (1 us) share its
    // NICs: both end at 3 us. The first stage's bucket takes 1 us more.
    EXPECT_EQ(step_ps(record), 4'000'000);
}

TEST(Sharing, DevicesWithOneNicDivideIt) {
    class DpTakesTheNic final : public CommunicationCost {
      public:
        [[nodiscard]] std::vector<OperationCost> costs(program::GroupAxis axis, std::span<const Operation> operations,
                                                       std::span<const std::int64_t>) const override {
            const bool dp = axis == program::GroupAxis::dp;
            return std::vector<OperationCost>(operations.size(),
                                              dp ? OperationCost{Picoseconds(1'000'000), 0, 10'000} : OperationCost{});
        }
    };
    // Two groups over two nodes, each of which uses a whole NIC of each node for 1 us.
    const program::Program program = hand_made::make_program({.tp = 2, .dp = 2});
    for (const std::int64_t nics : {1, 2}) {
        const RunRecord record = simulate(program, Cluster(hand_made::gpu_cluster(2, 2, nics)), ActionTableCost({}),
                                          DpTakesTheNic(), {.steps = 1});
        EXPECT_EQ(step_ps(record), 2'000'000 / nics);
        EXPECT_EQ(record.ranks.size(), 1U);
    }
}

TEST(Symmetry, RegularJobsHaveOneClassPerStage) {
    const program::Program program = hand_made::make_program({.tp = 8, .dp = 16, .pp = 4});
    const Quotient quotient = hand_made::quotient_of(program, hand_made::gpu_cluster(64, 8, 8));
    EXPECT_EQ(quotient.ranks, (std::vector<std::int64_t>{0, 128, 256, 384}));
    EXPECT_EQ(quotient.multiplicity, (std::vector<std::int64_t>(4, 128)));
    EXPECT_EQ(hand_made::quotient_of(program, hand_made::gpu_cluster(64, 8, 8), true).ranks.size(), 512U);
}

TEST(Symmetry, TheWorldIsOneGroupOfAnySize) {
    program::Instruction norm = reduce("norm");
    norm.communication.axis = program::GroupAxis::world;
    program::Program program = one_body(1, {norm});
    program::Plan plan;
    plan.parallelism.tp = 8;
    plan.parallelism.dp = 12'500;
    program.plan = std::make_shared<const program::Plan>(plan);
    program.mesh = std::make_shared<const program::Mesh>(plan);
    const Quotient quotient = hand_made::quotient_of(program, hand_made::gpu_cluster(12'500, 8, 8));
    EXPECT_EQ(quotient.ranks.size(), 1U);
    EXPECT_EQ(quotient.groups.size(), 1U);
    EXPECT_EQ(quotient.members.size(), 1U);
    EXPECT_EQ(hand_made::placed(program, hand_made::gpu_cluster(12'500, 8, 8)).placements().at(0).devices.size(),
              100'000U);
}

TEST(Symmetry, TorchDataParallelHasAMasterAndReplicas) {
    program::Plan plan;
    plan.parallelism.dp = 8;
    plan.parallelism.data_parallel = program::DataParallel::dp;
    program::Program program = one_body(1, {compute("a")});
    program.classes.push_back(program.classes[0]);
    program.plan = std::make_shared<const program::Plan>(plan);
    program.mesh = std::make_shared<const program::Mesh>(plan);
    const RunRecord record = simulate(program, Cluster(hand_made::gpu_cluster(1, 8, 0)),
                                      ListCost(std::vector<std::int64_t>{5}), TableCommunication(), {.steps = 1});
    ASSERT_EQ(record.ranks.size(), 2U);
    EXPECT_EQ(record.ranks[0].multiplicity, 1);
    EXPECT_EQ(record.ranks[1].multiplicity, 7);
    EXPECT_EQ(record.ranks[1].rank_class, program::ClassIndex{1});
}

TEST(Symmetry, PlacementSplitsAStage) {
    // Stages of 3 ranks, nodes of 2, scalable units of 2 nodes: the pair (0, 3) is inside a unit; (1, 4) and (2, 5) are
    // not, and are alike.
    const program::Program program = hand_made::make_program({.dp = 3, .pp = 2});
    const Quotient three_nodes = hand_made::quotient_of(program, hand_made::gpu_cluster(3, 2, 2));
    EXPECT_EQ(three_nodes.ranks, (std::vector<std::int64_t>{0, 1, 3, 4}));
    EXPECT_EQ(three_nodes.colour_of, (std::vector<SimulatedRank>{0, 1, 1, 2, 3, 3}));
    const Quotient one_node = hand_made::quotient_of(program, hand_made::gpu_cluster(1, 6, 0));
    EXPECT_EQ(one_node.ranks, (std::vector<std::int64_t>{0, 3}));
}

TEST(Record, MemoryIsTheDevicesMemory) {
    const program::Program program = hand_made::make_program({.dp = 2, .pp = 2});
    const RunRecord record =
        simulate(program, Cluster(hand_made::gpu_cluster(1, 4, 0)), ActionTableCost({}), TableCommunication(), {});
    ASSERT_EQ(record.ranks.size(), 2U);
    EXPECT_EQ(record.ranks[1].rank, 2);
    const program::DeviceMemory& held = record.ranks[1].device_memory;
    EXPECT_EQ(held.tensors, 1001);
    EXPECT_EQ(held.context, std::llround(program.plan->cluster.device.context_gib.value * kGibibyte));
    EXPECT_GT(held.communicators, 0);
    EXPECT_EQ(record.ranks[1].memory_peak_bytes, held.in_use());
    EXPECT_EQ(record.ranks[1].memory_live_peak_bytes, held.context + 1001);
    // One bucket of 3 * 1024 floats, all-reduced by a ring of two: a rank sends as many bytes as the message has.
    EXPECT_EQ(record.ranks[1].bytes_sent[Stream::dp], 3 * 1024 * 4);
    EXPECT_EQ(record.ranks[1].bytes_sent[Stream::pp_send_backward], 1024 * 4);
}

TEST(Deadlock, NamesRankActionAndInstruction) {
    program::Program program = hand_made::make_program({.pp = 2});
    // The last stage does not receive.
    program::RankClass& last = program.classes[1];
    last.segment_lists[last.actions[0].segments].clear();
    try {
        (void)simulate(program, Cluster(hand_made::gpu_cluster(1, 2, 0)), ActionTableCost({}), TableCommunication(),
                       {});
        FAIL() << "no deadlock found";
    } catch (const BugError& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("rank 0, stream pp_send_forward"), std::string::npos) << message;
        EXPECT_NE(message.find("send_forward of micro-batch 0"), std::string::npos) << message;
        EXPECT_NE(message.find("'send' waits for the other members"), std::string::npos) << message;
    }
}

TEST(Deadlock, MismatchedCollectivesAreABug) {
    program::Program program = hand_made::make_program({.tp = 1, .dp = 1, .pp = 2, .message_elements = 64});
    // The receiver expects a different size than the sender sends.
    program::Body receive = program.bodies[3];
    receive.instructions[0].communication.elements = 32;
    program.classes[1].segment_lists[0][0].body = program.bodies.add(receive);
    EXPECT_THROW((void)simulate(program, Cluster(hand_made::gpu_cluster(1, 2, 0)), ActionTableCost({}),
                                TableCommunication(), {}),
                 BugError);
}

}  // namespace
}  // namespace orrery::sim
