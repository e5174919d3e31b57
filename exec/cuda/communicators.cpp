#include "exec/cuda/communicators.h"

#include <nccl.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "kernels/cuda/library.h"

namespace orrery::exec {
namespace {

using program::CommKind;

/// The functions of NCCL, which is loaded only if a group has several ranks.
struct Nccl {
    kernels::cuda::Library library{"libnccl.so." + std::to_string(NCCL_MAJOR)};
    decltype(ncclGetUniqueId)* get_id = library.function<decltype(ncclGetUniqueId)>("ncclGetUniqueId");
    decltype(ncclCommInitRank)* init_rank = library.function<decltype(ncclCommInitRank)>("ncclCommInitRank");
    decltype(ncclCommAbort)* abort = library.function<decltype(ncclCommAbort)>("ncclCommAbort");
    decltype(ncclCommGetAsyncError)* async_error =
        library.function<decltype(ncclCommGetAsyncError)>("ncclCommGetAsyncError");
    decltype(ncclGetErrorString)* error_text = library.function<decltype(ncclGetErrorString)>("ncclGetErrorString");
    decltype(ncclAllReduce)* all_reduce = library.function<decltype(ncclAllReduce)>("ncclAllReduce");
    decltype(ncclAllGather)* all_gather = library.function<decltype(ncclAllGather)>("ncclAllGather");
    decltype(ncclReduceScatter)* reduce_scatter = library.function<decltype(ncclReduceScatter)>("ncclReduceScatter");

    void check(ncclResult_t result, const char* call) const {
        if (result != ncclSuccess) throw JobError(std::string(call) + ": " + error_text(result));
    }
};

ncclDataType_t type_of(DType dtype) {
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
        default:
            throw_bug(__FILE__, __LINE__, "DType", "a collective on a type that NCCL does not have");
    }
}

}  // namespace

struct Communicators::Impl {
    struct Group {
        ncclComm_t comm = nullptr;  // null in a group of one
        std::int64_t members = 1;
    };
    std::unique_ptr<Nccl> nccl;
    IndexedVector<GroupIndex, Group> groups;

    void connect(const std::vector<int>& ranks, Transport& transport, Group& group);
};

/// Connects the groups of one axis: the first member of each group creates its NCCL id, and rank 0 broadcasts all ids.
void Communicators::Impl::connect(const std::vector<int>& ranks, Transport& transport, Group& group) {
    const bool several = ranks.size() > 1;
    if (several && nccl == nullptr) nccl = std::make_unique<Nccl>();
    std::string mine;
    if (several && ranks.front() == transport.rank()) {
        ncclUniqueId id;
        nccl->check(nccl->get_id(&id), "ncclGetUniqueId");
        mine.assign(id.internal, sizeof id.internal);
    }
    std::string all;
    for (const std::string& one : transport.gather(mine)) {
        all += one.empty() ? std::string(sizeof(ncclUniqueId), '\0') : one;
    }
    all = transport.broadcast(all);
    if (!several) return;
    ncclUniqueId id;
    std::memcpy(id.internal, all.data() + static_cast<std::size_t>(ranks.front()) * sizeof id, sizeof id);
    const auto me = std::find(ranks.begin(), ranks.end(), transport.rank()) - ranks.begin();
    group.members = static_cast<std::int64_t>(ranks.size());
    nccl->check(nccl->init_rank(&group.comm, static_cast<int>(ranks.size()), id, static_cast<int>(me)),
                "ncclCommInitRank");
}

Communicators::Communicators(const AxisMembers& members, Transport& transport) : impl_(std::make_unique<Impl>()) {
    for (const program::GroupAxis axis : program::kAxes) {
        const GroupIndex group = impl_->groups.add({});
        if (!members[axis].empty()) groups_[axis].index = group;
        impl_->connect(members[axis], transport, impl_->groups.back());
    }
}

