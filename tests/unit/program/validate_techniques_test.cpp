// The rules on techniques beyond basic data, tensor and pipeline parallelism: chunks, split backward passes, gathered
// units, staging buffers, copies, offloading, experts and context. Each rule is broken in one way.
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "sim/program/validate_rules.h"
#include "tests/unit/program/broken_programs.h"

namespace orrery::program {
namespace {

using samples::action_of;
using samples::body_of;
using samples::expect_breaks;
using samples::first_on;
using samples::make_plan;
using samples::make_program;
using samples::message_of;

Action& action_in(RankClass& ranks, ActionKind kind, ChunkIndex chunk, std::int32_t micro_batch) {
    const auto found = std::find_if(ranks.actions.begin(), ranks.actions.end(), [&](const Action& action) {
        return action.kind == kind && action.chunk == chunk && action.micro_batch == micro_batch;
    });
    EXPECT_NE(found, ranks.actions.end());
    return *found;
}
SegmentList& list_of(RankClass& ranks, const Action& action) {
    return ranks.segment_lists[action.segments];
}
Segment& segment_of(Program& program, ClassIndex c, const Action& action, Phase phase, std::size_t which = 0) {
    for (Segment& segment : list_of(program.classes[c], action)) {
        if (program.bodies[segment.body].phase == phase && which-- == 0) return segment;
    }
    ADD_FAILURE() << "no segment of the phase " << name_of(phase);
    return list_of(program.classes[c], action).front();
}
Body& body_at(Program& program, const Segment& segment) {
    return program.bodies[segment.body];
}

Program v_program() {  // two chunks per rank; the last rank holds the turn of the V
    return make_program({.tp = 2, .pp = 2, .schedule = Schedule::zb_v, .micro_batches = 4, .chunks = 2});
}
Program unit_program(Schedule schedule = Schedule::one_f_one_b) {
    return make_program({.dp = 2,
                         .pp = 2,
                         .schedule = schedule,
                         .stage_layers = {2, 2},
                         .bf16 = true,
                         .data_parallel = DataParallel::zero3});
}

// counts

TEST(ValidateChunks, AcceptsEverySchedule) {
    for (int i = 0; i < kScheduleCount; ++i) {
        const auto schedule = static_cast<Schedule>(i);
        const bool two = schedule == Schedule::interleaved || schedule >= Schedule::zb_v;
        const Program program = make_program(
            {.dp = 2, .pp = 2, .schedule = schedule, .micro_batches = 8, .tied = true, .chunks = two ? 2 : 1});
        EXPECT_EQ(message_of(program), "") << name_of(schedule);
    }
}

TEST(ValidateChunks, ChunkOfAnotherVirtualStage) {
    Program program = v_program();
    std::swap(program.classes[0].chunks[0].virtual_stage, program.classes[0].chunks[1].virtual_stage);
    expect_breaks(program, "counts", "chunk 0: its blocks are not those");
}

TEST(ValidateChunks, ChunkThatTheRankDoesNotHave) {
    Program program = v_program();
    action_in(program.classes[0], ActionKind::forward, 1, 2).chunk = 2;
    expect_breaks(program, "indices", "chunk 2 of 2");
}

TEST(ValidateChunks, TransferInsideARank) {
    Program program = v_program();
    Action& send = action_in(program.classes[0], ActionKind::send_forward, 0, 0);
    send.kind = ActionKind::send_backward;
    expect_breaks(program, "counts", "no such neighbour");
}

TEST(ValidateChunks, MicroBatchOfTheOtherDirection) {
    Program program = make_program({.pp = 2, .schedule = Schedule::dualpipe, .micro_batches = 8, .chunks = 2});
    for (Action& action : program.classes[0].actions) {
        if (action.chunk == 1 && action.micro_batch == 7) action.micro_batch = 0;
    }
    expect_breaks(program, "counts", "its micro-batch does not pass this chunk");
}

TEST(ValidateChunks, WeightGradientBeforeInputGradient) {
    Program program = v_program();
    RankClass& ranks = program.classes[0];
    Action& input = action_in(ranks, ActionKind::backward_input, 0, 1);
    Action& weight = action_in(ranks, ActionKind::backward_weight, 0, 1);
    std::swap(input, weight);
    for (Action& action : ranks.actions) action.wait_count = 0;
    expect_breaks(program, "counts", "it is issued before action");
}

TEST(ValidateChunks, PassOfAnotherKind) {
    Program program = v_program();
    RankClass& ranks = program.classes[0];
    action_in(ranks, ActionKind::backward_weight, 0, 0).segments =
        action_in(ranks, ActionKind::backward_input, 0, 0).segments;
    EXPECT_NE(message_of(program), "");
}

// indices

TEST(ValidateSegmentWaits, ForALaterSegment) {
    Program program = unit_program();
    Segment& segment = segment_of(program, 0, action_of(program.classes[0], ActionKind::forward, 0), Phase::forward, 1);
    ASSERT_GT(segment.wait_count, 0);
    program.classes[0].segment_waits[static_cast<std::size_t>(segment.first_wait)].segment = 1000;
    expect_breaks(program, "indices", "not an earlier one of the list");
}

TEST(ValidateSegmentWaits, ForAnUnusedStream) {
    Program program = unit_program();
    Segment& segment = segment_of(program, 0, action_of(program.classes[0], ActionKind::forward, 0), Phase::forward, 1);
    program.classes[0].segment_waits[static_cast<std::size_t>(segment.first_wait)].stream = Stream::copy_out;
    expect_breaks(program, "indices", "puts nothing on the stream copy_out");
}

TEST(ValidateIndices, AxisOnAnotherCommunicatorsStream) {
    Program program = unit_program();
    const Action& forward = action_of(program.classes[0], ActionKind::forward, 0);
    Body& body = body_at(program, segment_of(program, 0, forward, Phase::gather));
    first_on(body, Stream::dp_gather).communication.axis = GroupAxis::tp;
    expect_breaks(program, "indices", "of the axis tp on the stream dp_gather");
}

// buffers

TEST(ValidateBuffers, GradientThatIsNotHandedOver) {
    Program program = v_program();
    RankClass& ranks = program.classes[1];  // both sides of the turn
    Action& input = action_in(ranks, ActionKind::backward_input, 0, 0);
    input.backward_boundary = (input.backward_boundary + 1) % ranks.backward_boundary_count;
    expect_breaks(program, "buffers", "it binds backward boundary");
}

TEST(ValidateBuffers, OutputThatDoesNotStay) {
    Program program = v_program();
    action_in(program.classes[1], ActionKind::forward, 0, 1).output_stays = false;
    expect_breaks(program, "buffers", "");
}

TEST(ValidateBuffers, ChunksHaveSeparateFrames) {
    Program program = v_program();
    RankClass& ranks = program.classes[0];
    ++ranks.chunks[1].frame_count;
    expect_breaks(program, "buffers", "no action uses activation frame");
}

// ordered accesses and fresh values

TEST(ValidateUnits, ComputationThatDoesNotWaitForItsUnit) {
    Program program = unit_program();
    Segment& segment = segment_of(program, 0, action_of(program.classes[0], ActionKind::forward, 0), Phase::forward, 1);
    segment.wait_count = 0;
    expect_breaks(program, "ordered accesses", "in the parameters is not ordered after the write");
}

TEST(ValidateUnits, UnitThatIsNotGathered) {
    Program program = unit_program();
    RankClass& ranks = program.classes[0];
    const Action forward = action_of(ranks, ActionKind::forward, 0);
    Segment& gathered = segment_of(program, 0, forward, Phase::gather, 1);
    const Segment& other = segment_of(program, 0, forward, Phase::gather, 2);
    gathered.shard_base = other.shard_base;
    expect_breaks(program, "fresh values", "in the parameters finds what");
}

TEST(ValidateUnits, GradientsReducedAsThoseOfAnotherUnit) {
    Program program = unit_program();
    const Action backward = action_of(program.classes[0], ActionKind::backward, 0);
    Segment& one = segment_of(program, 0, backward, Phase::reduce, 0);
    Segment& other = segment_of(program, 0, backward, Phase::reduce, 1);
    std::swap(one.shard_base, other.shard_base);
    expect_breaks(program, "fresh values", "in the gradients finds what");
}

TEST(ValidateStaging, BucketCopiedBackToAnotherPlace) {
    Plan plan = make_plan({.dp = 2, .bf16 = true});
    plan.training.precision.reduction = DType::bf16;
    Program program = lower(plan);
    ASSERT_EQ(message_of(program), "");
    const Action sync = action_of(program.classes[0], ActionKind::sync_gradients, -1);
    auto& list = list_of(program.classes[0], sync);
    for (Segment& segment : list) segment.gradient_base.fill(8);
    EXPECT_NE(message_of(program), "");
    for (Segment& segment : list) segment.gradient_base.fill(0);
    Body& first = body_at(program, list.front());
    for (Slot& slot : first.slots) slot.offset += slot.space == Space::gradient ? 64 : 0;
    expect_breaks(program, "fresh values", "in the staging buffers finds what");
}

TEST(ValidateWeightCopies, OfAnotherLayer) {
    Plan plan = make_plan({.bf16 = true});
    plan.training.precision.fp8 = Fp8Scaling::delayed;
    Program program = lower(plan);
    ASSERT_EQ(message_of(program), "");
    const Action forward = action_of(program.classes[0], ActionKind::forward, 1);
    Segment& one = segment_of(program, 0, forward, Phase::forward, 1);
    Segment& other = segment_of(program, 0, forward, Phase::forward, 2);
    std::swap(one.weight_copy_base, other.weight_copy_base);
    expect_breaks(program, "fresh values", "in the weight copies finds what");
}

Program offloading_program() {
    Plan plan = make_plan({.model = "tiny-llama", .bf16 = true});
    plan.training.memory.offload_layers = 3;
    return lower(plan);
}

TEST(ValidateOffload, LayerCopiedBackFromAnotherPlace) {
    Program program = offloading_program();
    ASSERT_EQ(message_of(program), "");
    const Action backward = action_of(program.classes[0], ActionKind::backward, 1);
    Segment& one = segment_of(program, 0, backward, Phase::offload, 0);
    Segment& other = segment_of(program, 0, backward, Phase::offload, 1);
    std::swap(one.host_base, other.host_base);
    expect_breaks(program, "fresh values", "in the host frame finds what");
}

TEST(ValidateOffload, LayerCopiedOutFromAnotherPlace) {
    Program program = offloading_program();
    const Action forward = action_of(program.classes[0], ActionKind::forward, 1);
    Segment& one = segment_of(program, 0, forward, Phase::offload, 0);
    Segment& other = segment_of(program, 0, forward, Phase::offload, 1);
    std::swap(one.activation_base, other.activation_base);
    expect_breaks(program, "fresh values", "in the offload window finds bytes that nobody has written");
}

TEST(ValidateOffload, CopyThatNobodyWaitsFor) {
    Program program = offloading_program();
    for (Segment& segment : list_of(program.classes[0], action_of(program.classes[0], ActionKind::backward, 1))) {
        segment.wait_count = 0;
    }
    expect_breaks(program, "ordered accesses", "in the offload window");
}

// collective order and progress

TEST(ValidateMirrors, BucketsInAnotherOrder) {
    Program program = make_program({.pp = 2, .schedule = Schedule::dualpipe, .micro_batches = 8, .chunks = 2});
    ASSERT_EQ(message_of(program), "");
    auto& list = list_of(program.classes[1], action_of(program.classes[1], ActionKind::sync_gradients, -1));
    std::reverse(list.begin(), list.end());
    for (Segment& segment : list) segment.wait_count = 0;
    expect_breaks(program, "collective order", "on the axis dp is a");
}

TEST(ValidateProgress, NormThatOneStageDoesNotCompute) {
    Plan plan = make_plan({.pp = 2});
    plan.training.optimizer.clip_norm = 1;
    Program program = lower(plan);
    ASSERT_EQ(message_of(program), "");
    auto& list = list_of(program.classes[1], action_of(program.classes[1], ActionKind::optimizer_step, -1));
    list.erase(list.begin());
    for (Segment& segment : list) segment.wait_count = 0;
    expect_breaks(program, "collective order", "on the axis model");
}

// parameters, footprint and bytes

TEST(ValidateShards, UnequalShards) {
    Program program = make_program({.dp = 3, .data_parallel = DataParallel::zero1});
    ASSERT_EQ(message_of(program), "");
    ++program.classes[0].buckets.front().shard_elements;
    expect_breaks(program, "parameters", "is cut into shards of");
}

TEST(ValidateShards, MorePaddingThanNeeded) {
    Program program = make_program({.dp = 3, .data_parallel = DataParallel::zero1});
    program.classes[0].parameters.front().padding += 3;
    program.classes[0].parameter_elements += 3;
    program.classes[0].range_end[program.classes[0].parameters.front().range] += 3;
    expect_breaks(program, "parameters", "is padded by");
}

// Megatron-Core pads a bucket to lcm(ranks, 128): with 2 ranks to 128 and not to 256. Nothing is padded by more.
TEST(ValidateShards, PaddingIsToACommonMultiple) {
    for (const auto& [dp, multiple] : {std::pair<std::int64_t, std::int64_t>{2, 128}, {3, 384}}) {
        Plan plan = make_plan({.dp = dp, .data_parallel = DataParallel::zero1});
        plan.implementation.data_parallel.shard_alignment_elements = 128;
        const Program program = lower(plan);
        EXPECT_EQ(message_of(program), "");
        for (const Bucket& bucket : program.classes[0].buckets) EXPECT_EQ(bucket.elements % multiple, 0);
        std::int64_t padding = 0, elements = 0;
        for (const Parameter& parameter : program.classes[0].parameters) {
            EXPECT_LT(parameter.padding, multiple);
            padding += parameter.padding;
            elements += parameter.elements;
        }
        EXPECT_LE(padding, elements / 1024 + multiple * static_cast<std::int64_t>(plan.model.layers + 2));
    }
}

// The stages that hold a copy of a tied embedding sum the gradients of its shards, so they must shard it equally.
TEST(ValidateShards, CopiesOfATiedEmbeddingAreShardedEqually) {
    Plan plan = make_plan({.dp = 3, .pp = 2, .data_parallel = DataParallel::zero1});
    plan.model.tied_embeddings = true;
    const Program program = lower(plan);
    std::vector<std::int64_t> shard_elements;
    for (const RankClass& stage : program.classes) {
        for (const Parameter& parameter : stage.parameters) {
            if (parameter.name != "embedding.weight") continue;
            for (const Bucket& bucket : stage.buckets) {
                if (bucket.offset != parameter.offset) continue;
                EXPECT_EQ(bucket.elements, parameter.elements + parameter.padding);
                shard_elements.push_back(bucket.shard_elements);
            }
        }
    }
    ASSERT_EQ(shard_elements.size(), 2U);
    EXPECT_EQ(shard_elements[0], shard_elements[1]);
}

TEST(ValidateShards, StatesOfAllParameters) {
    Program program = make_program({.dp = 2, .data_parallel = DataParallel::zero2});
    ASSERT_EQ(message_of(program), "");
    program.classes[0].optimizer_elements *= 2;
    expect_breaks(program, "footprint", "optimizer_elements");
}

TEST(ValidateShards, WindowOfUnits) {
    Program program = unit_program();
    program.classes[0].parameter_buffer_elements += 64;
    expect_breaks(program, "footprint", "parameter_buffer_elements");
}

/// The last stage begins a collective over the stages before it exchanges tokens, on which the first stage's gradient
/// depends. So a vocabulary over the stages must not share NCCL's buffers with experts, as if it were none.
TEST(ValidateProgress, CollectivesThatShareBuffersWaitForEachOther) {
    Plan plan = make_plan({.dp = 2, .pp = 2, .ep = 2});
    plan.model.moe = {.expert_count = 4, .top_k = 2, .expert_ffn_hidden = 64};
    plan.model.mlp_bias = false;
    plan.parallelism.vocabulary_parallel = VocabularyParallel::one_barrier;
    plan.cluster.device.host_runs_compute = false;
    Program program = lower(plan);
    ASSERT_EQ(message_of(program), "");
    plan.parallelism.vocabulary_parallel = VocabularyParallel::none;
    program.plan = std::make_shared<const Plan>(plan);
    const rules::Traces traces = rules::traces_of(program);
    try {
        rules::check_progress(program, traces);
        FAIL() << "no deadlock was found";
    } catch (const BugError& error) {
        EXPECT_NE(std::string(error.what()).find("waits for an earlier collective, whose NCCL buffers it shares"),
                  std::string::npos)
            << error.what();
    }
    plan.cluster.device.host_runs_compute = true;  // ranks on CPU cores have no such buffers
    program.plan = std::make_shared<const Plan>(plan);
    EXPECT_NO_THROW(rules::check_progress(program, traces));
}

TEST(ValidateShards, ExpertsOutsideTheirRange) {
    Plan plan = make_plan({.dp = 2, .ep = 2});
    plan.model.moe = {.expert_count = 4, .top_k = 2, .expert_ffn_hidden = 64};
    plan.model.mlp_bias = false;
    Program program = lower(plan);
    ASSERT_EQ(message_of(program), "");
    for (Parameter& parameter : program.classes[0].parameters) {
        if (parameter.decl.expert) parameter.decl.shard = models::ShardDim::replicated;
        parameter.decl.expert = false;
    }
    expect_breaks(program, "parameters", "is in the wrong range");
}

TEST(ValidateBytes, ExpertMessages) {
    Plan plan = make_plan({.dp = 2, .ep = 2});
    plan.model.moe = {.expert_count = 4, .top_k = 2, .expert_ffn_hidden = 64};
    plan.model.mlp_bias = false;
    Program program = lower(plan);
    --first_on(body_of(program, 0, ActionKind::forward, 0, 1), Stream::ep).communication.elements;
    expect_breaks(program, "bytes", "all_to_all on the axis ep");
}

/// Whether tokens travel once is part of the closed form, and so is their routing.
TEST(ValidateBytes, TokensThatTravelOnce) {
    Plan plan = make_plan({.dp = 2, .ep = 2});
    plan.model.moe = {.expert_count = 4, .top_k = 2, .expert_ffn_hidden = 64, .expert_groups = 2, .top_k_groups = 1};
    plan.model.mlp_bias = false;
    plan.implementation.experts.sends_tokens_once = true;
    plan.implementation.executable = false;
    const Program program = lower(plan);
    ASSERT_EQ(message_of(program), "");
    int once = 0;
    for (const Body& body : program.bodies) {
        for (const Instruction& instruction : body.instructions) {
            const Communication& comm = instruction.communication;
            if (!instruction.is_communication || !comm.tokens_once) continue;
            ++once;
            EXPECT_EQ(comm.axis, GroupAxis::ep);
            EXPECT_EQ(comm.kind, CommKind::all_to_all);
            EXPECT_EQ(*comm.tokens_once, (models::TokenRouting{.experts = 4, .top_k = 2, .groups = 2}));
        }
    }
    EXPECT_GT(once, 0);
    const auto change = [&](auto&& edit) {
        Program broken = program;
        for (Instruction& instruction : body_of(broken, 0, ActionKind::forward, 0, 1).instructions) {
            if (instruction.communication.tokens_once) edit(instruction.communication.tokens_once);
        }
        return broken;
    };
    expect_breaks(change([](auto& tokens) { tokens.reset(); }), "bytes", "all_to_all on the axis ep");
    expect_breaks(change([](auto& tokens) { tokens->top_k_groups = 2; }), "bytes",
                  "all_to_all on the axis ep with tokens that travel once");
}

TEST(ValidateBytes, ContextMessages) {
    for (const ContextParallel kind : {ContextParallel::ring, ContextParallel::all_gather, ContextParallel::ulysses}) {
        Plan plan = make_plan({.cp = 2});
        plan.parallelism.context_parallel = kind;
        Program program = lower(plan);
        ASSERT_EQ(message_of(program), "");
        --first_on(body_of(program, 0, ActionKind::forward, 0, 1), Stream::cp).communication.elements;
        expect_breaks(program, "bytes", "on the axis cp");
    }
}

TEST(ValidateBytes, SetsOfShards) {
    Plan plan = make_plan({.dp = 4, .data_parallel = DataParallel::zero3});
    plan.parallelism.dp_shard = 2;
    Program program = lower(plan);
    ASSERT_EQ(message_of(program), "");
    // Once per step, when the shards hold the sum over all micro-batches.
    std::int64_t sums = 0;
    for (const StreamVolume& volume : volumes(program, 0)) {
        if (volume.stream == Stream::dp_replicate) sums += volume.operations;
    }
    EXPECT_EQ(sums, static_cast<std::int64_t>(program.classes[0].buckets.size()));
    const auto last = static_cast<std::int32_t>(plan.micro_batches() - 1);
    ASSERT_GT(last, 0);
    const Action backward = action_of(program.classes[0], ActionKind::backward, last);
    Body& body = body_at(program, segment_of(program, 0, backward, Phase::reduce));
    --first_on(body, Stream::dp_replicate).communication.elements;
    expect_breaks(program, "bytes", "all_reduce on the axis dp_replicate");
}

/// "F0 f B0 b": computations of the first class and, in lower case, its sends.
std::string computations_and_sends(const Program& program) {
    std::string text;
    for (const Action& action : program.classes.front().actions) {
        switch (action.kind) {
            case ActionKind::forward:
                text += " F" + std::to_string(action.chunk.value());
                break;
            case ActionKind::backward:
                text += " B" + std::to_string(action.chunk.value());
                break;
            case ActionKind::send_forward:
                text += " f";
                break;
            case ActionKind::send_backward:
                text += " b";
                break;
            default:
                break;
        }
    }
    return text;
}

// Megatron's interleaved schedule without overlap sends in one call after each pair of a forward and a backward.
TEST(Interleaved, SendsAfterPairsIfTransfersAreFused) {
    Plan plan = samples::make_plan({.pp = 2, .schedule = Schedule::interleaved, .micro_batches = 4, .chunks = 2});
    EXPECT_NE(computations_and_sends(lower(plan)).find("F0 f B1 b F0 f B1"), std::string::npos);
    plan.implementation.pipeline.posts_interleaved_receives_ahead = false;
    for (const std::int64_t micro_batches : {2, 4, 6}) {
        plan.training.global_batch_size = plan.training.micro_batch_size * micro_batches;
        const Program program = lower(plan);
        EXPECT_EQ(message_of(program), "") << micro_batches;
        const bool pairs = computations_and_sends(program).find("F0 B1 f b F0 B1 f b") != std::string::npos;
        EXPECT_EQ(pairs, micro_batches > 2) << micro_batches << ":" << computations_and_sends(program);
    }
}

/// Bytes that the update reads and writes for each element.
double update_traffic(const Plan& plan) {
    const Program program = lower(plan);
    EXPECT_EQ(message_of(program), "");
    for (const Body& body : program.bodies) {
        for (const models::Operator& op : body.operators) {
            if (op.is_update()) return (op.bytes_read + op.bytes_written) / static_cast<double>(op.elements);
        }
    }
    return 0;
}

TEST(Optimizer, Bf16MomentsTakeHalfTheMemoryAndTraffic) {
    for (const bool offloaded : {false, true}) {
        for (const DataParallel kind : {DataParallel::ddp, DataParallel::zero1, DataParallel::zero3}) {
            Plan plan = samples::make_plan({.dp = 2, .bf16 = true, .data_parallel = kind});
            plan.training.memory.offload_optimizer = offloaded;
            const double traffic = update_traffic(plan);
            const auto states = [&] {
                const RankClass ranks = lower(plan).classes.front();
                return (offloaded ? ranks.host_bytes : ranks.memory.optimizer_states) / ranks.optimizer_elements;
            };
            const std::int64_t before = states();
            EXPECT_EQ(before, offloaded ? 12 + 4 + 2 : 12);  // on the host, gradients and parameters too
            plan.training.precision.moments = DType::bf16;
            EXPECT_EQ(states(), before - 4);
            EXPECT_EQ(update_traffic(plan), traffic - 2 * 4);  // both moments are read and written
        }
    }
}

// Post-validation of the Zero Bubble paper: the update does not wait for the other stages.
TEST(Optimizer, MayUpdateBeforeTheNormIsReduced) {
    for (const Schedule schedule : {Schedule::one_f_one_b, Schedule::zb_h1}) {
        Plan plan = samples::make_plan({.dp = 2, .pp = 2, .schedule = schedule, .bf16 = true});
        plan.training.optimizer.clip_norm = 1;
        const auto places = [&] {  // positions of the update and of the reduction among the optimizer's segments
            const Program program = lower(plan);
            EXPECT_EQ(message_of(program), "");
            const RankClass& ranks = program.classes.back();
            const SegmentList& segments = ranks.segment_lists[ranks.actions.back().segments];
            std::pair<SegmentIndex, SegmentIndex> found{segments.next_index(), segments.next_index()};
            for (const SegmentIndex s : segments.indices()) {
                const Body& body = program.bodies[segments[s].body];
                for (const models::Operator& op : body.operators) {
                    if (op.kind == models::OpKind::adamw) found.first = s;
                }
                for (const Instruction& one : body.instructions) {
                    if (one.name.starts_with("gradient.norm") && one.is_communication) found.second = s;
                }
            }
            return found;
        };
        const auto before = places();
        EXPECT_LT(before.second, before.first);
        plan.training.optimizer.post_validation = true;
        const auto after = places();
        EXPECT_LT(after.first, after.second);
    }
}

}  // namespace
}  // namespace orrery::program
