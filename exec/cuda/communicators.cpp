#include "exec/cuda/communicators.h"

#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <future>
#include <map>
#include <numeric>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "exec/cuda/check.h"
#include "kernels/cuda/library.h"

namespace orrery::exec {
namespace {

using program::CommKind;

/// Variables that NCCL reads when it is loaded; the user's values stay.
/// - NCCL_LAUNCH_ORDER_IMPLICIT: collectives of different communicators begin in the order in which they were queued,
/// the
///   same on all ranks. Otherwise two of them may each hold a part of the devices and wait for the other part.
/// - NCCL_RUNTIME_CONNECT: connect everything at the start, not when an algorithm is first used, when the device has no
///   memory left.
void set_up_environment() {
    setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", 0);
    setenv("NCCL_RUNTIME_CONNECT", "0", 0);
}

/// The functions of NCCL, which is loaded only if a group has several ranks.
struct Nccl {
    Nccl() { set_up_environment(); }
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

    void check(ncclResult_t result, const char* call) const {
        if (result == ncclSuccess) return;
        const std::string details = last_error(nullptr);
        throw JobError(std::string(call) + ": " + error_text(result) + (details.empty() ? "" : ": " + details));
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
        std::int64_t me = 0;  // index in the group
    };
    Transport& transport;
    std::unique_ptr<Nccl> nccl;
    std::vector<ncclComm_t> made;  // of all ranks first, then its parts
    std::map<std::vector<int>, ncclComm_t> by_members;
    IndexedVector<GroupIndex, Group> groups;
    int exceptions = std::uncaught_exceptions();

