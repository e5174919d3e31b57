// Runs operators on an NVIDIA GPU, with the kernels of kernels/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "exec/operands.h"
#include "exec/operator_call.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products.h"
#include "models/model_spec.h"
#include "models/operator.h"

namespace orrery::exec {

class CudaOperators {
  public:
    /// Uses the current device. `allocate` returns zeroed device memory that outlives this object, for buffers that
    /// persist between calls, such as rotary tables and partial sums.
    explicit CudaOperators(std::function<std::byte*(std::int64_t bytes)> allocate);

    /// Queues one operator, with the operands of CpuOperators::run. Throws BugError for kinds and variants that
    /// models::has_cuda_kernel or check_runs_on_gpu() reject, JobError if a CUDA call fails.
    void run(kernels::cuda::StreamHandle stream, const models::Operator& op, const OperatorPointers& at,
             const OperatorContext& context);

  private:
    struct RotaryTable {
        float* cosines = nullptr;
        float* sines = nullptr;
    };
    /// Made on first use. Waits until the table is on the device, so that all streams may read it.
    RotaryTable rotary_table(kernels::cuda::StreamHandle stream, const models::ModelSpec& model, std::int64_t sequence,
                             std::int64_t head_dim);
    /// Zeros in device memory: the correction of router scores, which load balancing would adjust between steps.
    const float* zeros(std::int64_t elements);
    void run_routing(kernels::cuda::StreamHandle stream, const models::Operator& op, const Operands& o,
                     const OperatorPointers& at, const models::ModelSpec& model);
    void rotate(kernels::cuda::StreamHandle stream, const models::Operator& op, const OperatorContext& context,
                float* qkv);

    std::function<std::byte*(std::int64_t)> allocate_;
    kernels::cuda::Products products_;
    std::map<std::pair<std::int64_t, std::int64_t>, RotaryTable> rotary_;  // by sequence and head_dim
    double* partial_sums_ = nullptr;
    float* zeros_memory_ = nullptr;
    std::int64_t zeros_ = 0;
};

}  // namespace orrery::exec
