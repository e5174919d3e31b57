// The functions of NCCL. Private to the CUDA backend.
#pragma once

#include <nccl.h>

#include <string>

#include "core/dtype.h"
#include "core/error.h"
#include "kernels/cuda/library.h"

namespace orrery::exec {

/// Loaded only if a group has several ranks. The constructor throws JobError if NCCL cannot be opened or is too old.
struct Nccl {
    Nccl();
    kernels::cuda::Library library{"libnccl.so." + std::to_string(NCCL_MAJOR)};
    decltype(ncclGetUniqueId)* get_id = library.function<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
    decltype(ncclCommInitRankConfig)* init_rank =
        library.function<decltype(ncclCommInitRankConfig)>("ncclCommInitRankConfig");
    decltype(ncclCommSplit)* split = library.function<decltype(ncclCommSplit)>("ncclCommSplit");
    decltype(ncclCommFinalize)* finalize = library.function<decltype(ncclCommFinalize)>("ncclCommFinalize");
    decltype(ncclCommDestroy)* destroy = library.function<decltype(ncclCommDestroy)>("ncclCommDestroy");
    decltype(ncclCommAbort)* abort = library.function<decltype(ncclCommAbort)>("ncclCommAbort");
    decltype(ncclCommGetAsyncError)* async_error =
        library.function<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
    decltype(ncclGetErrorString)* error_text = library.function<decltype(ncclGetErrorString)>("ncclGetErrorString");
    decltype(ncclGetLastError)* last_error = library.function<decltype(ncclGetLastError)>("ncclGetLastError");
    decltype(ncclAllReduce)* all_reduce = library.function<decltype(ncclAllReduce)>("ncclAllReduce");
    decltype(ncclAllGather)* all_gather = library.function<decltype(ncclAllGather)>("ncclAllGather");
    decltype(ncclReduceScatter)* reduce_scatter = library.function<decltype(ncclReduceScatter)>("ncclReduceScatter");
    decltype(ncclBroadcast)* broadcast = library.function<decltype(ncclBroadcast)>("ncclBroadcast");
    decltype(ncclReduce)* reduce = library.function<decltype(ncclReduce)>("ncclReduce");
    decltype(ncclSend)* send = library.function<decltype(ncclSend)>("ncclSend");
    decltype(ncclRecv)* receive = library.function<decltype(ncclRecv)>("ncclRecv");
    decltype(ncclGroupStart)* group_start = library.function<decltype(ncclGroupStart)>("ncclGroupStart");
    decltype(ncclGroupEnd)* group_end = library.function<decltype(ncclGroupEnd)>("ncclGroupEnd");
    // Since NCCL 2.28; null in an older library.
    decltype(ncclAlltoAll)* all_to_all = library.find<decltype(ncclAlltoAll)>("ncclAlltoAll");
    decltype(ncclGather)* gather = library.find<decltype(ncclGather)>("ncclGather");
    decltype(ncclScatter)* scatter = library.find<decltype(ncclScatter)>("ncclScatter");

    /// Throws JobError naming the call and NCCL's reason if `result` is an error.
    void check(ncclResult_t result, const char* call) const;
};

/// Throws BugError for types that NCCL does not have.
[[nodiscard]] ncclDataType_t nccl_type_of(DType dtype);

}  // namespace orrery::exec