Communicators::~Communicators() {
    // Operations in flight have either completed or never will. In both cases aborting frees the communicator.
    for (const Impl::Group& group : impl_->groups) {
        if (group.comm != nullptr) impl_->nccl->abort(group.comm);
    }
}

namespace {

ncclRedOp_t reduction_of(program::ReduceOp reduce) {
    switch (reduce) {
        case program::ReduceOp::sum:
            return ncclSum;
        case program::ReduceOp::max:
            return ncclMax;
        case program::ReduceOp::mean:
            return ncclAvg;
    }
    throw_bug(__FILE__, __LINE__, "ReduceOp", "a reduction that NCCL does not have");
}

/// Zeroes the other ranks' blocks of the input after an in-place reduce-scatter.
void clear_others(const Operation& operation, std::size_t block_bytes, std::size_t bytes, cudaStream_t stream) {
    auto* const whole = static_cast<std::byte*>(const_cast<void*>(operation.in));
    auto* const own = static_cast<std::byte*>(operation.out);
    const auto before = static_cast<std::size_t>(own - whole);
    check_cuda(cudaMemsetAsync(whole, 0, before, stream), "cudaMemsetAsync");
    check_cuda(cudaMemsetAsync(own + block_bytes, 0, bytes - before - block_bytes, stream), "cudaMemsetAsync");
}

}  // namespace

bool runs_on_nccl(CommKind kind) {
    return kind == CommKind::all_reduce || kind == CommKind::all_gather || kind == CommKind::reduce_scatter;
}

std::int64_t Communicators::communicate(kernels::cuda::StreamHandle handle, const Operation& operation) {
    ORRERY_CHECK(operation.group.valid() && !operation.accumulates, "a communication that NCCL does not support");
    const Impl::Group& group = impl_->groups[operation.group.index];
    auto* stream = static_cast<cudaStream_t>(handle.stream);
    const std::int64_t bytes = operation.elements * size_of(operation.dtype);
    if (group.comm == nullptr) {
        if (operation.in == operation.out) return 0;
        check_cuda(cudaMemcpyAsync(operation.out, operation.in, static_cast<std::size_t>(bytes),
                                   cudaMemcpyDeviceToDevice, stream),
                   "cudaMemcpyAsync");
        return 0;
    }
    const auto elements = static_cast<std::size_t>(operation.elements);
    const std::size_t block = elements / static_cast<std::size_t>(group.members);
    const ncclDataType_t type = type_of(operation.dtype);
    const ncclRedOp_t reduce = reduction_of(operation.reduce);
    const Nccl& nccl = *impl_->nccl;
    const std::int64_t sent = bytes * (group.members - 1) / group.members;
    switch (operation.kind) {
        case CommKind::all_reduce:
            nccl.check(nccl.all_reduce(operation.in, operation.out, elements, type, reduce, group.comm, stream),
                       "ncclAllReduce");
            return 2 * sent;
        case CommKind::all_gather:
            nccl.check(nccl.all_gather(operation.in, operation.out, block, type, group.comm, stream), "ncclAllGather");
            return sent;
        case CommKind::reduce_scatter:
            nccl.check(nccl.reduce_scatter(operation.in, operation.out, block, type, reduce, group.comm, stream),
                       "ncclReduceScatter");
            if (operation.consumes) {
                clear_others(operation, block * static_cast<std::size_t>(size_of(operation.dtype)),
                             static_cast<std::size_t>(bytes), stream);
            }
            return sent;
        default:
            throw_bug(__FILE__, __LINE__, "CommKind",
                      std::string(program::name_of(operation.kind)) + " does not run on NCCL");
    }
}

void Communicators::check_health() const {
    for (const Impl::Group& group : impl_->groups) {
        if (group.comm == nullptr) continue;
        ncclResult_t state = ncclSuccess;
        impl_->nccl->check(impl_->nccl->async_error(group.comm, &state), "ncclCommGetAsyncError");
        if (state != ncclInProgress) impl_->nccl->check(state, "NCCL");
    }
}

}  // namespace orrery::exec
