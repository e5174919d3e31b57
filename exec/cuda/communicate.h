// Queues a communication on an NCCL communicator. Private to the CUDA backend.
#pragma once

#include <cstdint>

#include "exec/cuda/nccl.h"
#include "exec/transport/operation.h"
#include "kernels/cuda/kernels.h"

namespace orrery::exec {

struct NcclGroup {
    ncclComm_t comm = nullptr;  // null in a group of one
    int members = 1;
    int me = 0;  // index in the group
};

/// See Communicators::communicate(). `nccl` may be null in a group of one.
std::int64_t queue_communication(const Nccl* nccl, const NcclGroup& group, kernels::cuda::StreamHandle stream,
                                 const Operation& operation);

}  // namespace orrery::exec
