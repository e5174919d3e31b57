// The emulated NCCL: ranks are processes of one machine, which meet in shared memory. Sums are in the order of the
// ranks. As with the real library on one machine, nobody is told when a rank dies: the others wait until they are
// aborted.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/emulator/combine.h"
#include "tests/emulator/communicator.h"
#include "tests/emulator/device.h"
#include "tests/emulator/emulated_memory.h"
#include "tests/emulator/meeting.h"

using emulated::Collective;
using emulated::Device;
using emulated::Exchange;
using emulated::Meeting;
using emulated::Message;
using emulated::MessageGroup;
using emulated::Seat;
using emulated::Wish;

namespace {

/// The messages since ncclGroupStart.
struct Group {
    int depth = 0;
    std::vector<Message> list;
    ncclComm* comm = nullptr;
    cudaStream_t stream = nullptr;
};
thread_local Group group;

bool is_on_device(const void* memory, std::size_t bytes) {
    Device& device = Device::instance();
    return bytes == 0 || (device.place_of(memory) != emulated::Place::pageable && device.is_whole(memory, bytes));
}

/// Queues an operation of the communicator.
template <typename Operation>
ncclResult_t queue_on(ncclComm* comm, cudaStream_t stream, Operation operation) {
    operation.comm = comm;
    operation.number = ++comm->queued;
    const Collective collective{comm, comm->family, comm->queued, [comm] { return comm->wanted(); }};
    const auto step = [operation]() mutable { return operation.step(); };
    return Device::instance().queue(stream, step, collective) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
}

/// Queues a collective. Null for a buffer that this rank does not use.
ncclResult_t queue(ncclComm* comm, cudaStream_t stream, Wish wish, const void* in, void* out) {
    if (wish.root < 0 || wish.root >= comm->meeting.ranks()) return ncclInvalidArgument;
    const std::size_t element = emulated::size_of(static_cast<ncclDataType_t>(wish.type));
    const std::size_t bytes = wish.count * element;
    if (in != nullptr && !is_on_device(in, emulated::blocks_in(*comm, wish.kind) * bytes)) return ncclInvalidArgument;
    if (out != nullptr && !is_on_device(out, emulated::blocks_out(*comm, wish.kind) * bytes))
        return ncclInvalidArgument;
    return queue_on(comm, stream,
                    Exchange{.comm = nullptr,
                             .wish = wish,
                             .number = 0,
                             .in = static_cast<const std::byte*>(in),
                             .out = static_cast<std::byte*>(out),
                             .element_bytes = element,
                             .block_bytes = bytes});
}

ncclResult_t queue_message(Message message, ncclDataType_t type, size_t count, ncclComm* comm, cudaStream_t stream) {
    message.bytes = count * emulated::size_of(type);
    if (message.peer < 0 || message.peer >= comm->meeting.ranks() || message.peer == comm->rank) {
        return ncclInvalidArgument;
    }
    if (!is_on_device(message.memory, message.bytes)) return ncclInvalidArgument;
    if (group.depth == 0) {
        return queue_on(comm, stream, MessageGroup{.comm = nullptr, .number = 0, .list = {message}});
    }
    if (!group.list.empty() && (group.comm != comm || group.stream != stream)) return ncclInvalidUsage;
    group.comm = comm;
    group.stream = stream;
    group.list.push_back(message);
    return ncclSuccess;
}

/// The file of a part of a communicator: the part's first member makes it and tells the others.
emulated::Address meet_part(ncclComm* comm, int first, int ranks) {
    Seat& leader = comm->meeting.seat(first);
    if (first == comm->rank) {
        leader.part = Meeting::make(ranks);
        leader.made = comm->splits;
    }
    while (leader.made < comm->splits) emulated::pause_briefly();
    return leader.part;
}

}  // namespace

