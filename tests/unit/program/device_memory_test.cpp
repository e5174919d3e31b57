#include "sim/program/device_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/units.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::program {
namespace {

/// A plan for two nodes of 8 devices.
Plan gpu_plan(const samples::Sample& sample) {
    Plan plan = samples::make_plan(sample);
    plan.cluster.devices_per_node = 8;
    plan.cluster.nodes = 2;
    plan.cluster.device.compute_capability = 80;
    plan.cluster.device.context_gib.value = 1.5;
    return plan;
}

DeviceMemory first_stage(const Plan& plan) {
    const Program program = lower(plan);
    return device_memory(program, program.classes.front());
}

TEST(DeviceMemory, KindsContainEachOther) {
    Plan plan = gpu_plan({.tp = 2, .implementation = "megatron-core", .bf16 = true});
    plan.implementation.memory.runtime_gib.value = 0.25;
    const Program program = lower(plan);
    const DeviceMemory memory = device_memory(program, program.classes[0]);
    EXPECT_EQ(memory.tensors, program.classes[0].memory.live_peak);
    EXPECT_EQ(memory.allocated(), memory.tensors + memory.workspaces);
    EXPECT_NEAR(static_cast<double>(memory.reserved()), 1.068 * static_cast<double>(memory.allocated()), 1);
    EXPECT_EQ(memory.context, std::int64_t{3} << 29);
    EXPECT_EQ(memory.runtime, std::int64_t{1} << 28);
    EXPECT_EQ(memory.in_use(), memory.reserved() + memory.context + memory.communicators + memory.runtime);
    EXPECT_EQ(memory.workspaces, 8'519'680);
    plan.cluster.device.compute_capability = 90;
    EXPECT_EQ(first_stage(plan).workspaces, 32 << 20);
}

TEST(DeviceMemory, OnCpusItIsTheArenaAndTheContext) {
    Plan plan = gpu_plan({.dp = 2});
    plan.cluster.device.host_runs_compute = true;
    const Program program = lower(plan);
    const DeviceMemory memory = device_memory(program, program.classes[0]);
    EXPECT_EQ(memory, (DeviceMemory{.tensors = program.classes[0].memory.allocated(true), .context = memory.context}));
}

TEST(DeviceMemory, OfOneBlockIsTheArena) {
    const Program program = lower(gpu_plan({.pp = 2}));
    const DeviceMemory memory = device_memory(program, program.classes[0]);
    EXPECT_EQ(memory.tensors + memory.cached, program.classes[0].memory.arena);
}

TEST(DeviceMemory, CommunicatorsDependOnMembersAndNodes) {
    const auto bytes = [](const samples::Sample& sample) { return first_stage(gpu_plan(sample)).communicators; };
    // The sum of 4 MiB, 4.6875 MiB and 0.5 MiB.
    EXPECT_EQ(kNcclConnectionBytes, 9'633'792);
    EXPECT_EQ(bytes({}), 0);
    const std::int64_t in_node = 3 * 16 * kNcclConnectionBytes;
    EXPECT_EQ(bytes({.dp = 2}), in_node);
    EXPECT_EQ(bytes({.dp = 16}), in_node);
    // One member per node: four channels, with buffers at both ends.
    Plan plan = gpu_plan({.dp = 2});
    plan.cluster.devices_per_node = 1;
    EXPECT_EQ(first_stage(plan).communicators, 2 * 3 * 4 * kNcclConnectionBytes);
    plan = gpu_plan({.dp = 2});
    plan.cluster.device.nccl.emplace().channels = 24;
    EXPECT_EQ(first_stage(plan).communicators, 3 * 24 * kNcclConnectionBytes);
    EXPECT_GT(bytes({.tp = 2, .pp = 2}), bytes({.tp = 2}));
}

/// The executor splits the communicator of all ranks, and the parts share its buffers; others have one for each axis.
TEST(DeviceMemory, PartsOfTheExecutorsCommunicatorShareBuffers) {
    const std::int64_t in_node = 3 * 16 * kNcclConnectionBytes;
    const auto bytes = [](const char* implementation, std::int64_t pp) {
        return first_stage(gpu_plan({.dp = 2, .tp = 2, .pp = pp, .implementation = implementation, .bf16 = true}))
            .communicators;
    };
    EXPECT_EQ(bytes("orrery", 1), in_node);
    EXPECT_EQ(bytes("megatron-core", 1), 2 * in_node);
    // Two directions of transfers between two stages.
    EXPECT_EQ(bytes("orrery", 2), in_node + 2 * 2 * kNcclConnectionBytes);
}

/// Its collectives do not hold up those of other parts. If the stages are all ranks, there are no others.
TEST(DeviceMemory, AVocabularyOverStagesHasBuffersOfItsOwn) {
    for (const std::int64_t dp : {1, 2}) {
        Plan plan = gpu_plan({.dp = dp, .pp = 2, .bf16 = true});
        const std::int64_t before = first_stage(plan).communicators;
        plan.parallelism.vocabulary_parallel = VocabularyParallel::two_barriers;
        EXPECT_EQ(first_stage(plan).communicators - before, dp == 1 ? 0 : 3 * 16 * kNcclConnectionBytes) << dp;
    }
}

std::int64_t framework_bytes(const Plan& plan) {
    return lower(plan).classes[0].memory.framework;
}

TEST(FrameworkMemory, IsZeroForOrreryItself) {
    EXPECT_EQ(framework_bytes(gpu_plan({.dp = 2, .bf16 = true})), 0);
}

/// The four GEMMs of tiny-gpt's blocks have different shapes; the number of blocks does not matter.
TEST(FrameworkMemory, OneWeightGradientStandInPerShape) {
    Plan plan = gpu_plan({.bf16 = true});
    const std::int64_t before = lower(plan).classes[0].memory.live_peak;
    plan.implementation.memory.keeps_weight_gradient_stand_ins = true;
    const std::int64_t h = plan.model.hidden, f = plan.model.ffn_hidden;
    const std::int64_t qkv = h + 2 * plan.model.kv_heads * plan.model.head_dim;
    EXPECT_EQ(framework_bytes(plan), 2 * (qkv * h + h * h + 2 * f * h));
    EXPECT_GE(lower(plan).classes[0].memory.live_peak, before + framework_bytes(plan));
    plan.implementation.kernels.fused_weight_gradient = false;  // the GEMM then allocates its own gradient
    EXPECT_EQ(framework_bytes(plan), 0);
}

TEST(FrameworkMemory, CountsCopiesBuffersAndOutputs) {
    Plan plan = gpu_plan({.dp = 2, .pp = 2, .bf16 = true, .data_parallel = DataParallel::zero1});
    plan.training.precision.gradient = plan.training.precision.reduction = DType::bf16;
    const Program program = lower(plan);
    const RankClass& ranks = program.classes[0];
    models::MemoryChoices& choices = plan.implementation.memory;
    choices.copies_gradients_for_update = true;
    EXPECT_EQ(framework_bytes(plan), 4 * ranks.optimizer_elements);
    EXPECT_EQ(2 * ranks.optimizer_elements, ranks.parameter_elements);
    plan.parallelism.data_parallel = DataParallel::ddp;
    EXPECT_EQ(framework_bytes(plan), 0);  // allocated in the update
    choices = {.keeps_gradients_beside_sums = true};
    EXPECT_EQ(framework_bytes(plan), 0);  // there are no separate sums
    plan.training.precision.gradient = DType::fp32;
    EXPECT_EQ(framework_bytes(plan), 2 * ranks.parameter_elements);
    choices = {.keeps_stage_outputs = true};
    EXPECT_EQ(framework_bytes(plan), ranks.chunks[0].frame_count * ranks.boundary_bytes);
    choices = {.buffer_elements = 100};
    EXPECT_EQ(framework_bytes(plan), 200);
    choices = {.buffer_elements = std::int64_t{1} << 40};
    EXPECT_EQ(framework_bytes(plan), 2 * lower(plan).classes[0].parameter_elements);
    plan.parallelism.dp = 1;
    plan.training.global_batch_size /= 2;
    EXPECT_EQ(framework_bytes(plan), 0);
}

/// Outputs that are sent in parts are kept in parts; with sequence parallelism each rank has only a part anyway.
TEST(FrameworkMemory, OutputsSentInPartsAreKeptInParts) {
    Plan plan = gpu_plan({.tp = 2, .pp = 2, .bf16 = true});
    plan.implementation.memory.keeps_stage_outputs = true;
    plan.implementation.pipeline.scatters_transfers = false;
    const std::int64_t whole = framework_bytes(plan);
    EXPECT_GT(whole, 0);
    plan.implementation.pipeline.scatters_transfers = true;
    EXPECT_EQ(2 * framework_bytes(plan), whole);
    plan.parallelism.sequence_parallel = true;
    EXPECT_EQ(2 * framework_bytes(plan), whole);
}

/// On the stage with the head, if the loss converts logits to fp32, from the second micro-batch on.
TEST(FrameworkMemory, LogitsOfThePreviousMicroBatch) {
    Plan plan = gpu_plan({.pp = 2, .bf16 = true});
    const auto of_last = [&] { return lower(plan).classes[1].memory.framework; };
    plan.implementation.memory.keeps_previous_logits = true;
    EXPECT_EQ(of_last(), 0);
    plan.implementation.kernels.fused_cross_entropy = false;
    const std::int64_t tokens = plan.training.micro_batch_size * plan.training.sequence_length;
    EXPECT_EQ(of_last(), 2 * tokens * models::padded_vocabulary(plan.model, plan.implementation.vocab_multiple, 1));
    EXPECT_EQ(framework_bytes(plan), 0);
    plan.training.global_batch_size = plan.training.micro_batch_size;
    ASSERT_EQ(plan.micro_batches(), 1);
    EXPECT_EQ(of_last(), 0);
}

TEST(DeviceMemory, CopiesForReductionsAtTheEndReuseActivationMemory) {
    Plan plan = gpu_plan({.dp = 2, .implementation = "aa-scaling", .bf16 = true});
    ASSERT_FALSE(plan.implementation.data_parallel.overlaps_backward);
    const Program program = lower(plan);
    const MemoryFootprint& memory = program.classes[0].memory;
    ASSERT_GT(memory.reductions, 0);
    ASSERT_GT(memory.live_peak - memory.reductions, memory.fixed());
    EXPECT_EQ(first_stage(plan).tensors, memory.live_peak - memory.reductions);
    // If the buckets are larger than all activations, only the buckets count.
    plan.training.sequence_length = plan.training.micro_batch_size = 1;
    plan.training.global_batch_size = 2;
    const MemoryFootprint small = lower(plan).classes[0].memory;
    ASSERT_LT(small.live_peak - small.reductions, small.fixed());
    EXPECT_EQ(first_stage(plan).tensors, small.fixed());
    // Reductions that overlap with the backward pass need their copies besides the activations.
    plan.implementation.data_parallel.overlaps_backward = true;
    EXPECT_EQ(first_stage(plan).tensors, lower(plan).classes[0].memory.live_peak);
}

/// Instead of whole units a device holds the largest weights: two gathered ones, one gradient, one sum.
TEST(DeviceMemory, WindowsMayHoldTensorsInsteadOfUnits) {
    Plan plan = gpu_plan({.dp = 2, .bf16 = true, .data_parallel = DataParallel::zero3});
    plan.implementation.data_parallel.buckets_by_layer = true;
    const Program program = lower(plan);
    const RankClass& ranks = program.classes[0];
    std::int64_t largest = 0;
    for (const Parameter& parameter : ranks.parameters) largest = std::max(largest, parameter.elements);
    const std::int64_t units = first_stage(plan).tensors;
    plan.implementation.memory.windows_hold_tensors = true;
    const std::int64_t tensors = first_stage(plan).tensors;
    EXPECT_LT(tensors, units);
    const MemoryFootprint& memory = ranks.memory;
    const std::int64_t windows =
        memory.gathered + memory.gradients + memory.reductions -
        (ranks.gradient_shards_alias ? 0 : ranks.shard_elements * size_of(plan.training.precision.gradient));
    EXPECT_GE(tensors, units - windows);
    EXPECT_LE(tensors, units - memory.gathered + 2 * 2 * largest);
    plan.parallelism.data_parallel = DataParallel::zero1;  // there are no windows
    const std::int64_t whole = first_stage(plan).tensors;
    plan.implementation.memory.windows_hold_tensors = false;
    EXPECT_EQ(first_stage(plan).tensors, whole);
}

/// One byte per token and element of the two residual sums of a block, until the backward pass.
TEST(DropoutMasks, MayBeKeptWithoutDropout) {
    Plan plan = gpu_plan({.bf16 = true});
    const auto frame = [&] {
        const Program program = lower(plan);
        validate(program);
        return program.classes[0].memory.activations_live_peak;
    };
    ASSERT_EQ(plan.training.dropout, 0);
    const std::int64_t before = frame();
    plan.implementation.kernels.masks_without_dropout = true;
    const std::int64_t tokens = plan.training.micro_batch_size * plan.training.sequence_length;
    EXPECT_EQ(frame() - before, 2 * tokens * plan.model.hidden * plan.model.layers);
    plan.training.memory.recompute = Recompute::full;
    plan.implementation.recompute_stops_early = true;
    plan.parallelism.tp = 2;
    validate(lower(plan));                               // recomputation ends with the mask
    plan.implementation.kernels.fused_residual = false;  // the framework's own dropout returns its input
    const std::int64_t eager = frame();
    plan.implementation.kernels.masks_without_dropout = false;
    EXPECT_EQ(frame(), eager);
}

/// Masking and the softmax's gradient write new tensors: three score matrices are live at once instead of two.
TEST(EagerAttention, KeepsScoresAndMaskedScores) {
    Plan plan = gpu_plan({.bf16 = true});
    plan.implementation.kernels.fused_attention = plan.implementation.kernels.causal_skip = false;
    plan.training.memory.recompute = Recompute::full;
    plan.training.sequence_length = plan.model.max_positions = 1024;  // so that scores outweigh the MLP
    const auto transients = [&] {
        std::int64_t most = 0;
        for (const Body& body : lower(plan).bodies) {
            if (body.layer_kind == models::LayerKind::block) most = std::max(most, body.transient_live_peak);
        }
        return most;
    };
    const std::int64_t fused = transients();
    plan.implementation.kernels.fused_softmax = false;
    const std::int64_t s = plan.training.sequence_length;
    const std::int64_t square = 2 * plan.training.micro_batch_size * plan.model.heads * s * s;
    EXPECT_LE(transients() - fused, square);
    EXPECT_GE(transients() - fused, square * 9 / 10);  // the fused peak also holds a smaller tensor
}

/// Gathered inputs stay and are not gathered again.
TEST(GatheredInputs, StayIfTheImplementationKeepsThem) {
    Plan plan = gpu_plan({.tp = 2, .sequence_parallel = true});
    const auto gathers = [&] {
        std::int64_t count = 0;
        for (const StreamVolume& volume : volumes(lower(plan), 0)) {
            if (volume.stream == Stream::tp && volume.kind == CommKind::all_gather) count += volume.operations;
        }
        return count;
    };
    const std::int64_t again = gathers();
    const std::int64_t before = lower(plan).classes[0].memory.activations_live_peak;
    plan.implementation.tensor_parallel.keeps_gathered_inputs = true;
    validate(lower(plan));
    // Two inputs per block and one of the head, for each of four micro-batches.
    EXPECT_EQ(again - gathers(), 4 * (2 * plan.model.layers + 1));
    EXPECT_GT(lower(plan).classes[0].memory.activations_live_peak, before);
}

TEST(Logits, MayBeNarrowOrFreed) {
    const auto peak = [](bool fused, bool keeps, bool narrow) {
        Plan plan = gpu_plan({.bf16 = true});
        plan.implementation.kernels.fused_cross_entropy = fused;
        plan.implementation.kernels.keeps_narrow_logits = keeps;
        plan.implementation.kernels.narrow_logits = narrow;
        validate(lower(plan));
        return lower(plan).classes[0].memory.live_peak;
    };
    EXPECT_LT(peak(false, false, false), peak(false, true, false));
    EXPECT_LT(peak(true, true, true), peak(true, true, false));
}

}  // namespace
}  // namespace orrery::program
