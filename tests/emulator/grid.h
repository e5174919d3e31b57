// The threads of a kernel on a CPU: one fiber each, all blocks one after the other, the warps of a block in a random
// order between any two barriers. What CUDA leaves undefined ends the process with a message: a shuffle that some lanes
// of the mask do not reach, and a barrier that some threads of the block do not reach.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

// The bounds of the section of shared variables, in the program or library that has the kernels.
extern "C" {
extern char __start_emulated_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_emulated_shared[] __attribute__((weak, visibility("hidden")));
}

namespace emulated {

/// CUDA's dim3.
struct Extent {
    unsigned x = 1, y = 1, z = 1;
    constexpr Extent(unsigned of_x = 1, unsigned of_y = 1, unsigned of_z = 1) : x(of_x), y(of_y), z(of_z) {}
    [[nodiscard]] constexpr std::uint64_t volume() const { return std::uint64_t{x} * y * z; }
};

/// A kernel with its arguments.
struct Kernel {
    std::function<void()> run;  // what each thread does
    const void* address = nullptr;
    char* shared_begin = nullptr;
    char* shared_end = nullptr;
    bool has_bad_pointer = false;  // an argument points to memory that the device cannot use
    std::size_t dynamic_shared_bytes = 0;
};

// For device code, which runs only within run_grid().
/// Returns when all threads of the block have called it: 1 if any predicate was not zero, otherwise 0.
int meet_block(int predicate);
/// The bits of the lane whose number differs in `lanes`. All lanes of a whole warp must call it; the mask names them
/// all.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, unsigned lanes);
/// The bits that another lane gave to the exchange before, until the next one.
std::uint64_t offered_by(unsigned lane);
/// Of the running block: the bytes with which the kernel was launched, which end where ends what it may use.
char* dynamic_shared();
/// A copy to shared memory that the thread starts, by cp.async: what is there is unknown until the thread waits for it.
/// Only then is `from` read.
void start_copy(void* to, const void* from, std::size_t bytes);
/// The copies that the thread has started since the last call are one more group.
void end_group_of_copies();
/// Carries out all but the newest groups of the thread's copies.
void wait_for_copies(std::size_t groups_left);

/// Runs a grid in the calling thread. The order of warps follows from `seed`. Grids with the same `stream` run one
/// after the other by CUDA's rules.
void run_grid(const Kernel& kernel, const Extent& grid, const Extent& block, std::uint64_t seed, const void* stream);

}  // namespace emulated
