#include "sim/program/kernel_memory.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "sim/program/device_memory.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::program {
namespace {

constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;

KernelMemory of_first_class(const Plan& plan) {
    const Program program = lower(plan);
    return kernel_memory(program, program.classes.front());
}

TEST(KernelMemory, ProductsOfOneTypeCutNothing) {
    const Plan plan = samples::make_plan({});
    const KernelMemory memory = of_first_class(plan);
    EXPECT_TRUE(memory.products[Stream::compute].any);
    for (const KernelMemory::Products& one : memory.products) EXPECT_EQ(one.cut_elements, 0);
    EXPECT_TRUE(memory.rotary_tables.empty());
    const std::int64_t rest =
        KernelMemory::kSmallBytes + sort_bytes(plan.training.sequence_length * plan.training.micro_batch_size);
    EXPECT_EQ(memory.bytes(80), rest + 8 * kMebibyte + 128 * 1024);
    EXPECT_EQ(memory.bytes(90), rest + 32 * kMebibyte);
}

/// The head's logits and their gradients are in fp32, its weight and input in bf16.
TEST(KernelMemory, TheHeadOfBf16CutsTheGradientOfLogits) {
    const Plan plan = samples::make_plan({.bf16 = true});
    const std::int64_t rows = plan.training.sequence_length * plan.training.micro_batch_size;
    const KernelMemory memory = of_first_class(plan);
    EXPECT_EQ(memory.products[Stream::compute].cut_elements, rows * plan.model.vocab);
    EXPECT_EQ(memory.bytes(90), KernelMemory::kSmallBytes + 32 * kMebibyte + 4 * rows * plan.model.vocab +
                                    std::max(sort_bytes(rows), 4 * rows * plan.model.heads));
}

/// The last stage has attention alone, the first one the token embedding, too, which overwrites the same memory.
TEST(KernelMemory, OperatorsOnAStreamShareScratch) {
    const auto scratch = [](const Program& program, const RankClass& ranks) {
        return kernel_memory(program, ranks).scratch_bytes[Stream::compute];
    };
    for (const std::int64_t micro_batch : {2, 150}) {
        samples::Sample sample{.pp = 2, .bf16 = true, .micro_batch_size = micro_batch};
        const Program program = samples::make_program(sample);
        const std::int64_t rows = sample.sequence_length * micro_batch;
        EXPECT_EQ(scratch(program, program.classes.back()), 4 * rows * program.plan->model.heads);
        EXPECT_EQ(scratch(program, program.classes.front()), sort_bytes(rows));
        sample.bf16 = false;
        const Program fp32 = samples::make_program(sample);
        EXPECT_EQ(scratch(fp32, fp32.classes.back()), 0);
    }
    EXPECT_EQ(sort_bytes(1), 2048 * 20 + 1024);
    EXPECT_EQ(sort_bytes(2048), sort_bytes(1));
    EXPECT_EQ(sort_bytes(2049), 2 * sort_bytes(1));
}

TEST(KernelMemory, RotationsHaveTables) {
    const Plan plan = samples::make_plan({.model = "tiny-llama"});
    const KernelMemory memory = of_first_class(plan);
    ASSERT_EQ(memory.rotary_tables.size(), 1U);
    EXPECT_EQ(*memory.rotary_tables.begin(), std::pair(plan.training.sequence_length, plan.model.head_dim));
    EXPECT_EQ(memory.bytes(90) - of_first_class(samples::make_plan({})).bytes(90),
              4 * plan.training.sequence_length * plan.model.head_dim);
}

TEST(KernelMemory, WholeRowsAreCut) {
    EXPECT_EQ(cut_elements(10, 7), 70);
    EXPECT_EQ(cut_elements(10, 7, 30), 28);
    EXPECT_EQ(cut_elements(10, 7, 3), 7);
    EXPECT_EQ(cut_elements(std::int64_t{1} << 30, std::int64_t{1} << 12), kMostCutElements);
}

/// Only plans of the executor are predicted by its kernels.
TEST(KernelMemory, IsPartOfTheDevicesMemory) {
    Plan plan = samples::make_plan({.model = "tiny-llama", .bf16 = true});
    plan.cluster.device.host_runs_compute = false;
    plan.cluster.device.compute_capability = 90;
    const auto workspaces = [&] {
        const Program program = lower(plan);
        return device_memory(program, program.classes.front()).workspaces;
    };
    EXPECT_EQ(workspaces(), of_first_class(plan).bytes(90));
    EXPECT_GT(workspaces(), gemm_workspace_bytes(90));
    plan.implementation.executable = false;
    EXPECT_EQ(workspaces(), gemm_workspace_bytes(90));
}

}  // namespace
}  // namespace orrery::program
