// Simulations of lowered random plans that mix all techniques: representatives give the same times as all ranks, to the
// picosecond, and no step is shorter than the lower bounds from its arithmetic, its messages and its dependency chain.
#include "tests/unit/program/random_plans.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "sim/cost/roofline_cost.h"
#include "sim/engine/network_communication.h"
#include "sim/engine/simulate.h"

namespace orrery::sim {
namespace {

using program::Action;
using program::ActionIndex;
using program::ActionKind;
using program::ClassIndex;
using program::Plan;
using program::Program;
using program::RankClass;
using program::Segment;
using topologies::Cluster;

/// Seconds of the action's instructions on the compute stream at full speed, and seconds of their GEMMs at peak rate.
struct Work {
    double seconds = 0, at_peak = 0;
};

class Bounds {
  public:
    Bounds(const Program& program, const RooflineCost& cost) : program_(program), cost_(cost) {}

    [[nodiscard]] Work work_of(ClassIndex c, ActionIndex a) {
        const RankClass& ranks = program_.classes[c];
        const Action& action = ranks.actions[a];
        const auto [entry, fresh] = known_.try_emplace({c, action.segments});
        if (!fresh) return entry->second;
        const program::SegmentList& list = ranks.segment_lists[action.segments];
        for (const program::SegmentIndex s : list.indices()) {
            const program::Body& body = program_.bodies[list[s].body];
            for (const program::InstructionIndex i : body.instructions.indices()) {
                const program::Instruction& instruction = body.instructions[i];
                if (instruction.stream != program::Stream::compute) continue;
                entry->second.seconds += to_seconds(cost_.instruction_time({program_, c, a, s, i}));
                for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
                    const models::Operator& op = body.operators[instruction.first_operator + o];
                    if (!op.is_matmul() && !op.is_expert_matmul()) continue;
                    entry->second.at_peak += op.flops / program_.plan->cluster.device.peak_flops_per_s(op.math);
                }
            }
        }
        return entry->second;
    }

    /// The work of a whole step of the class.
    [[nodiscard]] Work step_of(ClassIndex c) {
        Work sum;
        for (const ActionIndex a : program_.classes[c].actions.indices()) {
            const Work one = work_of(c, a);
            sum.seconds += one.seconds;
            sum.at_peak += one.at_peak;
        }
        return sum;
    }

    /// Seconds of one micro-batch through all virtual stages and back, in the direction that micro-batch 0 takes.
    [[nodiscard]] double passage() {
        double sum = 0;
        for (const ClassIndex c : program_.classes.indices()) {
            const RankClass& ranks = program_.classes[c];
            for (const ActionIndex a : ranks.actions.indices()) {
                const Action& action = ranks.actions[a];
                const bool passes = action.kind == ActionKind::forward || action.kind == ActionKind::backward ||
                                    action.kind == ActionKind::backward_input;
                const bool blocks = ranks.chunks[action.chunk].virtual_stage >= 0;
                if (!passes || !blocks || action.micro_batch != 0) continue;
                sum += work_of(c, a).seconds;
            }
        }
        return sum;
    }

  private:
    const Program& program_;
    const RooflineCost& cost_;
    std::map<std::pair<ClassIndex, program::SegmentListId>, Work> known_;
};

/// Bytes that a rank of the class sends, divided by the bandwidth of all of its device's links.
double message_seconds(const Program& program, ClassIndex c) {
    std::int64_t bytes = 0;
    for (const program::StreamVolume& volume : program::volumes(program, c)) bytes += volume.wire_bytes;
    const topologies::ClusterSpec& cluster = program.plan->cluster;
    const double port = cluster.intra_node.bandwidth_gb_per_s_per_direction.value;
    const double nic = cluster.nic.bandwidth_gb_per_s_per_direction.value;
    return static_cast<double>(bytes) / ((port + nic) * kGigabyte);
}

TEST(RandomPlans, StepsAreNoShorterThanTheirLowerBounds) {
    constexpr double kRounding = 1e-9;
    program::samples::RandomPlans maker(11);
    for (int round = 0; round < 1500; ++round) {
        const Plan plan = maker.make_legal();
        const Program program = program::lower(plan);
        const Cluster cluster(plan.cluster);
        const RooflineCost cost(plan.cluster);
        const double step = simulate(program, cluster, cost, NetworkCommunication(cluster), {.steps = 1}).step_time_s;
        Bounds bounds(program, cost);
        const std::string what = "plan " + std::to_string(round) + ": " + program::to_json_text(plan);
        // torch DataParallel: the replicas' passes are one chain with the master's.
        const bool replicas = plan.parallelism.data_parallel == program::DataParallel::dp;
        for (const ClassIndex c : program.classes.indices()) {
            const Work work = bounds.step_of(c);
            ASSERT_GE(step, work.seconds - kRounding) << what;
            ASSERT_GE(step, work.at_peak - kRounding) << what;
            ASSERT_GE(step, message_seconds(program, c) - kRounding) << what;
        }
        if (!replicas) {
            ASSERT_GE(step, bounds.passage() - kRounding) << what;
        }
    }
}

TEST(RandomPlans, RepresentativesAgreeWithAllRanksToThePicosecond) {
    program::samples::RandomPlans maker(12);
    for (int round = 0; round < 400; ++round) {
        Plan plan = maker.make_legal();
        if (round % 4 == 0) {  // with a placement
            for (std::int64_t rank = 0; rank < plan.parallelism.world_size(); ++rank) {
                plan.parallelism.placement.push_back(plan.parallelism.world_size() - 1 - rank);
            }
        }
        const Program program = program::lower(plan);
        const Cluster cluster(plan.cluster);
        const RooflineCost cost(plan.cluster);
        const NetworkCommunication network(cluster);
        const program::RunRecord quotient = simulate(program, cluster, cost, network, {.full = false, .steps = 2});
        const program::RunRecord full = simulate(program, cluster, cost, network, {.full = true, .steps = 2});
        ASSERT_EQ(quotient.step_time_s, full.step_time_s) << "plan " << round << ": " << program::to_json_text(plan);
        ASSERT_EQ(quotient.idle_fraction, full.idle_fraction);
        std::int64_t busy = 0, stand_ins = 0;
        for (const program::RankRecord& rank : full.ranks) {
            for (const program::StreamTime& time : rank.streams) busy += time.busy_ps;
        }
        for (const program::RankRecord& rank : quotient.ranks) {
            for (const program::StreamTime& time : rank.streams) stand_ins += time.busy_ps * rank.multiplicity;
        }
        ASSERT_EQ(busy, stand_ins);
    }
}

}  // namespace
}  // namespace orrery::sim
