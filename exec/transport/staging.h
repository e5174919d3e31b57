// Staging buffers of collectives.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace orrery::exec {

/// Scratch memory for one column, aligned for vector loads. It never shrinks, because a stream's operations repeat in
/// every step.
class Staging {
  public:
    std::byte* at_least(std::int64_t bytes) {
        if (bytes > capacity_) {
            memory_.reset(static_cast<std::byte*>(::operator new(static_cast<std::size_t>(bytes), kAlignment)));
            capacity_ = bytes;
        }
        return memory_.get();
    }

  private:
    static constexpr std::align_val_t kAlignment{64};
    struct Release {
        void operator()(std::byte* memory) const { ::operator delete(memory, kAlignment); }
    };
    std::unique_ptr<std::byte, Release> memory_;
    std::int64_t capacity_ = 0;
};

}  // namespace orrery::exec
