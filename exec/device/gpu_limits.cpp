#include "exec/device/gpu_limits.h"

#include "core/error.h"
#include "kernels/cuda/kernels.h"
#include "models/operator_table.h"

namespace orrery::exec {
namespace {

constexpr const char* kRunsOnGpus =
    "what the executor runs on GPUs: dense decoders such as GPT-2 and Llama, in fp32, with dp and tp";

/// What the GPU backend lacks to run the instruction; "" if it can run it.
std::string refused_on_gpu(const program::Body& body, const program::Instruction& instruction) {
    if (instruction.is_communication) {
        const program::Communication& communication = instruction.communication;
        const bool other_sum = communication.accumulates && communication.dtype != DType::fp32;
        return other_sum ? "sums of " + std::string(name_of(communication.dtype)) + " that accumulate" : "";
    }
    for (std::int32_t o = 0; o < instruction.operator_count; ++o) {
        const models::Operator& op = body.operators[instruction.first_operator + o];
        const bool parts = op.is_attention() && op.keys != models::KeyPart::own;
        if (!models::has_cuda_kernel(op.kind) || parts) return std::string(models::name_of(op.kind));
        if (op.offloaded) return std::string(models::name_of(op.kind)) + " on states in host memory";
        if (instruction.stream == program::Stream::host && op.kind != models::OpKind::host_wait) {
            return std::string(models::name_of(op.kind)) + " on the host";
        }
    }
    return "";
}

/// The feature of the model that the GPU kernels lack; "" if they support the model.
std::string refused_on_gpu(const models::ModelSpec& model) {
    if (model.has_latent_attention()) return "latent attention";
    if (model.position == models::PositionKind::alibi) return "ALiBi";
    if (model.parallel_residual) return "parallel residuals";
    if (model.rotary_fraction != 1.0) return "partially rotated heads";
    if (model.rope_scaling.type == "yarn") return "YaRN scaling of rotary frequencies";
    if (model.head_dim > kernels::cuda::kWidestHead) {
        return "heads of more than " + std::to_string(kernels::cuda::kWidestHead) + " elements";
    }
    if (model.position_offset != 0) return "an offset in its position table";
    return model.causal ? "" : "non-causal attention";
}

}  // namespace

void check_runs_on_gpu(const program::Program& program, const std::string& source) {
    const std::string part = refused_on_gpu(program.plan->model);
    if (!part.empty()) throw InputError(source, "/model", "a model with " + part, kRunsOnGpus);
    const program::Plan& plan = *program.plan;
    if (plan.training.dropout > 0) {
        throw InputError(source, "/training/dropout", "a plan with dropout", kRunsOnGpus);
    }
    const DType moments = plan.training.precision.moments;
    if (moments != DType::fp32) {
        throw InputError(source, "/training/precision/moments", std::string(name_of(moments)), kRunsOnGpus);
    }
    if (plan.parallelism.tp > plan.model.kv_heads) {
        throw InputError(source, "/parallelism", "a plan with copies of key/value heads", kRunsOnGpus);
    }
    for (const program::Body& body : program.bodies) {
        for (const program::Slot& slot : body.slots) {
            const DType dtype = slot.decl.dtype;
            if (dtype == DType::bf16 || dtype == DType::fp16 || dtype == DType::fp8 || dtype == DType::fp4) {
                throw InputError(source, "/training/precision", std::string(name_of(dtype)), kRunsOnGpus);
            }
        }
        for (const program::Instruction& instruction : body.instructions) {
            const std::string refused = refused_on_gpu(body, instruction);
            if (!refused.empty()) {
                throw InputError(source, "/parallelism", "a plan with " + refused, kRunsOnGpus);
            }
        }
    }
}

}  // namespace orrery::exec
