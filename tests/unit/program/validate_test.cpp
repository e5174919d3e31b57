// Each rule holds on lowered plans of every mesh, and detects a program that was changed to break it. This file:
// structure and order; validate_data_test.cpp: memory, parameters and bytes.
#include <gtest/gtest.h>

#include "tests/unit/program/broken_programs.h"

namespace orrery::program {
namespace {

using samples::action_of;
using samples::add_wait;
using samples::body_of;
using samples::erase_action;
using samples::expect_breaks;
using samples::first_on;
using samples::full_program;
using samples::index_of;
using samples::make_plan;
using samples::make_program;
using samples::message_of;
using samples::move_to_front;
using samples::Sample;

struct MeshCase {
    std::int64_t dp, tp, pp;
    bool sequence_parallel;
};

class ValidateMesh : public testing::TestWithParam<MeshCase> {};

TEST_P(ValidateMesh, AcceptsLoweredPrograms) {
    const MeshCase mesh = GetParam();
    Sample sample{.dp = mesh.dp, .tp = mesh.tp, .pp = mesh.pp, .sequence_parallel = mesh.sequence_parallel};
    for (const char* model : {"tiny-gpt", "tiny-llama"}) {
        for (const Schedule schedule : {Schedule::gpipe, Schedule::one_f_one_b}) {
            for (const std::int64_t micro_batches : {1, 2, 5, 8}) {
                for (const bool tied : {false, true}) {
                    sample.model = model;
                    sample.schedule = schedule;
                    sample.micro_batches = micro_batches;
                    sample.tied = tied;
                    EXPECT_EQ(message_of(make_program(sample)), "")
                        << model << (schedule == Schedule::gpipe ? " gpipe" : " 1f1b") << ", micro-batches "
                        << micro_batches << (tied ? ", tied" : "");
                }
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Meshes, ValidateMesh,
                         testing::Values(MeshCase{1, 1, 1, false}, MeshCase{2, 1, 1, false}, MeshCase{1, 2, 1, false},
                                         MeshCase{1, 2, 1, true}, MeshCase{1, 1, 2, false}, MeshCase{1, 1, 4, false},
                                         MeshCase{2, 2, 1, true}, MeshCase{2, 1, 2, false}, MeshCase{1, 2, 2, false},
                                         MeshCase{1, 2, 2, true}, MeshCase{2, 2, 2, false}, MeshCase{2, 2, 2, true},
                                         MeshCase{3, 2, 3, true}),
                         [](const testing::TestParamInfo<MeshCase>& test) {
                             const MeshCase& mesh = test.param;
                             std::string name = "dp";
                             name.append(std::to_string(mesh.dp)).append("tp").append(std::to_string(mesh.tp));
                             name.append("pp").append(std::to_string(mesh.pp));
                             return name.append(mesh.sequence_parallel ? "sp" : "");
                         });

TEST(Validate, AcceptsUnevenStages) {
    for (const std::vector<std::int64_t>& stages :
         {std::vector<std::int64_t>{3, 1}, std::vector<std::int64_t>{1, 3}, std::vector<std::int64_t>{0, 4},
          std::vector<std::int64_t>{4, 0}, std::vector<std::int64_t>{1, 2, 1}}) {
        for (const bool sequence_parallel : {false, true}) {
            const Program program = make_program({.tp = 2,
                                                  .pp = static_cast<std::int64_t>(stages.size()),
                                                  .sequence_parallel = sequence_parallel,
                                                  .stage_layers = stages});
            EXPECT_EQ(message_of(program), "") << stages[0] << " blocks first";
        }
    }
}

TEST(Validate, AcceptsHeadNormsMixedPrecisionAndOtherImplementations) {
    for (const bool sequence_parallel : {false, true}) {
        EXPECT_EQ(message_of(make_program({.tp = 2, .sequence_parallel = sequence_parallel, .qk_norm = true})), "");
        EXPECT_EQ(message_of(make_program({.dp = 2,
                                           .tp = 2,
                                           .pp = 2,
                                           .sequence_parallel = sequence_parallel,
                                           .implementation = "megatron-lm-2022",
                                           .bf16 = true})),
                  "");
    }
}

// Latents are gathered at once even if hidden states are gathered in pieces, and are kept like other gathered inputs.
TEST(Validate, AcceptsGatheredLatentsThatAreKept) {
    Plan plan = make_plan({.model = "deepseek-v3", .tp = 2, .sequence_parallel = true, .bf16 = true});
    for (const bool pipelined : {false, true}) {
        for (const bool keeps : {false, true}) {
            plan.implementation.tensor_parallel.pipelined_gather = pipelined;
            plan.implementation.tensor_parallel.keeps_gathered_inputs = keeps;
            EXPECT_EQ(message_of(lower(plan)), "") << pipelined << keeps;
        }
    }
}

TEST(Validate, AcceptsInputGradientsThatAreReducedSeparately) {
    for (const char* model : {"tiny-llama", "gpt-neox-20b"}) {
        for (const bool merged : {false, true}) {
            Plan plan = make_plan({.model = model, .tp = 2, .bf16 = true});
            plan.implementation.tensor_parallel.reduces_inputs_apart = true;
            plan.implementation.kernels.merged_projections = merged;
            plan.implementation.kernels.merged_gate = false;
            EXPECT_EQ(message_of(lower(plan)), "") << model << merged;
        }
    }
}

TEST(Validate, AcceptsSixteenStagesOfALargeModel) {
    Plan plan = make_plan({.model = "llama3.1-405b",
                           .dp = 128,
                           .tp = 8,
                           .pp = 16,
                           .sequence_parallel = true,
                           .micro_batches = 16,
                           .stage_layers = {7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7},
                           .bf16 = true});
    plan.training.sequence_length = 8192;
    plan.implementation.data_parallel.bucket_bytes = 25 << 20;
    EXPECT_EQ(message_of(lower(plan)), "");
}

// indices

TEST(ValidateIndices, BodyThatDoesNotExist) {
    Program program = full_program();
    program.classes[1].segment_lists[0][0].body = 1000;
    expect_breaks(program, "indices", "body 1000");
}

TEST(ValidateIndices, SlotThatDoesNotExist) {
    Program program = full_program();
    program.bodies[0].operators[0].out[0] = 999;
    expect_breaks(program, "indices", "slot 999");
}

TEST(ValidateIndices, OperatorsThatDoNotExist) {
    Program program = full_program();
    Instruction& instruction = first_on(program.bodies[0], Stream::compute);
    instruction.operator_count = 100;
    expect_breaks(program, "indices", "operators");
}

TEST(ValidateIndices, EventOfALaterInstruction) {
    Program program = full_program();
    program.bodies[0].instructions[0].after = {0};
    expect_breaks(program, "indices", "not an earlier one");
}

TEST(ValidateIndices, StreamCounts) {
    Program program = full_program();
    ++program.bodies[0].stream_counts[Stream::dp];
    expect_breaks(program, "indices", "stream_counts");
}

TEST(ValidateIndices, NamesAreUniqueInABody) {
    Program program = full_program();
    Body& body = body_of(program, 0, ActionKind::forward, 0, 1);
    body.instructions[1].name = body.instructions[0].name;
    expect_breaks(program, "indices", "two instructions are named");
}

TEST(ValidateIndices, SlotOutsideItsMemory) {
    Program program = full_program();
    program.classes[0].segment_lists[0][1].activation_base = program.classes[0].chunks[0].frame_bytes;
    expect_breaks(program, "indices", "of the activation frame");
}

TEST(ValidateIndices, FrameThatDoesNotExist) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    action_of(ranks, ActionKind::forward, 1).activation_frame = ranks.chunks[0].frame_count;
    expect_breaks(program, "indices", "activation frame");
}

TEST(ValidateIndices, BufferThatIsNotBound) {
    Program program = full_program();
    action_of(program.classes[1], ActionKind::backward, 2).backward_boundary = -1;
    expect_breaks(program, "indices", "the action binds none");
}

TEST(ValidateIndices, WaitForALaterAction) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    Action& forward = action_of(ranks, ActionKind::forward, 0);
    add_wait(ranks, forward, {.action = index_of(ranks, forward) + 1, .stream = Stream::compute});
    expect_breaks(program, "indices", "has not been issued");
}

TEST(ValidateIndices, WaitForNothing) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    Action& backward = action_of(ranks, ActionKind::backward, 0);
    add_wait(ranks, backward, {.action = 0, .stream = Stream::pp_send_backward});
    expect_breaks(program, "indices", "puts nothing on the stream");
}

TEST(ValidateIndices, PoolsOfImpossibleSize) {
    Program program = full_program();
    program.classes[0].chunks[0].frame_count = 1'000'000'000;
    expect_breaks(program, "indices", "a pool of 1000000000 buffers");
    program.classes[0].chunks[0].frame_count = -1;
    expect_breaks(program, "indices", "a pool of -1 buffers");
}

TEST(ValidateIndices, MoreElementsThanTheSlotHolds) {
    Program program = full_program();
    ++body_of(program, 0, ActionKind::send_forward, 0, 0).instructions[0].communication.elements;
    expect_breaks(program, "indices", "elements of a slot of");
}

TEST(ValidateIndices, CommunicationOnTheComputeStream) {
    Program program = full_program();
    Body& body = body_of(program, 0, ActionKind::forward, 0, 1);
    first_on(body, Stream::tp).stream = Stream::compute;
    expect_breaks(program, "indices", "is on the stream compute");
}

// counts

TEST(ValidateCounts, AMicroBatchTwice) {
    Program program = full_program();
    action_of(program.classes[0], ActionKind::forward, 1).micro_batch = 0;
    expect_breaks(program, "counts", "it duplicates action");
}

TEST(ValidateCounts, AMissingTransfer) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    erase_action(ranks, index_of(ranks, action_of(ranks, ActionKind::send_forward, 3)));
    expect_breaks(program, "counts", "no send_forward of micro-batch 3");
}

TEST(ValidateCounts, AMissingBackward) {
    Program program = full_program();
    RankClass& ranks = program.classes[1];
    erase_action(ranks, index_of(ranks, action_of(ranks, ActionKind::backward, 0)));
    expect_breaks(program, "counts", "no backward of micro-batch 0");
}

TEST(ValidateCounts, ATransferToNobody) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    Action& send = action_of(ranks, ActionKind::send_forward, 1);
    send.kind = ActionKind::send_backward;
    expect_breaks(program, "counts", "no such neighbour");
}

