// Runs operators on an NVIDIA GPU, with the kernels of kernels/cuda.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>

#include "exec/cuda/device_operands.h"
#include "exec/cuda/tables.h"
#include "exec/operator_call.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/products.h"
#include "models/operator.h"
#include "sim/program/kernel_memory.h"

namespace orrery::exec {

class CudaOperators {
  public:
    /// Uses the current device. `allocate` returns zeroed device memory that outlives this object, or null.
    explicit CudaOperators(std::function<std::byte*(std::int64_t bytes)> allocate);
    CudaOperators(const CudaOperators&) = delete;
    CudaOperators& operator=(const CudaOperators&) = delete;

    /// Takes the memory that a Program's operators need; no operator takes more later. Operators that run without this
    /// call take memory as they need it. `stream_of`: the stream of CUDA on which operators of a stream run.
    void prepare(const program::KernelMemory& memory, const models::ModelSpec& model,
                 const std::function<kernels::cuda::StreamHandle(program::Stream)>& stream_of);

    /// Queues one operator, with the operands of CpuOperators::run. Throws BugError for kinds that are only
    /// simulated, and for what check_runs_on_gpu() rejects, JobError if a CUDA call fails.
    void run(kernels::cuda::StreamHandle stream, const models::Operator& op, const OperatorPointers& at,
             const OperatorContext& context);

    /// Of the device, times ten.
    [[nodiscard]] std::int64_t compute_capability() const { return compute_capability_; }
    /// Some zeroed memory, which operators overwrite.
    [[nodiscard]] double* partial_sums() const { return partial_sums_; }

  private:
    /// A part of a block of program::KernelMemory::kSmallBytes.
    [[nodiscard]] std::byte* small(std::int64_t bytes);
    void run_routing(kernels::cuda::StreamHandle stream, const models::Operator& op, const DeviceOperands& o,
                     const OperatorPointers& at, const OperatorContext& context);
    /// Memory that operators on the stream overwrite one after the other.
    [[nodiscard]] std::byte* scratch(kernels::cuda::StreamHandle stream, std::int64_t bytes);
    /// Zeros in device memory: the correction of router scores, which load balancing would adjust between steps.
    const float* zeros(std::int64_t elements);

    std::int64_t compute_capability_;
    std::function<std::byte*(std::int64_t)> allocate_;
    bool is_prepared_ = false;
    std::byte* small_ = nullptr;
    std::int64_t small_bytes_ = 0;  // that are in use
    double* partial_sums_ = nullptr;
    DeviceTables tables_;
    kernels::cuda::Products products_;
    struct Scratch {
        std::byte* memory = nullptr;
        std::int64_t bytes = 0;
    };
    std::map<void*, Scratch> scratch_;  // by the stream of CUDA
    float* zeros_memory_ = nullptr;
    std::int64_t zeros_ = 0;
};

}  // namespace orrery::exec
