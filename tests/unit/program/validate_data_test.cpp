// The rules on memory, parameters and bytes: each is broken in one way. And wrong numbers anywhere.
#include <gtest/gtest.h>

#include <array>

#include "tests/unit/program/broken_programs.h"

namespace orrery::program {
namespace {

using samples::action_of;
using samples::body_of;
using samples::expect_breaks;
using samples::first_on;
using samples::full_program;
using samples::make_program;
using samples::message_of;

// ordered accesses

TEST(ValidateAccesses, SendThatDoesNotWaitForItsData) {
    Program program = full_program();
    action_of(program.classes[0], ActionKind::send_forward, 2).wait_count = 0;
    expect_breaks(program, "ordered accesses", "instruction 'send_forward'");
}

TEST(ValidateAccesses, ReceiveIntoABufferThatIsInUse) {
    Program program = full_program();
    action_of(program.classes[1], ActionKind::recv_forward, 3).wait_count = 0;
    expect_breaks(program, "ordered accesses", "instruction 'recv_forward'");
}

TEST(ValidateAccesses, ReuseAcrossTheStepsEnd) {
    Program program = full_program();
    std::int32_t removed = 0;
    for (RankClass& ranks : program.classes) {
        for (Action& action : ranks.actions) {
            std::vector<Wait> kept;
            for (std::int32_t w = 0; w < action.wait_count; ++w) {
                const Wait wait = ranks.waits[static_cast<std::size_t>(action.first_wait + w)];
                if (wait.steps_back == 0) kept.push_back(wait);
            }
            removed += action.wait_count - static_cast<std::int32_t>(kept.size());
            action.first_wait = static_cast<std::int32_t>(ranks.waits.size());
            action.wait_count = static_cast<std::int32_t>(kept.size());
            ranks.waits.insert(ranks.waits.end(), kept.begin(), kept.end());
        }
    }
    EXPECT_GT(removed, 0);
    expect_breaks(program, "ordered accesses", "is not ordered after the");
}

TEST(ValidateAccesses, BucketReducedBeforeItIsComplete) {
    Program program = full_program();
    first_on(body_of(program, 1, ActionKind::backward, 3, 0), Stream::dp).after.clear();
    expect_breaks(program, "ordered accesses", "in the gradients");
}

TEST(ValidateAccesses, OptimizerThatDoesNotWaitForTheBuckets) {
    Program program = full_program();
    action_of(program.classes[0], ActionKind::optimizer_step, -1).wait_count = 0;
    expect_breaks(program, "ordered accesses", "(optimizer_step)");
}

TEST(ValidateAccesses, ComputeThatDoesNotWaitForItsReduction) {
    Program program = full_program();
    Body& body = body_of(program, 0, ActionKind::forward, 0, 1);
    for (Instruction& instruction : body.instructions) {
        if (instruction.stream == Stream::compute) instruction.after.clear();
    }
    expect_breaks(program, "ordered accesses", "is not ordered after the write by");
}

/// The next backward adds to the bucket of which the shard is a part.
TEST(ValidateAccesses, ComputeThatDoesNotWaitForASumOverSetsOfShards) {
    Plan plan = samples::make_plan({.dp = 4, .data_parallel = DataParallel::zero1});
    plan.parallelism.dp_shard = 2;
    plan.parallelism.reduces_every_micro_batch = true;
    Program program = lower(plan);
    EXPECT_EQ(message_of(program), "");
    for (Body& body : program.bodies) {
        for (Instruction& instruction : body.instructions) {
            if (instruction.stream != Stream::compute) continue;
            std::erase_if(instruction.after,
                          [&](InstructionIndex i) { return body.instructions[i].stream == Stream::dp_replicate; });
        }
    }
    expect_breaks(program, "ordered accesses", "in the gradients");
}

TEST(ValidateAccesses, BodyThatEndsWithAReductionInFlight) {
    // The embedding of a model with rotary positions ends with its reduction; the next layer's body cannot wait for it.
    Program program = make_program({.model = "tiny-llama", .tp = 2});
    body_of(program, 0, ActionKind::forward, 0, 0).instructions.back().after.clear();
    expect_breaks(program, "ordered accesses", "segment 1 (layer 0)");
}

// fresh values

TEST(ValidateFreshValues, TransientOverwrittenWhileItIsNeeded) {
    Program program = full_program();
    Body& body = body_of(program, 0, ActionKind::backward, 0, 0);
    for (Slot& slot : body.slots) {
        if (slot.space == Space::transient) slot.offset = 0;
    }
    expect_breaks(program, "fresh values", "in the transients");
}

TEST(ValidateFreshValues, LayersThatShareAFrameRegion) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    SegmentList& list = ranks.segment_lists[action_of(ranks, ActionKind::forward, 0).segments];
    SegmentList& backward = ranks.segment_lists[action_of(ranks, ActionKind::backward, 0).segments];
    const std::int64_t base = list[1].activation_base;
    for (auto* segments : {&list, &backward}) {
        for (Segment& segment : *segments) {
            if (segment.layer == 1) segment.activation_base = base;
        }
    }
    expect_breaks(program, "fresh values", "in the activation frame finds what");
}

TEST(ValidateFreshValues, ReadOfBytesThatNobodyWrote) {
    Program program = full_program();
    Body& body = body_of(program, 0, ActionKind::forward, 0, 1);
    models::Operator& op = body.operators[0];
    std::swap(op.in[0], op.out[0]);
    expect_breaks(program, "fresh values", "nobody has written");
}

// buffers

TEST(ValidateBuffers, FrameBoundWhileInUse) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    const std::int32_t frame = action_of(ranks, ActionKind::forward, 0).activation_frame;
    ASSERT_NE(action_of(ranks, ActionKind::forward, 1).activation_frame, frame);
    action_of(ranks, ActionKind::forward, 1).activation_frame = frame;
    action_of(ranks, ActionKind::backward, 1).activation_frame = frame;
    expect_breaks(program, "buffers", "which micro-batch 0 in chunk 0 holds");
}