    void make_world();
    void make_parts(const std::vector<std::vector<int>>& of_ranks);
    void connect(cudaStream_t stream, float* scratch);
    void check_health() const;
    void keep(ncclComm_t comm, const std::vector<int>& ranks);
    void abort_all();
};

namespace {

/// "0,1,2".
std::string text_of(const std::vector<int>& ranks) {
    std::string text;
    for (const int rank : ranks) text += std::to_string(rank) + ",";
    return text;
}
std::vector<int> ranks_of(const std::string& text) {
    std::vector<int> ranks;
    std::istringstream numbers(text);
    for (std::string one; std::getline(numbers, one, ',');) ranks.push_back(std::stoi(one));
    return ranks;
}

/// On every rank the texts of all ranks, which hold no line break.
std::vector<std::string> all_of(Transport& transport, const std::string& mine) {
    std::string all;
    for (const std::string& one : transport.gather(mine)) all += one + "\n";
    std::istringstream lines(transport.broadcast(all));
    std::vector<std::string> result;
    for (std::string line; std::getline(lines, line);) result.push_back(line);
    return result;
}

}  // namespace

void Communicators::Impl::keep(ncclComm_t comm, const std::vector<int>& ranks) {
    made.push_back(comm);
    by_members[ranks] = comm;
    transport.recorder().count_instruction();
}

/// The communicator of all ranks.
void Communicators::Impl::make_world() {
    nccl = std::make_unique<Nccl>();
    ncclUniqueId id{};
    if (transport.rank() == 0) nccl->check(nccl->get_id(&id), "ncclGetUniqueId");
    const std::string bytes = transport.broadcast(std::string(id.internal, sizeof id.internal));
    std::memcpy(id.internal, bytes.data(), sizeof id.internal);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    ncclComm_t comm = nullptr;
    nccl->check(nccl->init_rank(&comm, transport.world_size(), id, transport.rank(), &config),
                "ncclCommInitRankConfig");
    std::vector<int> ranks(static_cast<std::size_t>(transport.world_size()));
    std::iota(ranks.begin(), ranks.end(), 0);
    keep(comm, ranks);
}

/// The communicators of an axis, whose groups have no common rank. Groups that have one already are left out.
void Communicators::Impl::make_parts(const std::vector<std::vector<int>>& of_ranks) {
    const std::vector<int>& mine = of_ranks[static_cast<std::size_t>(transport.rank())];
    const bool is_new = mine.size() > 1 && !by_members.contains(mine);
    // All ranks take part in a split, those without a new group as members of no part. Whether any has one is the same
    // question on all of them.
    if (transport.first_of(is_new ? "new" : "").empty()) return;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.splitShare = 1;
    ncclComm_t part = nullptr;
    const int color = is_new ? mine.front() : NCCL_SPLIT_NOCOLOR;
    const auto key = static_cast<int>(std::find(mine.begin(), mine.end(), transport.rank()) - mine.begin());
    nccl->check(nccl->split(made.front(), color, key, &part, &config), "ncclCommSplit");
    if (is_new) keep(part, mine);
}

/// Runs a collective on every communicator, which also shows that each works. Waits by asking, because a communicator
/// that has failed never completes it.
void Communicators::Impl::connect(cudaStream_t stream, float* scratch) {
    constexpr std::chrono::microseconds kPollInterval{100};
    cudaEvent_t done = nullptr;
    check_cuda(cudaEventCreate(&done), "cudaEventCreate");
    for (const ncclComm_t comm : made) {
        nccl->check(nccl->all_reduce(scratch, scratch, 1, ncclFloat32, ncclSum, comm, stream), "ncclAllReduce");
        check_cuda(cudaEventRecord(done, stream), "cudaEventRecord");
        for (cudaError_t state = cudaErrorNotReady; state == cudaErrorNotReady;) {
            check_health();
            state = cudaEventQuery(done);
            if (state != cudaErrorNotReady) check_cuda(state, "cudaEventQuery");
            std::this_thread::sleep_for(kPollInterval);
        }
        static_cast<void>(cudaGetLastError());  // of the queries that were not ready
        transport.recorder().count_instruction();
    }
    check_cuda(cudaEventDestroy(done), "cudaEventDestroy");
}

void Communicators::Impl::check_health() const {
    for (const ncclComm_t comm : made) {
        ncclResult_t state = ncclSuccess;
        nccl->check(nccl->async_error(comm, &state), "ncclCommGetAsyncError");
        if (state != ncclInProgress) nccl->check(state, "NCCL");
    }
}

Communicators::Communicators(const AxisMembers& members, Transport& transport, kernels::cuda::StreamHandle stream,
                             float* scratch)
    : impl_(new Impl{.transport = transport}) {
    program::PerAxis<std::vector<std::string>> texts;  // by rank: its group on the axis, "" if that has no other member
    for (const program::GroupAxis axis : program::kAxes) {
        texts[axis] = all_of(transport, members[axis].size() > 1 ? text_of(members[axis]) : "");
    }
    const bool any = std::any_of(texts.begin(), texts.end(), [](const std::vector<std::string>& of_axis) {
        return std::any_of(of_axis.begin(), of_axis.end(), [](const std::string& one) { return !one.empty(); });
    });
    if (any) impl_->make_world();
    for (const program::GroupAxis axis : program::kAxes) {
        std::vector<std::vector<int>> of_ranks;
        for (const std::string& one : texts[axis]) of_ranks.push_back(ranks_of(one));
        if (any) impl_->make_parts(of_ranks);
        const GroupIndex group = impl_->groups.add({});
        if (members[axis].empty()) continue;
        groups_[axis].index = group;
        if (members[axis].size() < 2) continue;
        const auto me = std::find(members[axis].begin(), members[axis].end(), transport.rank());
        impl_->groups.back() = {impl_->by_members.at(members[axis]), std::ssize(members[axis]),
                                me - members[axis].begin()};
    }
    if (any) impl_->connect(static_cast<cudaStream_t>(stream.stream), scratch);
}

/// Ends communication that other ranks will never complete. NCCL may itself wait forever here, so a thread of its own
/// does it, which the process does not wait for long: it is about to end.
void Communicators::Impl::abort_all() {
    constexpr std::chrono::seconds kPatience{5};
    std::promise<void> done;
    std::future<void> ended = done.get_future();
    std::thread([comms = made, abort = nccl->abort, done = std::move(done)]() mutable {
        for (const ncclComm_t comm : comms) abort(comm);
        done.set_value();
    }).detach();
    static_cast<void>(ended.wait_for(kPatience));
}

Communicators::~Communicators() {
    if (impl_->made.empty()) return;
    if (std::uncaught_exceptions() > impl_->exceptions) {
        impl_->abort_all();
        return;
    }
    // Parts before the whole. All ranks come here, since each has run the whole Program.
    for (const ncclComm_t comm : impl_->made) impl_->nccl->finalize(comm);
    for (auto comm = impl_->made.rbegin(); comm != impl_->made.rend(); ++comm) impl_->nccl->destroy(*comm);
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

/// The elements that a member of a ring sends in an all-reduce: first all blocks but one, to sum them, then all blocks
/// but one that are summed. The blocks differ by at most one element.
std::int64_t all_reduce_elements(std::int64_t elements, std::int64_t members, std::int64_t me) {
    const auto block = [&](std::int64_t at) {
        return elements / members + (at % members < elements % members ? 1 : 0);
    };
    return 2 * elements - block(me + 1) - block(me + 2);
}

/// out += sum. Sends nothing.
std::int64_t add_up(kernels::cuda::StreamHandle stream, const Operation& operation, const void* sum,
                    std::int64_t elements) {
    ORRERY_CHECK(operation.dtype == DType::fp32, "only sums of fp32 accumulate on CUDA");
    kernels::cuda::add(stream, elements, static_cast<const float*>(sum), static_cast<float*>(operation.out));
    return 0;
}

}  // namespace

std::int64_t Communicators::communicate(kernels::cuda::StreamHandle handle, const Operation& operation) {
    ORRERY_CHECK(operation.group.valid() && operation.counts.send == nullptr && !operation.pace.has_value(),
                 "a communication that NCCL does not support");
    const Impl::Group& group = impl_->groups[operation.group.index];
    auto* stream = static_cast<cudaStream_t>(handle.stream);
    const std::int64_t bytes = operation.elements * size_of(operation.dtype);
    if (group.comm == nullptr) {
        if (operation.accumulates) return add_up(handle, operation, operation.in, operation.elements);
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
    const std::int64_t sent = bytes / group.members * (group.members - 1);
    switch (operation.kind) {
        case CommKind::all_reduce:
            nccl.check(nccl.all_reduce(operation.in, operation.out, elements, type, reduce, group.comm, stream),
                       "ncclAllReduce");
            return all_reduce_elements(operation.elements, group.members, group.me) * size_of(operation.dtype);
        case CommKind::all_gather:
            nccl.check(nccl.all_gather(operation.in, operation.out, block, type, group.comm, stream), "ncclAllGather");
            return sent;
        case CommKind::reduce_scatter: {
            // The input of one that accumulates is not needed afterwards, so that this rank's block of it can take the
            // sum.
            const std::size_t block_bytes = block * static_cast<std::size_t>(size_of(operation.dtype));
            auto* const own = static_cast<std::byte*>(const_cast<void*>(operation.in)) +
                              static_cast<std::size_t>(group.me) * block_bytes;
            void* const out = operation.accumulates ? own : operation.out;
            nccl.check(nccl.reduce_scatter(operation.in, out, block, type, reduce, group.comm, stream),
                       "ncclReduceScatter");
            if (operation.accumulates) add_up(handle, operation, own, static_cast<std::int64_t>(block));
            if (operation.consumes) clear_others(operation, block_bytes, static_cast<std::size_t>(bytes), stream);
            return sent;
        }
        default:
            throw_bug(__FILE__, __LINE__, "CommKind",
                      std::string(program::name_of(operation.kind)) + " does not run on NCCL");
    }
}

void Communicators::check_health() const {
    impl_->check_health();
}

}  // namespace orrery::exec
