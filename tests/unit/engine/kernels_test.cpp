// Communication kernels concurrent with computation on one device.
#include <gtest/gtest.h>

#include <memory>

#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"
#include "sim/sharing/shared_work.h"
#include "tests/unit/engine/hand_made.h"

namespace orrery::sim {
namespace {

using program::GroupAxis;

/// Computation that uses a share of the compute units and of the memory bandwidth.
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

/// Time of a step with 8000 ps of computation concurrent with 2000 ps of communication.
double picoseconds(const DeviceShare& share, const OperationCost& cost, bool kernels = true) {
    const topologies::Cluster cluster(two_devices(kernels));
    const program::Program program = hand_made::one_body(2, {hand_made::compute("c"), hand_made::reduce("r")});
    return simulate(program, cluster, WholeDevice(8000, share), Kernels(cost), {.steps = 1}).step_time_s * 1e12;
}

TEST(KernelsBesideCompute, OccupyComputeUnitsWhileTheyRun) {
    const OperationCost cost{.duration = Picoseconds(2000), .compute_units = 25};
    // 2000 ps at three quarters of full speed, then the remaining 6500 ps of work at full speed.
    EXPECT_NEAR(picoseconds({1, 0}, cost), 8500, 2);
    EXPECT_NEAR(picoseconds({0.75, 0}, cost), 8000, 2);
    EXPECT_NEAR(picoseconds({1, 0}, cost, false), 8000, 2);
}

TEST(KernelsBesideCompute, ShareMemoryBandwidth) {
    // Half of the reachable 500 GB/s for 2000 ps.
    const OperationCost cost{.duration = Picoseconds(2000), .memory_bytes = 500};
    // Together they run at 1 / 1.5 of full speed: communication takes 3000 ps, in which 2000 ps of computation are
    // done.
    EXPECT_NEAR(picoseconds({0, 1}, cost), 9000, 3);
    EXPECT_NEAR(picoseconds({0, 0.5}, cost), 8000, 3);
}

/// Two stages that reach a common collective at different times.
TEST(KernelsBesideCompute, OccupyComputeUnitsWhileWaitingForOtherStages) {
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
    // The first stage computes at three quarters of full speed while its kernel waits: the other stage arrives at 8000,
    // and the operation ends at 10000. The last 500 ps of work run at full speed.
    const program::RunRecord record =
        simulate(program, cluster, WholeDevice(8000, {1, 0}), Kernels(cost), {.steps = 1});
    EXPECT_NEAR(record.step_time_s * 1e12, 10500, 2);
}

TEST(SharedWorkHolds, HeldResourcesAreNotDivided) {
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
    EXPECT_EQ(work.queue().now(), 300);  // the holder is not slowed down
    work.finish(first + 1);
    work.settle();
    // After 300 ps at speed 0.6, 1020 ps remain. Then come 16 ps in which a sixteenth of the resource is free.
    work.start(first + 2, {}, nearly_all, 160);
    work.settle();
    EXPECT_EQ(work.queue().pop().slot, first + 2);
    work.finish(first + 2);
    work.settle();
    EXPECT_EQ(work.queue().pop().slot, first);
    EXPECT_NEAR(static_cast<double>(work.queue().now()), 460 + 1020 - 160 * 6 / 100.0, 2);
}

TEST(SharedWorkChanges, ScaleTheRemainingWork) {
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
    // 600 of 1000 ps remain, which is 300 ps of the changed operation of 500 ps; it runs at half speed.
    work.change(first, after, 1000, 500);
    work.settle();
    EXPECT_EQ(work.queue().pop().slot, first);
    EXPECT_EQ(work.queue().now(), 1000);
}

}  // namespace
}  // namespace orrery::sim
