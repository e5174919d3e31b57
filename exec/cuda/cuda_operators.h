// Runs operators of dense decoders on an NVIDIA GPU, in fp32, through kernels/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "exec/operator_call.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products.h"
#include "models/model_spec.h"
#include "models/operator.h"

namespace orrery::exec {

class CudaOperators {
  public:
    /// On the current device. `allocate` gives zeroed device memory that stays, for what operators keep between calls:
    /// tables of rotary positions and partial sums.
    explicit CudaOperators(std::function<std::byte*(std::int64_t bytes)> allocate);

    /// Queues one operator; operands as CpuOperators::run has them. Throws BugError for kinds and variants that
    /// models::has_cuda_kernel and check_runs_on_gpu() refuse, JobError when CUDA refuses a call.
    void run(kernels::cuda::StreamHandle stream, const models::Operator& op, const OperatorPointers& at,
             const OperatorContext& context);

  private:
    struct RotaryTable {
        float* cosines = nullptr;
        float* sines = nullptr;
    };
    RotaryTable rotary_table(const models::ModelSpec& model, std::int64_t sequence, std::int64_t head_dim);
    void rotate(kernels::cuda::StreamHandle stream, const models::Operator& op, const OperatorContext& context,
                float* qkv);

    std::function<std::byte*(std::int64_t)> allocate_;
    kernels::cuda::Products products_;
    std::map<std::pair<std::int64_t, std::int64_t>, RotaryTable> rotary_;  // by sequence and head_dim
    double* partial_sums_ = nullptr;
};

}  // namespace orrery::exec
