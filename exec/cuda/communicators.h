// NCCL communicators of a rank's process groups.
#pragma once

#include <memory>

#include "exec/backend.h"
#include "exec/transport/transport.h"
#include "kernels/cuda/kernels.h"

namespace orrery::exec {

class Communicators {
  public:
    /// Makes a communicator for every group of two and more ranks; collective over all ranks, on the current device.
    /// The transport carries the groups' NCCL ids. Throws JobError naming the call when NCCL is missing or refuses.
    Communicators(const AxisMembers& members, Transport& transport);
    ~Communicators();
    Communicators(const Communicators&) = delete;
    Communicators& operator=(const Communicators&) = delete;

    [[nodiscard]] const AxisGroups& groups() const { return groups_; }
    /// Queues a collective of the kinds that runs_on_nccl() has; a group of one copies. Returns the bytes that a ring
    /// has this rank send, whatever NCCL chooses.
    std::int64_t communicate(kernels::cuda::StreamHandle stream, const Operation& operation);
    /// Throws JobError when NCCL found a communicator broken meanwhile: another rank died, a link failed.
    void check_health() const;

  private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
    AxisGroups groups_;
};

/// Whether Communicators carries out collectives of this kind.
[[nodiscard]] bool runs_on_nccl(program::CommKind kind);

}  // namespace orrery::exec
