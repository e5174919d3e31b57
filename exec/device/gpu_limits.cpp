#include "exec/device/gpu_limits.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/cuda/kernels.h"
#include "models/operator_table.h"

namespace orrery::exec {
namespace {

/// The operator, if GPUs cannot run it; otherwise "".
std::string refused_on_gpu(const program::Body& body, const program::Instruction& instruction) {
    if (instruction.is_communication || instruction.stream == program::Stream::host) return "";
    for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
        const models::Operator& op = body.operators[instruction.first_operator + o];
        if (!models::has_cuda_kernel(op.kind)) return std::string(models::name_of(op.kind));
    }
    return "";
}

}  // namespace

void check_runs_on_gpu(const program::Program& program, const std::string& source) {
    const program::Plan& plan = *program.plan;
    const models::ModelSpec& model = plan.model;
    const std::int64_t widest =
        std::max({model.head_dim, model.latent.nope_head_dim + model.latent.rope_head_dim, model.latent.v_head_dim});
    if (widest > kernels::cuda::kWidestHead) {
        throw InputError(source, "/model", "heads of " + std::to_string(widest) + " elements",
                         "at most " + std::to_string(kernels::cuda::kWidestHead) +
                             " on GPUs, where a warp holds a head in its registers");
    }
    for (const program::Body& body : program.bodies) {
        for (const program::Slot& slot : body.slots) {
            const DType dtype = slot.decl.dtype;
            if (dtype == DType::fp16 || dtype == DType::fp8 || dtype == DType::fp4) {
                throw InputError(source, "/training/precision", std::string(name_of(dtype)),
                                 "fp32 and bf16: the executor runs no other types");
            }
        }
        for (const program::Instruction& instruction : body.instructions) {
            const std::string refused = refused_on_gpu(body, instruction);
            if (refused.empty()) continue;
            throw InputError(source, "/parallelism", "a plan with " + refused, "what the executor runs on GPUs");
        }
    }
}

}  // namespace orrery::exec
