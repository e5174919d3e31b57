// Which plans can run on GPUs. Needs no GPU.
#include "exec/device/gpu_limits.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/unit/program/sample_plans.h"

namespace orrery::exec {
namespace {

using program::DataParallel;
using program::Plan;
using program::samples::make_plan;

std::string refusal(const Plan& plan) {
    try {
        check_runs_on_gpu(program::lower(plan), "the.plan.json");
    } catch (const InputError& error) {
        return error.what();
    }
    return "";
}

TEST(GpuLimits, AcceptsWhatCpuRanksRun) {
    for (const bool bf16 : {false, true}) {
        for (const char* model : {"tiny-gpt", "tiny-llama"}) {
            EXPECT_EQ(refusal(make_plan({.model = model, .tied = true, .bf16 = bf16})), "");
            EXPECT_EQ(refusal(make_plan({.model = model, .dp = 2, .tp = 2, .bf16 = bf16})), "");
            EXPECT_EQ(refusal(make_plan({.model = model, .tp = 2, .sequence_parallel = true, .bf16 = bf16})), "");
            EXPECT_EQ(refusal(make_plan({.model = model, .pp = 2, .bf16 = bf16})), "");
            EXPECT_EQ(refusal(make_plan({.model = model, .bf16 = bf16, .cp = 2})), "");
            for (const DataParallel kind : {DataParallel::zero1, DataParallel::zero2, DataParallel::zero3}) {
                EXPECT_EQ(refusal(make_plan({.model = model, .dp = 2, .bf16 = bf16, .data_parallel = kind})), "");
            }
        }
    }
    EXPECT_EQ(refusal(make_plan({.model = "tiny-llama", .qk_norm = true})), "");
    EXPECT_EQ(refusal(make_plan({.model = "tiny-llama", .tp = 4})), "");  // copies of key/value heads
    Plan plan = make_plan({});
    plan.training.memory.offload_layers = 1;
    plan.training.memory.offload_optimizer = true;
    plan.training.optimizer.clip_norm = 1;
    plan.training.dropout = 0.1;
    plan.training.precision.moments = DType::bf16;
    EXPECT_EQ(refusal(plan), "");
}

TEST(GpuLimits, RefusalsNameTheLimitAndItsReason) {
    const auto expect_refused = [](const Plan& plan, const std::string& words) {
        const std::string text = refusal(plan);
        EXPECT_EQ(text.find("the.plan.json: " + words), 0U) << text;
    };
    Plan plan = make_plan({});
    plan.model.head_dim = 264;
    expect_refused(
        plan, "/model/head_dim: got 264 elements of a head; allowed: at most 256 on GPUs, because a warp holds a head");
    plan = make_plan({});
    plan.model.moe.top_k = 33;  // the check comes before the layers that would use it
    expect_refused(plan, "/model/moe/top_k: got 33 experts of a token; allowed: at most 32 on GPUs");
    plan = make_plan({});
    plan.model.moe.expert_groups = 65;
    expect_refused(plan, "/model/moe/expert_groups: got 65 groups of experts; allowed: at most 64 on GPUs");
}

/// Types that the executor has on no device.
TEST(GpuLimits, OtherTypesAreRefused) {
    program::Program program = program::lower(make_plan({}));
    program.bodies[0].slots[0].decl.dtype = DType::fp16;
    try {
        check_runs_on_gpu(program, "the.plan.json");
        FAIL() << "fp16 is accepted";
    } catch (const InputError& error) {
        EXPECT_EQ(std::string(error.what()).find("the.plan.json: /training/precision: got fp16"), 0U) << error.what();
    }
}

}  // namespace
}  // namespace orrery::exec
