#include "sim/program/kernel_memory.h"

#include <gtest/gtest.h>

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
    const KernelMemory memory = of_first_class(samples::make_plan({}));
    EXPECT_TRUE(memory.products[Stream::compute].any);
    for (const KernelMemory::Products& one : memory.products) EXPECT_EQ(one.cut_elements, 0);
    EXPECT_TRUE(memory.rotary_tables.empty());
    EXPECT_EQ(memory.bytes(80), KernelMemory::kSmallBytes + 8 * kMebibyte + 128 * 1024);
    EXPECT_EQ(memory.bytes(90), KernelMemory::kSmallBytes + 32 * kMebibyte);
}

/// The head's logits and their gradients are in fp32, its weight and input in bf16.
TEST(KernelMemory, TheHeadOfBf16CutsTheGradientOfLogits) {
    const Plan plan = samples::make_plan({.bf16 = true});
    const std::int64_t rows = plan.training.sequence_length * plan.training.micro_batch_size;
    const KernelMemory memory = of_first_class(plan);
    EXPECT_EQ(memory.products[Stream::compute].cut_elements, rows * plan.model.vocab);
    EXPECT_EQ(memory.bytes(90),
              KernelMemory::kSmallBytes + 32 * kMebibyte + 4 * rows * plan.model.vocab + 4 * rows * plan.model.heads);
}

TEST(KernelMemory, TheGradientOfAttentionInBf16HasANumberForEachQuery) {
    const Plan plan = samples::make_plan({.bf16 = true});
    const std::int64_t rows = plan.training.sequence_length * plan.training.micro_batch_size;
    EXPECT_EQ(of_first_class(plan).attention_elements[Stream::compute], rows * plan.model.heads);
    EXPECT_EQ(of_first_class(samples::make_plan({})).attention_elements[Stream::compute], 0);
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