TEST(ValidateBuffers, BackwardWithAnotherFrame) {
    Program program = full_program();
    RankClass& ranks = program.classes[0];
    action_of(ranks, ActionKind::backward, 0).activation_frame ^= 1;
    expect_breaks(program, "buffers", "in chunk 0 holds");
}

TEST(ValidateBuffers, FrameThatNobodyUses) {
    Program program = full_program();
    ++program.classes[1].chunks[0].frame_count;
    expect_breaks(program, "buffers", "no action uses activation frame");
}

TEST(ValidateBuffers, BoundaryThatIsNeverReleased) {
    Program program = full_program();
    for (Action& action : program.classes[0].actions) {
        if (action.kind == ActionKind::backward) action.forward_boundary = 0;
    }
    expect_breaks(program, "buffers", "forward boundary");
}

// footprint

TEST(ValidateFootprint, ArenaIsTheSumOfItsParts) {
    Program program = full_program();
    ++program.classes[1].memory.arena;
    expect_breaks(program, "footprint", "arena");
}

TEST(ValidateFootprint, LivePeakIsInsideTheArena) {
    Program program = full_program();
    program.classes[0].memory.live_peak = program.classes[0].memory.arena + 1;
    expect_breaks(program, "footprint", "live_peak");
}

TEST(ValidateFootprint, GradientBytes) {
    Program program = full_program();
    program.classes[0].memory.gradients -= 4;
    program.classes[0].memory.arena -= 4;
    expect_breaks(program, "footprint", "gradients");
}

TEST(ValidateFootprint, TransientArenaOfTheLargestBody) {
    Program program = full_program();
    program.classes[0].transient_bytes += 64;
    program.classes[0].memory.transients_arena += 64;
    program.classes[0].memory.arena += 64;
    expect_breaks(program, "footprint", "transient_bytes");
}

// parameters

TEST(ValidateParameters, ElementsThatAreNotInTheModel) {
    Program program = full_program();
    Plan plan = *program.plan;
    plan.model.mlp_bias = !plan.model.mlp_bias;
    program.plan = std::make_shared<const Plan>(plan);
    expect_breaks(program, "parameters", "elements, not");
}

TEST(ValidateParameters, GapBetweenParameters) {
    Program program = full_program();
    ++program.classes[0].parameters[0].offset;
    expect_breaks(program, "parameters", "parameters: [1,");
}

TEST(ValidateParameters, ShardsThatDoNotCoverTheParameter) {
    Program program = full_program();
    for (Parameter& parameter : program.classes[0].parameters) {
        if (parameter.decl.shard == models::ShardDim::cols) parameter.decl.shard = models::ShardDim::replicated;
    }
    expect_breaks(program, "parameters", "the shards of");
}

TEST(ValidateParameters, BucketsThatLeaveGradientsOut) {
    Program program = full_program();
    Bucket& bucket = program.classes[0].buckets.back();
    bucket.shard_elements = --bucket.elements;
    expect_breaks(program, "parameters", "buckets end at");
}

TEST(ValidateParameters, BucketThatIsNotReduced) {
    Program program = full_program();
    auto& buckets = program.classes[0].buckets;
    ASSERT_GT(buckets.size(), 1U);
    ASSERT_EQ(buckets[0].range, buckets[1].range);
    buckets[0].elements += buckets[1].elements;
    buckets[0].shard_elements = buckets[0].elements;
    buckets.erase(buckets.begin() + 1);
    expect_breaks(program, "parameters", "are not those of its");
}

// bytes

TEST(ValidateBytes, TensorParallelMessages) {
    for (const bool sequence_parallel : {false, true}) {
        Program program = make_program({.tp = 2, .sequence_parallel = sequence_parallel});
        --first_on(body_of(program, 0, ActionKind::backward, 0, 1), Stream::tp).communication.elements;
        expect_breaks(program, "bytes", "on the axis tp");
    }
}

