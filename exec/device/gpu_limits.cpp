#include "exec/device/gpu_limits.h"

#include <algorithm>

#include "core/error.h"
#include "kernels/cuda/attention.h"
#include "kernels/cuda/experts.h"

namespace orrery::exec {
namespace {

/// What the kernels keep in the registers of a warp or thread has a largest size.
void check_kernel_limits(const models::ModelSpec& model, const std::string& source) {
    const auto check = [&](std::int64_t count, std::int64_t most, const std::string& of, const std::string& where) {
        if (count <= most) return;
        throw InputError(source, "/model", std::to_string(count) + " " + of,
                         "at most " + std::to_string(most) + " on GPUs, " + where);
    };
    namespace k = kernels::cuda;
    check(std::max({model.head_dim, model.latent.nope_head_dim + model.latent.rope_head_dim, model.latent.v_head_dim}),
          k::kWidestHead, "elements of a head", "where a warp holds a head in its registers");
    check(model.moe.top_k, k::kMostChoices, "experts of a token", "where each lane of a warp holds one of them");
    check(model.moe.expert_groups, k::kMostExpertGroups, "groups of experts", "where a thread holds them in two words");
}

}  // namespace

void check_runs_on_gpu(const program::Program& program, const std::string& source) {
    check_kernel_limits(program.plan->model, source);
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