TEST(ValidateCounts, BackwardBeforeForward) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    const ActionIndex index = index_of(ranks, action_of(ranks, ActionKind::backward, 3));
    ranks.actions[index].wait_count = 0;
    move_to_front(ranks, index);
    expect_breaks(program, "counts", "it is issued before action");
}

TEST(ValidateCounts, StepThatDoesNotEndWithTheOptimizer) {
    Program program = full_program();
    for (RankClass& ranks : program.classes) {
        for (Action& action : ranks.actions) action.wait_count = 0;
        std::swap(ranks.actions.back(), *std::prev(ranks.actions.end(), 2));
    }
    expect_breaks(program, "counts", "does not end with the optimizer_step");
}

TEST(ValidateCounts, LayersOutOfOrder) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    SegmentList& list = ranks.segment_lists[action_of(ranks, ActionKind::forward, 0).segments];
    std::swap(list[1].layer, list[2].layer);
    expect_breaks(program, "counts", "layers");
}

TEST(ValidateCounts, BlocksOfAnotherStage) {
    Program program = full_program();
    --program.classes[1].chunks[0].first_block;
    expect_breaks(program, "counts", "not those of the plan's virtual stage");
}

// transfers

TEST(ValidateTransfers, SizesDiffer) {
    Program program = full_program();
    --body_of(program, 1, ActionKind::recv_forward, 0, 0).instructions[0].communication.elements;
    expect_breaks(program, "transfers", "class 1 receives");
}

