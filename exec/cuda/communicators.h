// The NCCL communicators of a rank, and the operations on them.
#pragma once

#include <memory>

#include "exec/backend.h"
#include "exec/transport/transport.h"
#include "kernels/cuda/kernels.h"

namespace orrery::exec {

class Communicators {
  public:
    /// Creates and connects communicators on the current device: one for every list of two or more members, which axes
    /// with the same list share, and one for every direction of transfers between two pipeline ranks. After this NCCL
    /// takes no more device memory. `scratch` is device memory for a small exchange on `stream`. Collective over all
    /// ranks. Throws JobError naming the call if NCCL is missing or fails.
    ///
    /// Communicators of groups are parts of one communicator of all ranks and share its buffers, so that NCCL runs
    /// their operations one after the other, in the order in which they were queued. Those of pipelines, for transfers
    /// and for a vocabulary that is spread over the stages, have buffers of their own: an operation may have to wait
    /// for another stage while collectives and other transfers go on.
    Communicators(const Partners& partners, Transport& transport, kernels::cuda::StreamHandle stream, float* scratch);
    /// Waits for the communication in flight; if the stack is unwinding, ends it instead.
    ~Communicators();
    Communicators(const Communicators&) = delete;
    Communicators& operator=(const Communicators&) = delete;

    [[nodiscard]] const AxisGroups& groups() const { return groups_; }
    /// Queues an operation; a group of one rank only copies or adds. Counts are in host memory. Returns the bytes that
    /// this rank sends by the algorithm of CPU ranks for large messages (exec/transport/collective.h), even if NCCL
    /// chooses another one. Throws JobError if NCCL fails, or if more arrives than there is room for.
    std::int64_t communicate(kernels::cuda::StreamHandle stream, program::Stream on, const Operation& operation);
    /// Throws JobError if NCCL reports an asynchronous error, such as a link that failed. It does not report the death
    /// of a rank on the same machine.
    void check_health() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
    AxisGroups groups_;
};

}  // namespace orrery::exec
