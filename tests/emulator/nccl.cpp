// The emulated NCCL: ranks are processes of one machine, which meet in shared memory. Sums are in the order of the
// ranks. As with the real library on one machine, nobody is told when a rank dies: the others wait until they are
// aborted.
#include <nccl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "tests/emulator/combine.h"
#include "tests/emulator/device.h"
#include "tests/emulator/fatal.h"
#include "tests/emulator/meeting.h"

using emulated::Collective;
using emulated::Device;
using emulated::Meeting;
using emulated::Progress;
using emulated::Seat;
using emulated::Wish;

struct ncclComm {
    ncclComm(const emulated::Address& address, int ranks, int of_rank, std::int64_t bytes)
        : meeting(address, ranks), rank(of_rank), device_bytes(bytes) {
        Device::instance().reserve(device_bytes);
    }
    ~ncclComm() { Device::instance().reserve(-device_bytes); }
    ncclComm(const ncclComm&) = delete;
    ncclComm& operator=(const ncclComm&) = delete;

    Meeting meeting;
    int rank;
    std::int64_t device_bytes;
    std::uint64_t queued = 0;  // collectives
    std::uint64_t chunks = 0;  // of the collectives that are done
    std::uint64_t splits = 0;
    std::atomic<ncclResult_t> error = ncclSuccess;

    [[nodiscard]] std::uint64_t wanted() const {
        std::uint64_t most = 0;
        for (int other = 0; other < meeting.ranks(); ++other) {
            if (other != rank) most = std::max(most, meeting.seat(other).begun.load());
        }
        return most;
    }
    template <typename Counter>
    [[nodiscard]] bool all(Counter Seat::*counter, std::uint64_t at_least) const {
        for (int other = 0; other < meeting.ranks(); ++other) {
            if ((meeting.seat(other).*counter).load() < at_least) return false;
        }
        return true;
    }
};

namespace {

// What connections and buffers take on the device. Not NVIDIA's figures: enough to see whether they are counted.
constexpr std::int64_t kOwnBytes = std::int64_t{48} << 20U;
constexpr std::int64_t kSharedBytes = std::int64_t{2} << 20U;

enum Kind : std::int32_t { all_reduce = 1, all_gather, reduce_scatter };

const char* name_of(std::int32_t kind) {
    return kind == all_reduce ? "an all-reduce" : kind == all_gather ? "an all-gather" : "a reduce-scatter";
}

/// One collective of this rank, while it goes on. Each chunk holds a piece of every block that this rank contributes.
struct Exchange {
    ncclComm* comm;
    Wish wish;
    std::uint64_t number;
    const std::byte* in;
    std::byte* out;
    std::size_t element_bytes;
    std::size_t block_bytes;  // all-reduce: of everything
    std::size_t blocks;       // that this rank contributes
    std::size_t done = 0;     // bytes of each block
    bool has_begun = false, has_written = false, fails = false;

