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

TEST(GpuLimits, AcceptsDenseDecodersWithDataAndTensorParallelism) {
    for (const char* model : {"tiny-gpt", "tiny-llama"}) {
        EXPECT_EQ(refusal(make_plan({.model = model})), "");
        EXPECT_EQ(refusal(make_plan({.model = model, .tied = true})), "");
        EXPECT_EQ(refusal(make_plan({.model = model, .dp = 2, .tp = 2})), "");
        EXPECT_EQ(refusal(make_plan({.model = model, .tp = 2, .sequence_parallel = true})), "");
        for (const DataParallel kind : {DataParallel::zero1, DataParallel::zero2, DataParallel::zero3}) {
            EXPECT_EQ(refusal(make_plan({.model = model, .dp = 2, .data_parallel = kind})), "");
        }
    }
    EXPECT_EQ(refusal(make_plan({.model = "tiny-llama", .qk_norm = true})), "");
    Plan plan = make_plan({});
    plan.training.memory.offload_layers = 1;
    plan.training.optimizer.clip_norm = 1;
    EXPECT_EQ(refusal(plan), "");
}

TEST(GpuLimits, RefusalNamesTheUnsupportedFeature) {
    const auto expect_refused = [](const Plan& plan, const std::string& words) {
        const std::string text = refusal(plan);
        EXPECT_NE(text.find("the.plan.json"), std::string::npos) << text;
        EXPECT_NE(text.find(words), std::string::npos) << text;
        EXPECT_NE(text.find("what the executor runs on GPUs"), std::string::npos) << text;
    };
    expect_refused(make_plan({.pp = 2}), "transfers between pipeline stages");
    expect_refused(make_plan({.bf16 = true}), "bf16");
    expect_refused(make_plan({.model = "tiny-llama", .cp = 2}), "exchange");
    expect_refused(make_plan({.model = "tiny-llama", .tp = 4}), "copies of key/value heads");
    Plan plan = make_plan({});
    plan.model.head_dim = 264;
    expect_refused(plan, "heads of more than 256 elements");
    plan = make_plan({});
    plan.training.memory.offload_optimizer = true;
    expect_refused(plan, "host memory");
    plan = make_plan({});
    plan.training.dropout = 0.1;
    expect_refused(plan, "/training/dropout: got a plan with dropout");
    plan = make_plan({});
    plan.training.precision.moments = DType::bf16;
    expect_refused(plan, "/training/precision/moments: got bf16");
    plan = make_plan({});
    plan.model.parallel_residual = true;
    expect_refused(plan, "parallel residuals");
    plan = make_plan({.model = "tiny-llama"});
    plan.model.kv_heads = plan.model.heads;
    plan.model.latent = {.kv_lora_rank = 16, .nope_head_dim = 8, .rope_head_dim = 4, .v_head_dim = 6};
    plan.model.head_dim = 12;
    expect_refused(plan, "latent attention");
}

/// No plan of these models has such a communication, so one is made.
TEST(GpuLimits, BlocksOfDifferentSizesAreRefused) {
    program::Program program = program::lower(make_plan({.dp = 2, .data_parallel = DataParallel::zero1}));
    for (program::Body& body : program.bodies) {
        for (program::Instruction& instruction : body.instructions) {
            if (instruction.is_communication) instruction.communication.send_counts = 0;
        }
    }
    EXPECT_THROW(check_runs_on_gpu(program, "the.plan.json"), InputError);
}

}  // namespace
}  // namespace orrery::exec
