#include "exec/cuda/nccl.h"

#include <cstdlib>

namespace orrery::exec {
namespace {

/// Variables that NCCL reads when the first communicator is made; the user's values stay.
/// - NCCL_LAUNCH_ORDER_IMPLICIT: operations of different communicators begin in the order in which they were queued,
///   the same on all ranks. Otherwise two of them may each hold a part of the devices and wait for the other part.
/// - NCCL_RUNTIME_CONNECT: connect everything at the start, not when an algorithm is first used, when the device has no
///   memory left.
void set_up_environment() {
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

}  // namespace

Nccl::Nccl() {
    set_up_environment();
}

void Nccl::check(ncclResult_t result, const char* call) const {
    if (result == ncclSuccess) return;
    const std::string details = last_error(nullptr);
    throw JobError(std::string(call) + ": " + error_text(result) + (details.empty() ? "" : ": " + details));
}

ncclDataType_t nccl_type_of(DType dtype) {
    switch (dtype) {
        case DType::fp32:
            return ncclFloat32;
        case DType::fp64:
            return ncclFloat64;
        case DType::bf16:
            return ncclBfloat16;
        case DType::int32:
            return ncclInt32;
        case DType::int64:
            return ncclInt64;
        case DType::uint8:
            return ncclUint8;
        default:
            throw_bug(__FILE__, __LINE__, "DType", "a communication of a type that NCCL does not have");
    }
}

}  // namespace orrery::exec