    Progress step();
    void write(std::size_t bytes) const;
    void check_wishes() const;
    void read(std::size_t bytes) const;
};

void Exchange::write(std::size_t bytes) const {
    for (std::size_t block = 0; block < blocks; ++block) {
        emulated::note_read(in + block * block_bytes + done, bytes);
        std::memcpy(comm->meeting.chunk(comm->rank) + block * bytes, in + block * block_bytes + done, bytes);
    }
}

void Exchange::check_wishes() const {
    for (int other = 0; other < comm->meeting.ranks(); ++other) {
        const Wish& one = comm->meeting.seat(other).wishes[number % 2];
        if (one == wish) continue;
        const auto text = [](int rank, const Wish& of) {
            return "rank " + std::to_string(rank) + " " + name_of(of.kind) + " of " + std::to_string(of.count) +
                   " elements of type " + std::to_string(of.type);
        };
        emulated::die("the ranks of a communicator call different collectives as number " + std::to_string(number) +
                      ": " + text(comm->rank, wish) + ", " + text(other, one));
    }
}

void Exchange::read(std::size_t bytes) const {
    const int ranks = comm->meeting.ranks();
    const std::size_t blocks_out = wish.kind == all_gather ? static_cast<std::size_t>(ranks) : 1;
    for (std::size_t block = 0; block < blocks_out; ++block) {
        emulated::note_write(out + block * block_bytes + done, bytes);
    }
    if (wish.kind == all_gather) {
        for (int other = 0; other < ranks; ++other) {
            std::memcpy(out + static_cast<std::size_t>(other) * block_bytes + done, comm->meeting.chunk(other), bytes);
        }
        return;
    }
    const std::size_t mine = wish.kind == reduce_scatter ? static_cast<std::size_t>(comm->rank) * bytes : 0;
    std::vector<const std::byte*> parts;
    for (int other = 0; other < ranks; ++other) parts.push_back(comm->meeting.chunk(other) + mine);
    emulated::combine(parts, out + done, bytes / element_bytes, static_cast<ncclDataType_t>(wish.type),
                      static_cast<ncclRedOp_t>(wish.reduce));
}

Progress Exchange::step() {
    Seat& seat = comm->meeting.seat(comm->rank);
    if (!has_begun) {
        has_begun = true;
        fails = Device::instance().collective_fails();
        if (fails) comm->error = ncclRemoteError;
        seat.wishes[number % 2] = wish;
        seat.begun = number;
    }
    if (fails) return Progress::waits;  // until it is aborted
    constexpr std::size_t kAlignment = 16;
    const std::size_t most = emulated::kChunkBytes / blocks / kAlignment * kAlignment;
    for (;;) {
        const std::size_t bytes = std::min(most, block_bytes - done);
        if (!has_written) {
            if (!comm->all(&Seat::read, comm->chunks)) return Progress::waits;
            write(bytes);
            has_written = true;
            seat.written = comm->chunks + 1;
        }
        if (!comm->all(&Seat::written, comm->chunks + 1)) return Progress::waits;
        if (done == 0) check_wishes();
        read(bytes);
        seat.read = ++comm->chunks;
        has_written = false;
        done += bytes;
        if (done == block_bytes) return Progress::done;
    }
}

/// Queues a collective, whose parts have this many elements.
ncclResult_t queue(ncclComm* comm, cudaStream_t stream, Wish wish, const void* in, void* out, std::size_t parts_in,
                   std::size_t parts_out) {
    const std::size_t element = emulated::size_of(static_cast<ncclDataType_t>(wish.type));
    const std::size_t bytes = wish.count * element;
    Device& device = Device::instance();
    for (const auto& [memory, parts] : {std::pair<const void*, std::size_t>{in, parts_in}, {out, parts_out}}) {
        if (bytes == 0) continue;
        if (device.place_of(memory) == emulated::Place::pageable || !device.is_whole(memory, parts * bytes)) {
            return ncclInvalidArgument;
        }
    }
    Exchange exchange{.comm = comm,
                      .wish = wish,
                      .number = ++comm->queued,
                      .in = static_cast<const std::byte*>(in),
                      .out = static_cast<std::byte*>(out),
                      .element_bytes = element,
                      .block_bytes = bytes,
                      .blocks = parts_in};
    const Collective collective{comm, comm->queued, [comm] { return comm->wanted(); }};
    const auto step = [exchange]() mutable { return exchange.step(); };
    return device.queue(stream, step, collective) == cudaSuccess ? ncclSuccess : ncclUnhandledCudaError;
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
    if (used + kOwnBytes > all) return ncclUnhandledCudaError;
    *comm = new ncclComm(address, ranks, rank, kOwnBytes);
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
        *part = new ncclComm(address, ranks, static_cast<int>(me), shares ? kSharedBytes : kOwnBytes);
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
    return queue(comm, stream, {all_reduce, type, reduce, count}, in, out, 1, 1);
}

ncclResult_t ncclAllGather(const void* in, void* out, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream) {
    const auto ranks = static_cast<std::size_t>(comm->meeting.ranks());
    return queue(comm, stream, {all_gather, type, 0, count}, in, out, 1, ranks);
}

ncclResult_t ncclReduceScatter(const void* in, void* out, size_t count, ncclDataType_t type, ncclRedOp_t reduce,
                               ncclComm_t comm, cudaStream_t stream) {
    const auto ranks = static_cast<std::size_t>(comm->meeting.ranks());
    return queue(comm, stream, {reduce_scatter, type, reduce, count}, in, out, ranks, 1);
}

}  // extern "C"
