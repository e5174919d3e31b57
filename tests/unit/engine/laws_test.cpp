// Qualitative laws of distributed training that any simulator must show, on plans of real sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>

#include "sim/cost/roofline_cost.h"
#include "sim/cost/table_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "tests/unit/engine/table_communication.h"

namespace orrery::sim {
namespace {

using program::ActionKind;
using program::CommKind;
using program::DataParallel;
using program::Plan;
using program::Program;
using program::RunRecord;
using program::Schedule;
using program::Stream;
using topologies::Cluster;

struct Outcome {
    RunRecord record;
    Program program;
    [[nodiscard]] double step_seconds() const { return record.step_time_s; }
    [[nodiscard]] std::int64_t peak_bytes(program::ClassIndex rank_class = 0) const {
        return program.classes.at(rank_class).memory.live_peak;
    }
    /// Bytes that one rank of the class sends per step with ring algorithms.
    [[nodiscard]] std::int64_t wire_bytes(program::ClassIndex rank_class = 0) const {
        std::int64_t sum = 0;
        for (const program::StreamVolume& volume : program::volumes(program, rank_class)) sum += volume.wire_bytes;
        return sum;
    }
    [[nodiscard]] double exposed_seconds(Stream stream) const {
        std::int64_t sum = 0;
        for (const program::RankRecord& rank : record.ranks) {
            sum = std::max(sum, rank.streams[stream].exposed_ps);
        }
        return static_cast<double>(sum) / kPicosecondsPerSecond;
    }
};

Plan base(const std::string& model, std::int64_t devices) {
    Plan plan;
    plan.name = "law";
    plan.model = models::load_model(model);
    plan.cluster = topologies::load_cluster("dgx-h100", devices);
    plan.implementation = models::load_implementation("orrery");
    plan.training.sequence_length = 2048;
    plan.training.precision = program::precision_named("bf16");
    plan.parallelism.stage_layers = {plan.model.layers};
    return plan;
}

Outcome outcome(const Plan& plan) {
    program::check_plan(plan, plan.name);
    const Cluster cluster(plan.cluster);
    Program program = program::lower(plan);
    RunRecord record = simulate(program, cluster, RooflineCost(plan.cluster), NetworkCommunication(cluster));
    return {std::move(record), std::move(program)};
}

Plan data_parallel(DataParallel kind, std::int64_t ranks, std::int64_t micro_batches = 2) {
    Plan plan = base("llama3-8b", ranks);
    plan.parallelism.dp = ranks;
    plan.parallelism.data_parallel = kind;
    plan.parallelism.reduces_every_micro_batch = plan.parallelism.shards_gradients();
    plan.training.global_batch_size = ranks * micro_batches;
    return plan;
}

TEST(Laws, EachZeroStageTakesLessMemory) {
    const std::int64_t whole = outcome(data_parallel(DataParallel::ddp, 16)).peak_bytes();
    const std::int64_t first = outcome(data_parallel(DataParallel::zero1, 16)).peak_bytes();
    const std::int64_t second = outcome(data_parallel(DataParallel::zero2, 16)).peak_bytes();
    const std::int64_t third = outcome(data_parallel(DataParallel::zero3, 16)).peak_bytes();
    EXPECT_GT(whole, first);
    EXPECT_GT(first, second);
    EXPECT_GT(second, third);
}

TEST(Laws, ZeroThreeCommunicatesMostAndZeroTwoAtLeastAsMuchAsZeroOne) {
    for (const std::int64_t micro_batches : {std::int64_t{1}, std::int64_t{4}}) {
        const std::int64_t first = outcome(data_parallel(DataParallel::zero1, 16, micro_batches)).wire_bytes();
        const std::int64_t second = outcome(data_parallel(DataParallel::zero2, 16, micro_batches)).wire_bytes();
        const std::int64_t third = outcome(data_parallel(DataParallel::zero3, 16, micro_batches)).wire_bytes();
        EXPECT_GT(third, second);
        EXPECT_GE(second, first);
    }
}

TEST(Laws, DistributedDataParallelSendsOnlyGradients) {
    Plan plan = base("gpt2-xl", 8);
    plan.parallelism.dp = 8;
    plan.training.sequence_length = 1024;
    plan.training.global_batch_size = 8;
    for (const program::StreamVolume& volume : program::volumes(outcome(plan).program, 0)) {
        EXPECT_EQ(volume.stream, Stream::dp);
        EXPECT_EQ(volume.kind, CommKind::all_reduce);
    }
}

TEST(Laws, TorchDataParallelHasFiveExchangesAndItsMasterIsTheBottleneck) {
    Plan plan = base("gpt2-xl", 8);
    plan.implementation = models::load_implementation("torch-dp");
    plan.training.sequence_length = 1024;
    plan.training.global_batch_size = 8;
    plan.parallelism.dp = 8;
    plan.parallelism.data_parallel = DataParallel::dp;
    const Outcome replicas = outcome(plan);
    std::map<std::string, int> exchanges;
    for (const program::Body& body : replicas.program.bodies) {
        for (const program::Instruction& instruction : body.instructions) {
            if (instruction.is_communication) ++exchanges[instruction.name.substr(0, instruction.name.find('.', 3))];
        }
    }
    EXPECT_EQ(exchanges.size(), 5U);  // inputs, parameters, outputs, their gradients, the parameters' gradients
    // The master holds the optimizer states and all outputs, and computes loss and update alone.
    ASSERT_EQ(replicas.record.ranks.size(), 2U);
    EXPECT_GT(replicas.peak_bytes(0), 2 * replicas.peak_bytes(1));
    EXPECT_GT(replicas.record.ranks[0].streams[Stream::compute].busy_ps,
              replicas.record.ranks[1].streams[Stream::compute].busy_ps);

    plan.implementation = models::load_implementation("torch-ddp");
    plan.parallelism.data_parallel = DataParallel::ddp;
    EXPECT_LT(outcome(plan).step_seconds(), replicas.step_seconds());
}

/// Bubble divided by ideal compute time, with equal stages and free transfers.
double bubble_share(Schedule schedule, std::int64_t stages, std::int64_t chunks, std::int64_t micro_batches) {
    Plan plan = base("tiny-gpt", 8);
    plan.model.layers = stages * chunks;
    plan.parallelism.pp = stages;
    plan.parallelism.chunks = chunks;
    plan.parallelism.schedule = schedule;
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, stages * chunks);
    plan.training.sequence_length = 64;
    plan.training.global_batch_size = micro_batches;
    plan.cluster.device.launch_us.value = 0;
    program::check_plan(plan, plan.name);
    constexpr std::int64_t kForward = 1'000'000'000;
    const ActionTableCost cost({{ActionKind::forward, Picoseconds(kForward / chunks)},
                                {ActionKind::backward, Picoseconds(2 * kForward / chunks)}});
    const Cluster cluster(plan.cluster);
    const RunRecord record = simulate(program::lower(plan), cluster, cost, TableCommunication());
    const double ideal = static_cast<double>(micro_batches * 3 * kForward) / kPicosecondsPerSecond;
    return record.step_time_s / ideal - 1;
}

TEST(Laws, MoreMicroBatchesShrinkTheBubble) {
    for (const std::int64_t chunks : {1, 2}) {
        const Schedule schedule = chunks > 1 ? Schedule::interleaved : Schedule::one_f_one_b;
        for (const std::int64_t micro_batches : {4, 8, 16, 64}) {
            const double expected = 3.0 / static_cast<double>(chunks * micro_batches);
            EXPECT_NEAR(bubble_share(schedule, 4, chunks, micro_batches), expected, 1e-9)
                << chunks << " chunks, " << micro_batches << " micro-batches";
        }
    }
}

/// Tokens/s with a fixed global batch.
double strong_scaling(std::int64_t devices) {
    Plan plan = base("gpt2-xl", devices);
    plan.parallelism.dp = devices;
    plan.training.sequence_length = 1024;
    plan.training.global_batch_size = 128;
    return 128.0 * 1024 / outcome(plan).step_seconds();
}

TEST(Laws, StrongScalingHasDiminishingReturns) {
    const double second = strong_scaling(2) / strong_scaling(1);
    const double more = strong_scaling(128) / strong_scaling(64);
    EXPECT_GT(second, 1.5);
    EXPECT_LT(more, second);
}

TEST(Laws, TensorParallelismIsSlowerAcrossNodesThanInsideANode) {
    Plan inside = base("llama3-8b", 16);
    inside.parallelism.tp = 2;
    inside.parallelism.dp = 8;
    inside.training.global_batch_size = 8 * 16;
    Plan across = inside;
    across.parallelism.order = {program::MeshAxis::dp, program::MeshAxis::tp, program::MeshAxis::cp,
                                program::MeshAxis::ep, program::MeshAxis::pp};
    EXPECT_GT(outcome(across).step_seconds(), 1.2 * outcome(inside).step_seconds());
}

TEST(Laws, RecomputationTradesTimeForMemory) {
    Plan plan = base("llama3-8b", 8);
    plan.parallelism.tp = 8;
    plan.parallelism.sequence_parallel = true;
    plan.training.global_batch_size = 4;
    const Outcome none = outcome(plan);
    plan.training.memory.recompute = program::Recompute::full;
    const Outcome full = outcome(plan);
    EXPECT_LT(full.peak_bytes(), none.peak_bytes());
    EXPECT_GT(full.step_seconds(), 1.15 * none.step_seconds());
    plan.training.memory.recompute = program::Recompute::selective;
    plan.training.memory.recompute_parts = {"norm", "activation"};
    const Outcome selective = outcome(plan);
    EXPECT_LT(selective.peak_bytes(), none.peak_bytes());
    EXPECT_GT(selective.peak_bytes(), full.peak_bytes());
    EXPECT_LT(selective.step_seconds(), full.step_seconds());
}

/// Time of a step minus m (F + I + W), in units of F, from a lowered and simulated plan with free transfers: the
/// makespan of the first step, or the period of repeated ones.
double bubble_of(Schedule schedule, std::int64_t stages, std::int64_t micro_batches, double input, double weight,
                 int steps = 1, const program::Optimizer& optimizer = {}, bool tied = false) {
    const bool two_chunks = schedule == Schedule::zb_v || schedule == Schedule::dualpipe ||
                            schedule == Schedule::dualpipe_v || schedule == Schedule::interleaved;
    Plan plan = base("tiny-gpt", 8);
    plan.model.layers = 2 * stages;
    plan.parallelism.pp = stages;
    plan.parallelism.chunks = two_chunks ? 2 : 1;
    plan.parallelism.schedule = schedule;
    plan.parallelism.stage_layers = program::even_stages(plan.model.layers, plan.parallelism.virtual_stages());
    plan.training.sequence_length = 64;
    plan.training.global_batch_size = micro_batches;
    if (schedule == Schedule::zb_2p) plan.parallelism.schedule_times = {1, input, weight, 0};
    plan.training.optimizer = optimizer;
    plan.model.tied_embeddings = tied;
    plan.cluster.device.launch_us.value = 0;
    program::check_plan(plan, plan.name);
    // A chunk is half a stage, except in DualPipe, whose chunks are whole stages of two copies of the model.
    const double share = two_chunks && schedule != Schedule::dualpipe ? 2 : 1;
    const auto picoseconds = [&](double units) { return Picoseconds(std::llround(units * 1e9 / share)); };
    const ActionTableCost cost({{ActionKind::forward, picoseconds(1)},
                                {ActionKind::backward, picoseconds(input + weight)},
                                {ActionKind::backward_input, picoseconds(input)},
                                {ActionKind::backward_weight, picoseconds(weight)}});
    const Cluster cluster(plan.cluster);
    const RunRecord record = simulate(program::lower(plan), cluster, cost, TableCommunication(), {.steps = steps});
    return record.step_time_s * 1e3 - static_cast<double>(micro_batches) * (1 + input + weight);
}

TEST(LoweredSchedules, BubblesOfThePublishedTable) {
    struct Row {
        Schedule schedule;
        double four_stages, eight_stages;
    };
    for (const Row& row :
         {Row{Schedule::gpipe, 9, 21}, Row{Schedule::one_f_one_b, 9, 21}, Row{Schedule::interleaved, 4.5, 10.5},
          Row{Schedule::zb_h1, 3, 7}, Row{Schedule::zb_v, 1.5, 3.5}, Row{Schedule::dualpipe, 2, 6},
          Row{Schedule::dualpipe_v, 3, 7}}) {
        EXPECT_NEAR(bubble_of(row.schedule, 4, 8, 1, 1), row.four_stages, 1e-9) << program::name_of(row.schedule);
        EXPECT_NEAR(bubble_of(row.schedule, 8, 16, 1, 1), row.eight_stages, 1e-9) << program::name_of(row.schedule);
    }
    EXPECT_NEAR(bubble_of(Schedule::zb_v, 4, 8, 1.2, 0.8), 1.8, 1e-9);
    EXPECT_NEAR(bubble_of(Schedule::zb_v, 8, 16, 1.2, 0.8), 4.2, 1e-9);
    EXPECT_NEAR(bubble_of(Schedule::dualpipe, 4, 8, 1.2, 0.8), 2.4, 1e-9);
    // One micro-batch at a time: all other stages wait.
    EXPECT_NEAR(bubble_of(Schedule::naive, 4, 8, 1, 1), 3 * 8 * 3, 1e-9);
}

/// arXiv 2401.10241, section 4: the stages of a zero-bubble schedule are shifted against each other. That costs nothing
/// if nothing at the end of a step waits for all of them; a gradient norm does, unless the update is validated later. A
/// tied embedding makes the first and the last stage wait for each other, except where both are on one rank.
TEST(LoweredSchedules, StepsFollowEachOtherWithoutABubbleIfNoNormIsAwaited) {
    constexpr int kSteps = 4;
    const program::Optimizer plain, clipped{.clip_norm = 1}, validated{.clip_norm = 1, .post_validation = true};
    for (const std::int64_t stages : {2, 4, 8}) {
        const auto period = [&](Schedule schedule, const program::Optimizer& optimizer) {
            return bubble_of(schedule, stages, 3 * stages, 1, 1, kSteps, optimizer);
        };
        for (const Schedule schedule : {Schedule::zb_h2, Schedule::zb_2p, Schedule::zb_v}) {
            const std::string what = program::name_of(schedule) + " on " + std::to_string(stages) + " stages";
            EXPECT_NEAR(period(schedule, plain), 0, 1e-9) << what;
            EXPECT_NEAR(period(schedule, validated), 0, 1e-9) << what;
            EXPECT_GE(period(schedule, clipped), 0.5 * static_cast<double>(stages - 1) - 1e-9) << what;
        }
        const auto shift = static_cast<double>(stages - 1);
        EXPECT_NEAR(period(Schedule::zb_h2, clipped), shift, 1e-9);
        EXPECT_NEAR(bubble_of(Schedule::zb_h2, stages, 3 * stages, 1, 1, kSteps, plain, true), shift, 1e-9);
        EXPECT_NEAR(bubble_of(Schedule::zb_v, stages, 3 * stages, 1, 1, kSteps, plain, true), 0, 1e-9);
        // Of 1F1B every stage waits for the others within a step, whatever its end.
        const double flush = 3 * shift;
        for (const program::Optimizer& optimizer : {plain, clipped, validated}) {
            EXPECT_NEAR(period(Schedule::one_f_one_b, optimizer), flush, 1e-9);
        }
    }
}

}  // namespace
}  // namespace orrery::sim