extern "C" {

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    // The number of ranks is not known yet: the file gets its size from the largest communicator of one machine.
    constexpr int kMostRanks = 64;
    const emulated::Address address = Meeting::make(kMostRanks);
    *id = {};
    std::memcpy(id->internal, &address, sizeof address);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank, ncclConfig_t* config) {
    if (rank < 0 || rank >= ranks || config == nullptr || config->magic != 0xcafebeefU) return ncclInvalidArgument;
    const char* const order = std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    if (order != nullptr && std::string(order) == "1") Device::instance().begin_in_order();
    emulated::Address address;
    std::memcpy(&address, id.internal, sizeof address);
    const auto [all, used] = Device::instance().memory_use();
    if (used + emulated::kOwnBytes > all) return ncclUnhandledCudaError;
    *comm = new ncclComm(address, ranks, rank, emulated::kOwnBytes, nullptr);
    if (address.process == static_cast<std::int32_t>(getpid())) close(address.file);
    return ncclSuccess;
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* part, ncclConfig_t* config) {
    *part = nullptr;
    Seat& seat = comm->meeting.seat(comm->rank);
    ++comm->splits;
    seat.color = color;
    seat.key = key;
    seat.chosen = comm->splits;
    while (!comm->all(&Seat::chosen, comm->splits)) emulated::pause_briefly();
    std::vector<std::pair<int, int>> members;  // key and rank
    for (int other = 0; other < comm->meeting.ranks(); ++other) {
        const Seat& one = comm->meeting.seat(other);
        if (one.color == color) members.emplace_back(one.key, other);
    }
    std::sort(members.begin(), members.end());
    if (color != NCCL_SPLIT_NOCOLOR) {
        const int ranks = static_cast<int>(members.size());
        const auto me = std::find(members.begin(), members.end(), std::pair{key, comm->rank}) - members.begin();
        const emulated::Address address = meet_part(comm, members.front().second, ranks);
        const bool shares = config != nullptr && config->splitShare == 1;
        *part = new ncclComm(address, ranks, static_cast<int>(me),
                             shares ? emulated::kSharedBytes : emulated::kOwnBytes, shares ? comm : nullptr);
        if (address.process == static_cast<std::int32_t>(getpid())) close(address.file);
    }
    seat.left = comm->splits;
    while (!comm->all(&Seat::left, comm->splits)) emulated::pause_briefly();
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    Device::instance().finish_collectives(comm);
    return comm->error;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    Device::instance().finish_collectives(comm);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    Device::instance().drop(comm);
    delete comm;
    return ncclSuccess;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    *error = comm->error;
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    constexpr std::array kTexts{"no error",
                                "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
                                "unhandled system error (run with NCCL_DEBUG=INFO for details)",
                                "internal error - please report this issue to the NCCL developers",
                                "invalid argument (run with NCCL_DEBUG=WARN for details)",
                                "invalid usage (run with NCCL_DEBUG=WARN for details)",
                                "remote process exited or there was a network error",
                                "NCCL operation in progress"};
    const auto at = static_cast<std::size_t>(result);
    return at < kTexts.size() ? kTexts[at] : "unknown result code";
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
    return "";
}

ncclResult_t ncclAllReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t reduce,
                           ncclComm_t comm, cudaStream_t stream) {
    return queue(comm, stream, {emulated::all_reduce, type, reduce, 0, count}, in, out);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    return queue(comm, stream, {emulated::all_gather, type, 0, 0, count}, in, out);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t reduce,
                               ncclComm_t comm, cudaStream_t stream) {
    return queue(comm, stream, {emulated::reduce_scatter, type, reduce, 0, count}, in, out);
}

ncclResult_t ncclAlltoAll(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                          cudaStream_t stream) {
    return queue(comm, stream, {emulated::all_to_all, type, 0, 0, count}, in, out);
}

ncclResult_t ncclBroadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream) {
    return queue(comm, stream, {emulated::broadcast, type, 0, root, count}, comm->rank == root ? in : nullptr, out);
}

ncclResult_t ncclReduce(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t reduce, int root,
                        ncclComm_t comm, cudaStream_t stream) {
    return queue(comm, stream, {emulated::reduce, type, reduce, root, count}, in, comm->rank == root ? out : nullptr);
}

ncclResult_t ncclGather(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream) {
    return queue(comm, stream, {emulated::gather, type, 0, root, count}, in, comm->rank == root ? out : nullptr);
}

ncclResult_t ncclScatter(const void* in, void* out, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                         cudaStream_t stream) {
    return queue(comm, stream, {emulated::scatter, type, 0, root, count}, comm->rank == root ? in : nullptr, out);
}

ncclResult_t ncclSend(const void* in, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream) {
    auto* const memory = static_cast<std::byte*>(const_cast<void*>(in));
    return queue_message({.sends = true, .peer = peer, .memory = memory}, type, count, comm, stream);
}

ncclResult_t ncclRecv(void* out, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream) {
    return queue_message({.sends = false, .peer = peer, .memory = static_cast<std::byte*>(out)}, type, count, comm,
                         stream);
}

ncclResult_t ncclGroupStart() {
    ++group.depth;
    return ncclSuccess;
}

/// Collectives in a group were queued when they were called: their order is the same.
ncclResult_t ncclGroupEnd() {
    if (group.depth == 0) return ncclInvalidUsage;
    if (--group.depth > 0 || group.comm == nullptr) return ncclSuccess;
    const Group done = std::exchange(group, {});
    return queue_on(done.comm, done.stream, MessageGroup{.comm = nullptr, .number = 0, .list = done.list});
}

}  // extern "C"