TEST(ValidateTransfers, TypesDiffer) {
    Program program = full_program();
    Communication& comm = body_of(program, 0, ActionKind::recv_backward, 0, 0).instructions[0].communication;
    comm.dtype = DType::int32;
    expect_breaks(program, "transfers", "int32");
}

TEST(ValidateTransfers, OrderDiffers) {
    Program program = full_program();
    RankClass& ranks = program.classes[1];
    const ActionIndex second = index_of(ranks, action_of(ranks, ActionKind::recv_forward, 1));
    ranks.actions[second].wait_count = 0;
    move_to_front(ranks, second);
    expect_breaks(program, "transfers", "of micro-batch 1");
}

TEST(ValidateTransfers, WrongDirection) {
    Program program = full_program();
    Body& body = body_of(program, 0, ActionKind::send_forward, 0, 0);
    body.instructions[0].stream = Stream::pp_send_backward;
    body.instructions[0].communication.axis = GroupAxis::down_backward;
    body.stream_counts = {};
    body.stream_counts[Stream::pp_send_backward] = 1;
    RankClass& ranks = program.classes[0];
    for (Wait& wait : ranks.waits) {
        if (wait.stream == Stream::pp_send_forward) wait.stream = Stream::pp_send_backward;
    }
    expect_breaks(program, "transfers", "on the stream pp_send_backward");
}

