// Runs operators on an NVIDIA GPU, with the kernels of kernels/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

#include "exec/cuda/device_operands.h"
#include "exec/cuda/tables.h"
#include "exec/operator_call.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products.h"
#include "models/operator.h"

namespace orrery::exec {

class CudaOperators {
  public:
    /// Uses the current device. `allocate` returns zeroed device memory that outlives this object, for buffers that
    /// persist between calls: tables and partial sums.
    explicit CudaOperators(const std::function<std::byte*(std::int64_t bytes)>& allocate);

    /// Queues one operator, with the operands of CpuOperators::run. Throws BugError for kinds that are only
    /// simulated, and for what check_runs_on_gpu() rejects, JobError if a CUDA call fails.
    void run(kernels::cuda::StreamHandle stream, const models::Operator& op, const OperatorPointers& at,
             const OperatorContext& context);

  private:
    void run_routing(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                     const OperatorPointers& at, const OperatorContext& context);
    /// Zeros in device memory: the correction of router scores, which load balancing would adjust between steps.
    const float* zeros(std::int64_t elements);

    std::function<std::byte*(std::int64_t)> allocate_;
    DeviceTables tables_;
    kernels::cuda::Products products_;
    double* partial_sums_ = nullptr;
    float* zeros_memory_ = nullptr;
    std::int64_t zeros_ = 0;
};

}  // namespace orrery::exec
