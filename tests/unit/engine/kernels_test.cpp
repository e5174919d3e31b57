// Communication kernels beside computation on one device.
#include <gtest/gtest.h>

#include <memory>

#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/sharing/shared_work.h"
#include "tests/unit/engine/hand_made.h"

namespace orrery::sim {
namespace {

using program::GroupAxis;

/// Computation that takes all compute units, or all of the memory's bandwidth.
class WholeDevice final : public CostModel {
  public:
    WholeDevice(std::int64_t duration_ps, DeviceShare share) : duration_(duration_ps), share_(share) {}
    [[nodiscard]] Picoseconds instruction_time(const InstructionContext&) const override { return duration_; }
    [[nodiscard]] InstructionCost instruction_cost(const InstructionContext&) const override {
        return {duration_, share_};
    }
    [[nodiscard]] bool depends_on_action() const override { return false; }
    [[nodiscard]] std::vector<std::string> notes(const program::Program&) const override { return {}; }

  private:
    Picoseconds duration_;
    DeviceShare share_;
};

class Kernels final : public CommunicationCost {
  public:
    explicit Kernels(OperationCost cost) : cost_(std::move(cost)) {}
    [[nodiscard]] std::vector<OperationCost> costs(GroupAxis, std::span<const Operation> operations,
                                                   std::span<const std::int64_t>) const override {
        return std::vector<OperationCost>(operations.size(), cost_);
    }

  private:
    OperationCost cost_;
};

topologies::ClusterSpec two_devices(bool kernels) {
    topologies::ClusterSpec spec = hand_made::gpu_cluster(1, 2, 0);
    spec.device.compute_units = 100;
    if (kernels) spec.device.collective_kernels = topologies::CollectiveKernels{};
    return spec;
}

/// Of one step: computation of 8000 ps beside a communication of 2000 ps.
double picoseconds(const DeviceShare& share, const OperationCost& cost, bool kernels = true) {
    const topologies::Cluster cluster(two_devices(kernels));
    const program::Program program = hand_made::one_body(2, {hand_made::compute("c"), hand_made::reduce("r")});
    return simulate(program, cluster, WholeDevice(8000, share), Kernels(cost), {.steps = 1}).step_time_s * 1e12;
}

TEST(KernelsBesideCompute, KeepComputeUnitsWhileTheyRun) {
    const OperationCost cost{.duration = Picoseconds(2000), .compute_units = 25};
    // 2000 ps at three quarters of full speed, the other 6500 ps of work alone.
    EXPECT_NEAR(picoseconds({1, 0}, cost), 8500, 2);
    EXPECT_NEAR(picoseconds({0.75, 0}, cost), 8000, 2);
    EXPECT_NEAR(picoseconds({1, 0}, cost, false), 8000, 2);
}

TEST(KernelsBesideCompute, ShareTheMemory) {
    // 500 GB/s are reached: half of them for 2000 ps.
    const OperationCost cost{.duration = Picoseconds(2000), .memory_bytes = 500};
    // Both fit only at 1 / 1.5 of full speed, so that communication takes 3000 ps and computation is 2000 ps on.
    EXPECT_NEAR(picoseconds({0, 1}, cost), 9000, 3);
    EXPECT_NEAR(picoseconds({0, 0.5}, cost), 8000, 3);
}

/// Two stages that come to a collective of both at different times.
TEST(KernelsBesideCompute, KeepComputeUnitsWhileTheyWaitForOtherStages) {
    program::Instruction meet = hand_made::reduce("r");
    meet.communication.axis = GroupAxis::pipeline;
    program::Instruction meet_late = meet;
    meet_late.after = {0};
    program::Program program =
        hand_made::one_action(1, {{meet, hand_made::compute("c")}, {hand_made::compute("late"), meet_late}});
    program::Plan plan = *program.plan;
    plan.parallelism.pp = 2;
    program.plan = std::make_shared<const program::Plan>(plan);
    program.mesh = std::make_shared<const program::Mesh>(plan);
    program.classes.push_back(program.classes[0]);
    program.classes[0].segment_lists[0].pop_back();
    program.classes[1].segment_lists[0].erase(program.classes[1].segment_lists[0].begin());
    const OperationCost cost{.duration = Picoseconds(2000), .compute_units = 25};
    const topologies::Cluster cluster(two_devices(true));
    // The first stage computes 8000 ps at three quarters of full speed, of which the other comes after 8000 and the
    // operation ends after 10000; the last 500 ps of work are done alone.
    const program::RunRecord record =
        simulate(program, cluster, WholeDevice(8000, {1, 0}), Kernels(cost), {.steps = 1});
    EXPECT_NEAR(record.step_time_s * 1e12, 10500, 2);
}

TEST(SharedWorkHolds, WhatIsHeldIsNotDivided) {
    SharedWork work;
    const std::int32_t units = work.add_resource(100 * kFullRate);
    const SharedWork::Draw all{units, 100}, part{units, 40}, most{units, 99};
    const SharedWork::Draws draws = work.add_draws(std::span(&all, 1));
    const SharedWork::Draws held = work.add_draws(std::span(&part, 1));
    const SharedWork::Draws nearly_all = work.add_draws(std::span(&most, 1));
    const std::int32_t first = work.add_activities(3);
    work.may_draw(first, draws);
    work.seal(0);
    work.start(first, draws, 1200);
    work.start(first + 1, {}, held, 300);
    work.settle();
    EXPECT_EQ(work.queue().pop().slot, first + 1);
    EXPECT_EQ(work.queue().now(), 300);  // what holds is not slowed down
    work.finish(first + 1);
    work.settle();
    // 300 ps at 0.6 left 1020 ps. Then 16 ps with a sixteenth of the resource left.
    work.start(first + 2, {}, nearly_all, 160);
    work.settle();
    EXPECT_EQ(work.queue().pop().slot, first + 2);
    work.finish(first + 2);
    work.settle();
    EXPECT_EQ(work.queue().pop().slot, first);
    EXPECT_NEAR(static_cast<double>(work.queue().now()), 460 + 1020 - 160 * 6 / 100.0, 2);
}

TEST(SharedWorkChanges, ScaleWhatIsLeft) {
    SharedWork work;
    const std::int32_t link = work.add_resource(100 * kFullRate);
    const SharedWork::Draw half{link, 50}, twice{link, 200};
    const SharedWork::Draws before = work.add_draws(std::span(&half, 1));
    const SharedWork::Draws after = work.add_draws(std::span(&twice, 1));
    const std::int32_t first = work.add_activities(2);
    work.may_draw(first, before);
    work.may_draw(first, after);
    work.seal(0);
    work.start(first, before, 1000);
    work.start(first + 1, {}, 400);
    EXPECT_EQ(work.queue().pop().slot, first + 1);
    work.finish(first + 1);
    // 600 of 1000 ps are left: of an operation of 500 ps, 300 ps, at half speed.
    work.change(first, after, 1000, 500);
    work.settle();
    EXPECT_EQ(work.queue().pop().slot, first);
    EXPECT_EQ(work.queue().now(), 1000);
}

}  // namespace
}  // namespace orrery::sim
