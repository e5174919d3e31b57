// What the sanitizers must be told about code that switches stacks, and about order that they cannot see. Nothing
// without a sanitizer. With ThreadSanitizer the emulator itself is not instrumented, because its own data is used by
// all flows of control: only kernels are, and what the emulator states here.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(EMULATED_FINDS_RACES)
#include <sanitizer/tsan_interface.h>
extern "C" {
void __tsan_read_range(void* memory, unsigned long bytes);
void __tsan_write_range(void* memory, unsigned long bytes);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

namespace emulated {

#if defined(EMULATED_FINDS_RACES)
inline constexpr bool kFindsRaces = true;
#else
inline constexpr bool kFindsRaces = false;
#endif

/// A flow of control of its own for ThreadSanitizer: accesses of two flows race unless an order is stated.
class Flow {
  public:
    enum class Kind { current, fresh };
    explicit Flow([[maybe_unused]] Kind kind) {
#if defined(EMULATED_FINDS_RACES)
        owns_ = kind == Kind::fresh;
        handle_ = owns_ ? __tsan_create_fiber(0) : __tsan_get_current_fiber();
#endif
    }
    ~Flow() {
#if defined(EMULATED_FINDS_RACES)
        if (owns_) __tsan_destroy_fiber(handle_);
#endif
    }
    Flow(const Flow&) = delete;
    Flow& operator=(const Flow&) = delete;
    /// The calling thread goes on as this flow. States no order. In line, because the sanitizer notes calls by flow.
    __attribute__((always_inline)) void enter() const {
#if defined(EMULATED_FINDS_RACES)
        __tsan_switch_to_fiber(handle_, 1U);  // 1: without an order
#endif
    }

  private:
#if defined(EMULATED_FINDS_RACES)
    bool owns_ = false;
    void* handle_ = nullptr;
#endif
};

/// Everything before release(place) comes before everything after a later acquire(place).
inline void release([[maybe_unused]] void* place) {
#if defined(EMULATED_FINDS_RACES)
    __tsan_release(place);
#endif
}
inline void acquire([[maybe_unused]] void* place) {
#if defined(EMULATED_FINDS_RACES)
    __tsan_acquire(place);
#endif
}

/// While it lives, calls of memcpy, which ThreadSanitizer sees in code that is not instrumented, too, are accesses of
/// the emulator to its own data.
class OwnAccesses {
  public:
    OwnAccesses() {
#if defined(EMULATED_FINDS_RACES)
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
#endif
    }
    ~OwnAccesses() {
#if defined(EMULATED_FINDS_RACES)
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
#endif
    }
    OwnAccesses(const OwnAccesses&) = delete;
    OwnAccesses& operator=(const OwnAccesses&) = delete;
};

/// For AddressSanitizer: before and after a switch to another stack.
inline void before_switch([[maybe_unused]] void** own, [[maybe_unused]] const void* bottom,
                          [[maybe_unused]] std::size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(own, bottom, bytes);
#endif
}
inline void after_switch([[maybe_unused]] void* own, [[maybe_unused]] const void** bottom_before,
                         [[maybe_unused]] std::size_t* bytes_before) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(own, bottom_before, bytes_before);
#endif
}

/// Memory that code which is not instrumented, such as a BLAS, reads or writes.
inline void note_read([[maybe_unused]] const void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(EMULATED_FINDS_RACES)
    __tsan_read_range(const_cast<void*>(memory), bytes);
#endif
}
inline void note_write([[maybe_unused]] void* memory, [[maybe_unused]] std::size_t bytes) {
#if defined(EMULATED_FINDS_RACES)
    __tsan_write_range(memory, bytes);
#endif
}

}  // namespace emulated