// collective order

TEST(ValidateCollectives, ReductionsDiffer) {
    Program program = full_program();
    const Action& sync = action_of(program.classes[1], ActionKind::sync_gradients, -1);
    for (Segment& segment : program.classes[1].segment_lists[sync.segments]) {
        Body body = program.bodies[segment.body];  // both ends of the pipeline share it
        Communication& comm = body.instructions[0].communication;
        if (comm.axis != GroupAxis::embedding) continue;
        comm.reduce = ReduceOp::max;
        segment.body = program.bodies.add(std::move(body));
    }
    expect_breaks(program, "collective order", "on the axis embedding");
}

TEST(ValidateCollectives, NumbersDiffer) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    erase_action(ranks, index_of(ranks, action_of(ranks, ActionKind::sync_gradients, -1)));
    expect_breaks(program, "collective order", "collectives on the axis embedding");
}

TEST(ValidateCollectives, OneAxisOnTwoStreams) {
    Program program = full_program();
    Body& body = body_of(program, 0, ActionKind::backward, 3, 0);
    Instruction& bucket = first_on(body, Stream::dp);
    bucket.stream = Stream::tp;
    --body.stream_counts[Stream::dp];
    ++body.stream_counts[Stream::tp];
    expect_breaks(program, "indices", "of the axis dp on the stream tp");
}

TEST(ValidateCollectives, GroupOfOne) {
    Program program = full_program();
    Plan plan = *program.plan;
    plan.model.tied_embeddings = false;
    program.plan = std::make_shared<const Plan>(plan);
    program.mesh = std::make_shared<const Mesh>(plan);
    expect_breaks(program, "collective order", "no second rank on the axis embedding");
}

// progress

TEST(ValidateProgress, StagesThatWaitForEachOther) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    move_to_front(ranks, index_of(ranks, action_of(ranks, ActionKind::recv_backward, 0)));
    ranks.actions[0].wait_count = 0;
    add_wait(ranks, action_of(ranks, ActionKind::forward, 0), {.action = 0, .stream = Stream::pp_recv_backward});
    // Stage 0 waits for the gradient before its first forward, and stage 1 needs that forward to compute the gradient.
    expect_breaks(program, "progress", "instruction 'recv_backward' waits for its partner");
    expect_breaks(program, "progress", "waits for instruction 1 of the stream pp_recv_backward");
}

TEST(ValidateProgress, WaitForThePreviousStepIsNoDeadlock) {
    Program program = full_program();
    RankClass& ranks = program.classes[1];
    Action& receive = action_of(ranks, ActionKind::recv_forward, 0);
    add_wait(ranks, receive,
             {.action = index_of(ranks, action_of(ranks, ActionKind::send_backward, 3)),
              .stream = Stream::pp_send_backward,
              .steps_back = 1});
    EXPECT_EQ(message_of(program), "");
}

}  // namespace
}  // namespace orrery::program
