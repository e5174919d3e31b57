// Blocks whose two passes take turns, so that each computes while the other's tokens travel (overlaps_experts).
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "sim/program/issue_order.h"
#include "sim/program/peak_contents.h"
#include "sim/program/schedule.h"
#include "tests/unit/program/broken_programs.h"
#include "tests/unit/program/random_plans.h"

namespace orrery::program {
namespace {

using samples::expect_breaks;
using samples::make_plan;
using samples::message_of;

Plan overlapped(Schedule schedule, std::int64_t pp = 2) {
    const bool two = schedule != Schedule::one_f_one_b;
    Plan plan = make_plan({.model = "mixtral-8x7b", .micro_batches = 8});
    plan.model = samples::shrunk(plan.model);
    plan.model.layers = 4;
    plan.parallelism = {.dp = 2,
                        .pp = pp,
                        .ep = 2,
                        .overlaps_experts = true,
                        .schedule = schedule,
                        .chunks = two ? 2 : 1,
                        .data_parallel = DataParallel::zero1};
    plan.parallelism.stage_layers = even_stages(plan.model.layers, plan.parallelism.virtual_stages());
    plan.training.global_batch_size = 2 * plan.training.micro_batch_size * 8;
    plan.cluster = topologies::load_cluster("dgx-h100", 8);
    return plan;
}

/// "F0 mb3: attention.qkv, ep.all_to_all.experts.sent": pass, part, micro-batch, and what the part issues on the
/// compute and ep streams.
std::string described(const Program& program, const Action& action) {
    std::string text = action.kind == ActionKind::forward ? "F" : "B";
    text += std::to_string(action.part) + " mb" + std::to_string(action.micro_batch) + ":";
    for (const Segment& segment : program.classes[0].segment_lists[action.segments]) {
        for (const Instruction& instruction : program.bodies[segment.body].instructions) {
            text += " " + std::to_string(segment.layer) + "/" + instruction.name;
        }
    }
    return text;
}

/// The actions of the first block of class 0.
std::vector<ActionIndex> first_block(const Program& program) {
    const RankClass& ranks = program.classes[0];
    std::vector<ActionIndex> block;
    for (const ActionIndex a : ranks.actions.indices()) {
        const Action& action = ranks.actions[a];
        if (action.part_count == 1) continue;
        const bool again = std::ranges::any_of(block, [&](ActionIndex other) {
            return ranks.actions[other].kind == action.kind && ranks.actions[other].part == action.part;
        });
        if (again) break;
        block.push_back(a);
    }
    return block;
}

// Each pass pauses where it would wait for tokens: the forward after it has sent them to the experts and after these
// have sent them back, the backward after it has sent their gradients the same ways.
TEST(ExpertOverlap, PassesOfABlockTakeTurns) {
    const Program program = lower(overlapped(Schedule::dualpipe_v));
    EXPECT_EQ(message_of(program), "");
    std::vector<std::string> block;
    for (const ActionIndex a : first_block(program)) block.push_back(described(program, program.classes[0].actions[a]));
    const std::vector<std::string> expected{
        "B0 mb1: 4/head.weight.gradient 3/experts.returned.gradient 3/ep.all_to_all.experts.returned.gradient",
        "F0 mb3: -1/hidden.out 0/attention.qkv 0/ep.all_to_all.experts.counts.sent 0/ep.all_to_all.experts.sent",
        "B1 mb1: 3/experts.in.gradient 3/ep.all_to_all.experts.in.gradient.leaving 3/experts.fc1.weight.gradient",
        "F1 mb3: 0/experts.fc1.out 0/ep.all_to_all.experts.out.leaving",
        "B2 mb1: 3/attention.qkv.weight.gradient",
        "F2 mb3: 0/experts.combined"};
    EXPECT_EQ(block, expected);
}

// What remains of the longer pass comes at the end. Full recomputation sends tokens twice more.
TEST(ExpertOverlap, TheRestOfTheLongerPassComesLast) {
    Plan plan = overlapped(Schedule::dualpipe_v);
    plan.training.memory.recompute = Recompute::full;
    const Program program = lower(plan);
    EXPECT_EQ(message_of(program), "");
    std::string order;
    for (const ActionIndex a : first_block(program)) {
        order += program.classes[0].actions[a].kind == ActionKind::forward ? "F" : "B";
    }
    EXPECT_EQ(order, "BFBFBFBB");
}

TEST(ExpertOverlap, InterleavedWarmsUpWithOneMoreForward) {
    for (const bool overlaps : {false, true}) {
        Plan plan = overlapped(Schedule::interleaved);
        plan.parallelism.overlaps_experts = overlaps;
        const std::vector<std::vector<ComputeTask>> orders = compute_orders(schedule_shape(plan));
        for (std::size_t rank = 0; rank < orders.size(); ++rank) {
            const auto first_backward = std::ranges::find_if(
                orders[rank], [](const ComputeTask& task) { return task.kind == ComputeTask::Kind::backward; });
            // The forward beside the first backward belongs to their pair.
            EXPECT_EQ(first_backward - orders[rank].begin(), 2 * (1 - static_cast<int>(rank)) + 2 + (overlaps ? 2 : 1));
            EXPECT_EQ(first_backward->overlaps_previous, overlaps);
        }
    }
}

// The transients of both passes are alive at once and lie side by side.
TEST(ExpertOverlap, TransientsOfBothPassesHaveRoom) {
    Plan plan = overlapped(Schedule::dualpipe_v);
    const Program together = lower(plan);
    plan.parallelism.overlaps_experts = false;
    const Program apart = lower(plan);
    for (const ClassIndex c : together.classes.indices()) {
        std::int64_t forward = 0, backward = 0;
        for (const Action& action : apart.classes[c].actions) {
            for (const Segment& segment : apart.classes[c].segment_lists[action.segments]) {
                const std::int64_t bytes = apart.bodies[segment.body].transient_bytes;
                if (action.kind == ActionKind::forward) forward = std::max(forward, bytes);
                if (action.kind == ActionKind::backward) backward = std::max(backward, bytes);
            }
        }
        EXPECT_EQ(together.classes[c].memory.transients_arena, forward + backward);
        EXPECT_GT(together.classes[c].memory.transients_live_peak, apart.classes[c].memory.transients_live_peak);
        EXPECT_LE(peak_contents(together, c).transient_bytes, together.classes[c].memory.transients_live_peak);
    }
}

// Instructions have the keys that they have in other plans.
TEST(ExpertOverlap, KeysStayTheSame) {
    Plan plan = overlapped(Schedule::dualpipe_v);
    const Program together = lower(plan);
    plan.parallelism.overlaps_experts = false;
    const Program apart = lower(plan);
    for (const ClassIndex c : together.classes.indices()) {
        const auto keys_of = [&](const Program& program) {
            std::multiset<std::string> keys;
            const IssueIndex index(program, c);
            for (std::int64_t i = 0; i < index.size(); ++i) keys.insert(index.key_at(i));
            return keys;
        };
        EXPECT_EQ(keys_of(together), keys_of(apart));
    }
}

Action& part_in(RankClass& ranks, ActionKind kind, std::int32_t part) {
    const auto found = std::ranges::find_if(ranks.actions, [&](const Action& action) {
        return action.kind == kind && action.part_count > 1 && action.part == part;
    });
    EXPECT_NE(found, ranks.actions.end());
    return *found;
}

TEST(ExpertOverlap, PartsOutOfOrderAreFound) {
    Program program = lower(overlapped(Schedule::dualpipe_v));
    RankClass& ranks = program.classes[0];
    std::swap(part_in(ranks, ActionKind::forward, 1).part, part_in(ranks, ActionKind::forward, 2).part);
    expect_breaks(program, "counts", "it is part 2 of 3 and follows part 0 of 3");
}

TEST(ExpertOverlap, PassesThatDoNotGoOnWhereTheyPausedAreFound) {
    Program program = lower(overlapped(Schedule::dualpipe_v));
    RankClass& ranks = program.classes[0];
    ranks.segment_lists[part_in(ranks, ActionKind::forward, 1).segments].front().layer = 1;
    expect_breaks(program, "counts", "it does not go on where it paused in layer 0");
}

TEST(ExpertOverlap, AnIncompletePassIsFound) {
    Program program = lower(overlapped(Schedule::dualpipe_v));
    RankClass& ranks = program.classes[0];
    for (Action& action : ranks.actions) {
        if (action.part_count > 1 && action.kind == ActionKind::forward) ++action.part_count;
    }
    expect_breaks(program, "counts", "it is the last part of its pass, which has 4");
}

TEST(ExpertOverlap, ComputationThatDoesNotAwaitItsTokensIsFound) {
    Program program = lower(overlapped(Schedule::dualpipe_v));
    RankClass& ranks = program.classes[0];
    part_in(ranks, ActionKind::forward, 1).wait_count = 0;
    expect_breaks(program, "ordered accesses", "is not ordered after the write by");
}

TEST(ExpertOverlap, TransientsThatThePassesShareAreFound) {
    Program program = lower(overlapped(Schedule::dualpipe_v));
    for (RankClass& ranks : program.classes) {
        for (SegmentList& list : ranks.segment_lists) {
            for (Segment& segment : list) segment.transient_base = 0;
        }
    }
    expect_breaks(program, "ordered accesses", "in the transients is not ordered after");
}

TEST(ExpertOverlap, ABodyThatIsNoPartOfItsWholeIsFound) {
    Program program = lower(overlapped(Schedule::dualpipe_v));
    const auto part = std::ranges::find_if(program.bodies, [](const Body& body) { return body.first_in_whole > 0; });
    ASSERT_NE(part, program.bodies.end());
    ++part->first_in_whole;
    expect_breaks(program, "indices", "of the whole body");
}

// Every plan that check_plan accepts is lowered to a Program that passes validate().
TEST(ExpertOverlap, FitsWithEveryOtherTechnique) {
    samples::RandomPlans random(20);
    std::map<Schedule, int> used;
    for (int draw = 0; draw < 6000; ++draw) {
        Plan plan = random.make();
        plan.parallelism.overlaps_experts = true;
        try {
            check_plan(plan, "random");
        } catch (const InputError&) {
            continue;
        }
        ++used[plan.parallelism.schedule];
        EXPECT_EQ(message_of(lower(plan)), "") << plan.name;
    }
    for (const Schedule schedule :
         {Schedule::one_f_one_b, Schedule::interleaved, Schedule::dualpipe, Schedule::dualpipe_v}) {
        EXPECT_GE(used[schedule], 10) << name_of(schedule);
    }
    EXPECT_EQ(used.size(), 4U);
}

}  // namespace
}  // namespace orrery::program