TEST(ValidateBytes, DataParallelMessages) {
    Program program = make_program({.dp = 2});
    first_on(body_of(program, 0, ActionKind::backward, 3, 0), Stream::dp).communication.dtype = DType::bf16;
    expect_breaks(program, "bytes", "all_reduce on the axis dp");
}

TEST(ValidateBytes, PipelineMessages) {
    Program program = make_program({.pp = 2});
    --body_of(program, 0, ActionKind::send_forward, 0, 0).instructions[0].communication.elements;
    --body_of(program, 1, ActionKind::recv_forward, 0, 0).instructions[0].communication.elements;
    expect_breaks(program, "bytes", "send on the axis pp_forward");
}

TEST(ValidateBytes, TiedEmbeddingMessages) {
    Program program = make_program({.pp = 2, .tied = true});
    for (RankClass& ranks : program.classes) {
        const Action& sync = action_of(ranks, ActionKind::sync_gradients, -1);
        const Segment& segment = ranks.segment_lists[sync.segments][0];
        --program.bodies[segment.body].instructions[0].communication.elements;
    }
    expect_breaks(program, "bytes", "all_reduce on the axis embedding");
}

// With any wrong number, validate() throws a BugError or accepts the program, but never crashes.

std::uint64_t next_random(std::uint64_t& state) {  // xorshift
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state;
}

TEST(ValidateFuzz, WrongNumbersNeverCrash) {
    // The second program has gathers and reductions of units, and their waits, in three chunks per rank.
    const std::array originals{full_program(), make_program({.dp = 2,
                                                             .tp = 2,
                                                             .pp = 2,
                                                             .sequence_parallel = true,
                                                             .schedule = Schedule::interleaved,
                                                             .micro_batches = 4,
                                                             .stage_layers = {0, 1, 1, 1, 1, 0},
                                                             .bf16 = true,
                                                             .chunks = 3,
                                                             .data_parallel = DataParallel::zero3})};
    std::uint64_t state = 20'240'601;
    const auto below = [&](std::size_t bound) { return static_cast<std::size_t>(next_random(state) % bound); };
    const auto any_of = [&](auto& list) -> auto& {
        return list.begin()[below(list.size())];
    };
    std::int32_t refused = 0;
    for (int round = 0; round < 3000; ++round) {
        Program program = any_of(originals);
        RankClass& ranks = any_of(program.classes);
        Action& action = any_of(ranks.actions);
        Segment& segment = any_of(any_of(ranks.segment_lists));
        Body& body = any_of(program.bodies);
        Instruction& instruction = any_of(body.instructions);
        Slot& slot = any_of(body.slots);
        const auto value = static_cast<std::int32_t>(below(40)) - 4;
        Wait& wait = any_of(ranks.waits);
        switch (below(30)) {
            case 0:
                action.segments = SegmentListId::of(value);
                break;
            case 1:
                action.activation_frame = value;
                break;
            case 2:
                action.input_boundary = value;
                break;
            case 3:
                action.forward_boundary = value;
                break;
            case 4:
                action.backward_boundary = value;
                break;
            case 5:
                action.first_wait = value;
                break;
            case 6:
                action.wait_count = value;
                break;
            case 7:
                action.micro_batch = value;
                break;
            case 8:
                segment.body = BodyId::of(value);
                break;
            case 9:
                segment.layer = value;
                break;
            case 10:
                segment.parameter_base[ParameterRange::dense] += value * 8;
                break;
            case 11:
                segment.activation_base += value * 8;
                break;
            case 12:
                segment.hidden_out_offset = value * 64;
                break;
            case 13:
                instruction.first_operator = OperatorIndex::of(value);
                break;
            case 14:
                instruction.operator_count = value;
                break;
            case 15:
                instruction.after = {InstructionIndex::of(value)};
                break;
            case 16:
                instruction.communication.in = models::SlotIndex::of(value);
                break;
            case 17:
                instruction.communication.elements = value;
                break;
            case 18:
                slot.offset += value;
                break;
            case 19:
                slot.bytes += value;
                break;
            case 20:
                wait.action = ActionIndex::of(value);
                break;
            case 21:
                wait.stream = static_cast<Stream>(below(kStreamCount));
                break;
            case 22:
                action.chunk = ChunkIndex::of(value);
                break;
            case 23:
                action.gradient_out = value;
                break;
            case 24:
                action.output_stays = !action.output_stays;
                break;
            case 25:
                segment.first_wait = value;
                break;
            case 26:
                segment.wait_count = value;
                break;
            case 27:
                segment.gradient_out_offset = value * 64;
                break;
            case 28:
                slot.range = static_cast<ParameterRange>(below(8));
                break;
            case 29:
                instruction.communication.axis = static_cast<GroupAxis>(below(kAxisCount));
                break;
        }
        refused += message_of(program).empty() ? 0 : 1;
    }
    EXPECT_GT(refused, 1200);
}

}  // namespace
}  // namespace orrery::program
