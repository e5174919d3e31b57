// The NCCL communicators of a rank's process groups.
#pragma once

#include <memory>

#include "exec/backend.h"
#include "exec/transport/transport.h"
#include "kernels/cuda/kernels.h"

namespace orrery::exec {

class Communicators {
  public:
    /// Creates and connects a communicator on the current device for every list of two or more members; axes with the
    /// same list share one. All are parts of one communicator of all ranks and share its buffers on the device. After
    /// this NCCL takes no more device memory. `scratch` is device memory for a small exchange on `stream`. Collective
    /// over all ranks. Throws JobError naming the call if NCCL is missing or fails.
    Communicators(const AxisMembers& members, Transport& transport, kernels::cuda::StreamHandle stream, float* scratch);
    /// Waits for the communication in flight; if the stack is unwinding, ends it instead.
    ~Communicators();
    Communicators(const Communicators&) = delete;
    Communicators& operator=(const Communicators&) = delete;

    [[nodiscard]] const AxisGroups& groups() const { return groups_; }
    /// Queues an operation that check_runs_on_gpu() accepts; a group of one rank only copies or adds. Returns the
    /// bytes that this rank sends in a ring, even if NCCL chooses another algorithm.
    std::int64_t communicate(kernels::cuda::StreamHandle stream, const Operation& operation);
    /// Throws JobError if NCCL reports an asynchronous error, such as a link that failed. It does not report the death
    /// of a rank on the same machine.
    void check_health() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
    AxisGroups groups_;
};

}  // namespace orrery::exec
