#include "tests/emulator/memory.h"

#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "tests/emulator/emulated_memory.h"
#include "tests/emulator/fatal.h"

namespace emulated {
namespace {

constexpr std::size_t kHugePage = std::size_t{2} << 20U, kLarge = kHugePage / 8;
constexpr std::size_t kAlignment = 256;  // of a block's beginning, as cudaMalloc guarantees

std::size_t page() {
    static const auto bytes = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    return bytes;
}
std::size_t rounded(std::size_t bytes, std::size_t to) {
    return (bytes + to - 1) / to * to;
}

Memory* explained = nullptr;

void explain(int signal, siginfo_t* info, void*) {
    if (explained->open(info->si_addr)) return;  // the access is repeated
    const char* const text =
        explained->is_device_memory(info->si_addr) ? "emulated CUDA: host code touched device memory\n"
        : explained->is_unlocked()                 ? "emulated CUDA: device code touched memory outside of its blocks\n"
                                                   : nullptr;
    if (text != nullptr) static_cast<void>(!write(STDERR_FILENO, text, std::strlen(text)));
    ::signal(signal, SIG_DFL);
    raise(signal);
}

}  // namespace

Memory::Memory(std::int64_t device_bytes) : total_(device_bytes), used_(kContextBytes) {}

/// A block's end is followed by a page that stays inaccessible. A large block is padded in front to whole huge pages,
/// because to open and to close it takes as long as it has pages.
void* Memory::allocate(std::int64_t bytes) {
    if (bytes == 0) return nullptr;
    const std::size_t size = rounded(static_cast<std::size_t>(bytes), kAlignment);
    if (used() + static_cast<std::int64_t>(size) > total_) return nullptr;
    const std::size_t unit = size < kLarge ? page() : kHugePage;
    const std::size_t page_bytes = rounded(size, unit), mapped_bytes = page_bytes + unit + page();
    void* const mapping = mmap(nullptr, mapped_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapping == MAP_FAILED) return nullptr;
    std::byte* const pages =
        static_cast<std::byte*>(mapping) + (unit - reinterpret_cast<std::uintptr_t>(mapping) % unit);
    mprotect(pages, page_bytes, PROT_READ | PROT_WRITE);
    madvise(pages, page_bytes, MADV_HUGEPAGE);
    std::memset(pages, 0xff, page_bytes);
    mprotect(pages, page_bytes, PROT_NONE);
    std::byte* const memory = pages + (page_bytes - size);
    add(memory,
        {.mapping = mapping, .mapped_bytes = mapped_bytes, .pages = pages, .page_bytes = page_bytes, .bytes = size});
    used_ += static_cast<std::int64_t>(size);
    return memory;
}

void* Memory::allocate_pinned(std::int64_t bytes) {
    if (bytes == 0) return nullptr;
    const std::size_t page_bytes = rounded(static_cast<std::size_t>(bytes), page());
    void* const pages = mmap(nullptr, page_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return nullptr;
    std::memset(pages, 0xff, page_bytes);
    auto* const memory = static_cast<std::byte*>(pages);
    add(memory, {.mapping = pages,
                 .mapped_bytes = page_bytes,
                 .pages = memory,
                 .page_bytes = page_bytes,
                 .bytes = static_cast<std::size_t>(bytes),
                 .is_pinned = true});
    return pages;
}

bool Memory::free(void* memory) {
    const auto found = blocks_.find(static_cast<std::byte*>(memory));
    if (found == blocks_.end() || found->second.is_pinned) return false;
    const Block block = found->second;
    erase(found);
    const bool was_written = is_written_before(block);
    munmap(block.mapping, block.mapped_bytes);
    used_ -= static_cast<std::int64_t>(block.bytes);
    if (was_written) die("device code wrote in front of a block");
    return true;
}

bool Memory::free_pinned(void* memory) {
    const auto found = blocks_.find(static_cast<std::byte*>(memory));
    if (found == blocks_.end() || !found->second.is_pinned) return false;
    const Block block = found->second;
    erase(found);
    munmap(block.mapping, block.mapped_bytes);
    return true;
}

/// Whether anybody has changed the padding.
bool Memory::is_written_before(const Block& block) {
    mprotect(block.pages, block.page_bytes, PROT_READ);
    const std::byte *const begin = block.pages, *const memory = begin + (block.page_bytes - block.bytes);
    return std::any_of(begin, memory, [](std::byte one) { return one != std::byte{0xff}; });
}

const Memory::Block* Memory::find(const void* memory) const {
    const auto* const at = static_cast<const std::byte*>(memory);
    auto after = blocks_.upper_bound(at);
    if (after == blocks_.begin()) return nullptr;
    --after;
    return at < after->first + after->second.bytes ? &after->second : nullptr;
}

Place Memory::place_of(const void* memory) const {
    const Block* const block = find(memory);
    if (block == nullptr) return Place::pageable;
    return block->is_pinned ? Place::pinned : Place::device;
}

bool Memory::is_whole(const void* memory, std::size_t bytes) const {
    const Block* const block = find(memory);
    if (block == nullptr) return bytes == 0 || find(static_cast<const std::byte*>(memory) + bytes - 1) == nullptr;
    const std::byte* const begin = block->is_pinned ? block->pages : block->pages + (block->page_bytes - block->bytes);
    return static_cast<const std::byte*>(memory) + bytes <= begin + block->bytes;
}

void Memory::add(std::byte* memory, const Block& block) {
    const Guard guard(in_use_);
    blocks_[memory] = block;
}

void Memory::erase(Blocks::iterator block) {
    const Guard guard(in_use_);
    blocks_.erase(block);
}

bool Memory::is_device_memory(const void* memory) const {
    const Guard guard(in_use_);
    return place_of(memory) == Place::device;
}

bool Memory::open(const void* memory) {
    const Guard guard(in_use_);
    if (!unlocked_) return false;
    const Block* const block = find(memory);
    if (block == nullptr || block->is_pinned) return false;
    if (block->is_open) return true;  // another thread has opened it since the access
    if (mprotect(block->pages, block->page_bytes, PROT_READ | PROT_WRITE) != 0) return false;
    block->is_open = has_open_ = true;
    return true;
}

void Memory::lock() {
    const Guard guard(in_use_);
    unlocked_ = false;
    if (!has_open_) return;
    for (const auto& [memory, block] : blocks_) {
        if (!block.is_open) continue;
        mprotect(block.pages, block.page_bytes, PROT_NONE);
        block.is_open = false;
    }
    has_open_ = false;
}

void explain_faults(Memory& memory) {
    explained = &memory;
    struct sigaction action {};
    action.sa_sigaction = explain;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigaction(SIGSEGV, &action, nullptr);
}

}  // namespace emulated
