#include <cstring>
#include <string>

#include "tests/emulator/combine.h"
#include "tests/emulator/communicator.h"
#include "tests/emulator/fatal.h"

namespace emulated {
namespace {

const char* name_of(std::int32_t kind) {
    switch (kind) {
        case all_reduce:
            return "an all-reduce";
        case all_gather:
            return "an all-gather";
        case reduce_scatter:
            return "a reduce-scatter";
        case all_to_all:
            return "an all-to-all";
        case broadcast:
            return "a broadcast";
        case reduce:
            return "a reduce";
        case gather:
            return "a gather";
        case scatter:
            return "a scatter";
        default:
            return "messages";
    }
}

std::string text_of(int rank, const Wish& wish) {
    return "rank " + std::to_string(rank) + " " + name_of(wish.kind) + " of " + std::to_string(wish.count) +
           " elements of type " + std::to_string(wish.type) + " with root " + std::to_string(wish.root);
}

/// True if the operation is the one that is to fail.
bool begin(ncclComm* comm, std::uint64_t number, const Wish& wish) {
    Seat& seat = comm->meeting.seat(comm->rank);
    const bool fails = Device::instance().collective_fails();
    if (fails) comm->error = ncclRemoteError;
    seat.wishes[number % 2] = wish;
    seat.begun = number;
    return fails;
}

}  // namespace

std::size_t blocks_in(const ncclComm& comm, std::int32_t kind) {
    const bool several = kind == reduce_scatter || kind == all_to_all || kind == scatter;
    return several ? static_cast<std::size_t>(comm.meeting.ranks()) : 1;
}

std::size_t blocks_out(const ncclComm& comm, std::int32_t kind) {
    const bool several = kind == all_gather || kind == all_to_all || kind == gather;
    return several ? static_cast<std::size_t>(comm.meeting.ranks()) : 1;
}

void Exchange::write(std::size_t bytes) const {
    if (in == nullptr) return;
    for (std::size_t block = 0; block < blocks_in(*comm, wish.kind); ++block) {
        const std::byte* const from = in + block * block_bytes + done;
        note_read(from, bytes);
        const OwnAccesses own;
        std::memcpy(comm->meeting.chunk(comm->rank) + block * bytes, from, bytes);
    }
}

void Exchange::check_wishes() const {
    for (int other = 0; other < comm->meeting.ranks(); ++other) {
        const Wish& one = comm->meeting.seat(other).wishes[number % 2];
        if (one == wish) continue;
        die("the ranks of a communicator call different collectives as number " + std::to_string(number) + ": " +
            text_of(comm->rank, wish) + ", " + text_of(other, one));
    }
}

/// Of the kinds that do not reduce: block i of the output is from rank i, or the only one from the root.
void Exchange::copy_blocks(std::size_t bytes) const {
    const bool for_me = wish.kind == all_to_all || wish.kind == scatter;
    const std::size_t offset = for_me ? static_cast<std::size_t>(comm->rank) * bytes : 0;
    const std::size_t blocks = blocks_out(*comm, wish.kind);
    const OwnAccesses own;
    for (std::size_t block = 0; block < blocks; ++block) {
        const int from = blocks > 1 ? static_cast<int>(block) : wish.root;
        std::memcpy(out + block * block_bytes + done, comm->meeting.chunk(from) + offset, bytes);
    }
}

void Exchange::read(std::size_t bytes) const {
    if (out == nullptr) return;
    for (std::size_t block = 0; block < blocks_out(*comm, wish.kind); ++block) {
        note_write(out + block * block_bytes + done, bytes);
    }
    if (wish.kind != all_reduce && wish.kind != reduce && wish.kind != reduce_scatter) return copy_blocks(bytes);
    const std::size_t mine = wish.kind == reduce_scatter ? static_cast<std::size_t>(comm->rank) * bytes : 0;
    std::vector<const std::byte*> parts;
    for (int other = 0; other < comm->meeting.ranks(); ++other) parts.push_back(comm->meeting.chunk(other) + mine);
    combine(parts, out + done, bytes / element_bytes, static_cast<ncclDataType_t>(wish.type),
            static_cast<ncclRedOp_t>(wish.reduce));
}

Progress Exchange::step() {
    Seat& seat = comm->meeting.seat(comm->rank);
    if (!has_begun) {
        has_begun = true;
        fails = begin(comm, number, wish);
    }
    if (fails) return Progress::waits;  // until it is aborted
    constexpr std::size_t kAlignment = 16;
    const std::size_t most = kChunkBytes / blocks_in(*comm, wish.kind) / kAlignment * kAlignment;
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

/// True if the message is done.
bool MessageGroup::advance(Message& message) const {
    Mailbox& box = message.sends ? comm->meeting.mailbox(comm->rank, message.peer)
                                 : comm->meeting.mailbox(message.peer, comm->rank);
    for (;;) {
        const std::size_t bytes = std::min(sizeof box.memory, message.bytes - message.done);
        if (message.sends) {
            if (box.read < box.written) return false;
            if (bytes == 0) return true;
            note_read(message.memory + message.done, bytes);
            const OwnAccesses own;
            std::memcpy(box.memory, message.memory + message.done, bytes);
            box.message_bytes = message.bytes;
            message.done += bytes;
            ++box.written;
        } else {
            if (bytes == 0) return true;
            if (box.read == box.written) return false;
            if (box.message_bytes != message.bytes) {
                die("rank " + std::to_string(message.peer) + " sends " + std::to_string(box.message_bytes) +
                    " bytes, of which rank " + std::to_string(comm->rank) + " receives " +
                    std::to_string(message.bytes));
            }
            note_write(message.memory + message.done, bytes);
            const OwnAccesses own;
            std::memcpy(message.memory + message.done, box.memory, bytes);
            message.done += bytes;
            ++box.read;
        }
    }
}

Progress MessageGroup::step() {
    if (!has_begun) {
        // A rank may not be two operations ahead of one that still compares what they want of a collective.
        if (!comm->all(&Seat::read, comm->chunks)) return Progress::waits;
        has_begun = true;
        fails = begin(comm, number, {.kind = messages});
    }
    if (fails) return Progress::waits;
    // Messages of one pair are in order.
    std::vector<std::pair<bool, int>> blocked;
    std::vector<Message> left;
    for (Message& one : list) {
        const std::pair<bool, int> pair{one.sends, one.peer};
        const bool waits = std::find(blocked.begin(), blocked.end(), pair) != blocked.end();
        if (!waits && advance(one)) continue;
        blocked.push_back(pair);
        left.push_back(one);
    }
    list = left;
    return list.empty() ? Progress::done : Progress::waits;
}

}  // namespace emulated
