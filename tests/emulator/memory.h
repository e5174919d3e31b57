// The memory of an emulated device. The device opens each block at its first access, since most of the time it only
// looks whether its peers have arrived. Host code cannot touch a block that is not open, and waiting for the device
// closes all. Fresh memory is full of NaN. A block ends at the end of its last page, followed by a page that nobody can
// touch. What is written in front of a block is found when it is freed.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>

namespace emulated {

enum class Place { device, pinned, pageable };

/// Not thread-safe: the device calls it under its lock. A signal handler may call open(), is_device_memory() and
/// is_unlocked() at any time.
class Memory {
  public:
    explicit Memory(std::int64_t device_bytes);

    /// Null if the device has less. A block of 0 bytes is null, too.
    [[nodiscard]] void* allocate(std::int64_t bytes);
    [[nodiscard]] void* allocate_pinned(std::int64_t bytes);
    /// False if there is no such block.
    [[nodiscard]] bool free(void* memory);
    [[nodiscard]] bool free_pinned(void* memory);
    /// Accounts memory that a library takes on the device; negative to give it back.
    void reserve(std::int64_t bytes) { reserved_ += bytes; }
    [[nodiscard]] std::int64_t total() const { return total_; }
    [[nodiscard]] std::int64_t used() const { return used_ + reserved_; }

    [[nodiscard]] Place place_of(const void* memory) const;
    /// Whether all of these bytes are in one block of the place of the first.
    [[nodiscard]] bool is_whole(const void* memory, std::size_t bytes) const;

    /// The device works: its accesses open blocks.
    void unlock() { unlocked_ = true; }
    /// The device rests: no further block is opened. Open ones stay so, since it often goes on before the host has
    /// waited.
    void rest() { unlocked_ = false; }
    /// The host has waited for the device: all blocks are closed.
    void lock();
    [[nodiscard]] bool is_unlocked() const { return unlocked_; }
    /// After an access failed: makes the block accessible if the device may touch it. False if it may not.
    [[nodiscard]] bool open(const void* memory);
    [[nodiscard]] bool is_device_memory(const void* memory) const;

  private:
    struct Block {
        void* mapping = nullptr;  // of device memory: the padding, the pages and the page behind them
        std::size_t mapped_bytes = 0;
        std::byte* pages = nullptr;  // accessible while the block is open; it ends with them
        std::size_t page_bytes = 0;
        std::size_t bytes = 0;
        bool is_pinned = false;
        mutable bool is_open = false;
    };
    /// Keeps the map from changing while a signal handler reads it.
    class Guard {
      public:
        explicit Guard(std::atomic_flag& flag) : flag_(flag) {
            while (flag_.test_and_set(std::memory_order_acquire)) {
            }
        }
        ~Guard() { flag_.clear(std::memory_order_release); }
        Guard(const Guard&) = delete;
        Guard& operator=(const Guard&) = delete;

      private:
        std::atomic_flag& flag_;
    };
    using Blocks = std::map<const std::byte*, Block>;

    [[nodiscard]] static bool is_written_before(const Block& block);
    void add(std::byte* memory, const Block& block);
    void erase(Blocks::iterator block);
    [[nodiscard]] const Block* find(const void* memory) const;
    Blocks blocks_;
    std::int64_t total_ = 0, used_ = 0, reserved_ = 0;
    mutable std::atomic_flag in_use_;  // by a thread that changes the map, or by a signal handler
    std::atomic<bool> unlocked_ = false;
    bool has_open_ = false;
};

/// From now on a host access to device memory, or a device access to memory that it may not touch, ends the process
/// with a message that says so.
void explain_faults(Memory& memory);

}  // namespace emulated
