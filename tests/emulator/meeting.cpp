#include "tests/emulator/meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "tests/emulator/fatal.h"

namespace emulated {
namespace {

struct Header {
    alignas(64) std::atomic<std::int32_t> present;
};

/// Without the mailboxes, which come last.
std::size_t bytes_of_collectives(int ranks) {
    return sizeof(Header) + static_cast<std::size_t>(ranks) * (sizeof(Seat) + kChunkBytes);
}

/// Pages that nobody touches take no memory.
std::size_t bytes_for(int ranks) {
    return bytes_of_collectives(ranks) +
           static_cast<std::size_t>(ranks) * static_cast<std::size_t>(ranks) * sizeof(Mailbox);
}

}  // namespace

void pause_briefly() {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
}

Address Meeting::make(int ranks) {
    const int file = memfd_create("emulated-nccl", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, static_cast<off_t>(bytes_for(ranks))) != 0) die("no memory for a communicator");
    return {static_cast<std::int32_t>(getpid()), file};
}

Meeting::Meeting(const Address& address, int ranks) : ranks_(ranks), bytes_(bytes_for(ranks)) {
    const std::string path = "/proc/" + std::to_string(address.process) + "/fd/" + std::to_string(address.file);
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file < 0) die("cannot open the memory of a communicator, " + path);
    void* const memory = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) die("cannot map the memory of a communicator");
    memory_ = static_cast<std::byte*>(memory);
    auto& header = *reinterpret_cast<Header*>(memory_);
    ++header.present;
    while (header.present < ranks_) pause_briefly();
}

Meeting::~Meeting() {
    munmap(memory_, bytes_);
}

Seat& Meeting::seat(int rank) const {
    return reinterpret_cast<Seat*>(memory_ + sizeof(Header))[rank];
}

std::byte* Meeting::chunk(int rank) const {
    return memory_ + sizeof(Header) + static_cast<std::size_t>(ranks_) * sizeof(Seat) +
           static_cast<std::size_t>(rank) * kChunkBytes;
}

Mailbox& Meeting::mailbox(int from, int to) const {
    return reinterpret_cast<Mailbox*>(memory_ + bytes_of_collectives(ranks_))[from * ranks_ + to];
}

}  // namespace emulated
