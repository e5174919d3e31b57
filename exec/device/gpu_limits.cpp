#include "exec/device/gpu_limits.h"

#include <algorithm>
#include <array>

#include "core/error.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/experts.h"

namespace orrery::exec {
namespace {

/// What the kernels keep in the registers of a warp or thread has a largest size.
struct KernelLimit {
    const char* key;
    std::int64_t (*count)(const models::ModelSpec&);
    std::int64_t most;
    const char* of;  // what is counted
    const char* reason;
};

constexpr std::array kKernelLimits{
    KernelLimit{"/model/head_dim",
                [](const models::ModelSpec& model) { return std::max(model.head_dim, model.latent.v_head_dim); },
                kernels::cuda::kWidestHead, "elements of a head", "a warp holds a head in its registers"},
    KernelLimit{"/model/moe/top_k", [](const models::ModelSpec& model) { return model.moe.top_k; },
                kernels::cuda::kMostChoices, "experts of a token", "each lane of a warp holds one of them"},
    KernelLimit{"/model/moe/expert_groups", [](const models::ModelSpec& model) { return model.moe.expert_groups; },
                kernels::cuda::kMostExpertGroups, "groups of experts", "a thread holds them in two words"},
};

std::string allowed_by(const KernelLimit& limit) {
    return "at most " + std::to_string(limit.most);
}

}  // namespace

std::vector<RunLimit> gpu_limits() {
    std::vector<RunLimit> limits;
    limits.reserve(kKernelLimits.size());
    for (const KernelLimit& limit : kKernelLimits) limits.push_back({limit.key, allowed_by(limit), limit.reason});
    return limits;
}

void check_runs_on_gpu(const program::Program& program, const std::string& source) {
    for (const KernelLimit& limit : kKernelLimits) {
        const std::int64_t count = limit.count(program.plan->model);
        if (count <= limit.most) continue;
        throw InputError(source, limit.key, std::to_string(count) + " " + limit.of,
                         allowed_by(limit) + " on GPUs, because " + limit.reason);
    }
    for (const program::Body& body : program.bodies) {
        for (const program::Slot& slot : body.slots) {
            const DType dtype = slot.decl.dtype;
            if (dtype == DType::fp16 || dtype == DType::fp8 || dtype == DType::fp4) {
                throw InputError(source, "/training/precision", std::string(name_of(dtype)),
                                 "fp32 and bf16: the executor runs no other types");
            }
        }
    }
}

}  // namespace orrery::exec
