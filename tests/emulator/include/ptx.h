// kernels/cuda/ptx/ptx.h for the emulated device; see there and cuda_runtime.h. Which lane holds which element is
// computed from whole matrices here, not by the formulas that kernels use.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace ptx {

using Pair = std::uint32_t;

namespace emulation {

inline unsigned lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}
inline float element(Pair pair, unsigned which) {
    return __bfloat162float({static_cast<std::uint16_t>(which == 0 ? pair : pair >> 16U)});
}
/// What another lane gave to the exchange before.
template <typename T>
const T& of_lane(unsigned lane) {
    return *reinterpret_cast<const T*>(::emulated::offered_by(lane));
}
template <typename T>
void offer(const T& mine) {
    static_cast<void>(::emulated::exchange(0xffffffffU, reinterpret_cast<std::uint64_t>(&mine), 0));
}

struct Factors {
    Pair a[4], b[2];
    /// Element [row, column] of a, in the lane that holds it.
    static float of_a(unsigned row, unsigned column) {
        const Factors& holder = of_lane<Factors>(row % 8 * 4 + column % 8 / 2);
        return element(holder.a[row / 8 + column / 8 * 2], column % 2);
    }
    static float of_b(unsigned row, unsigned column) {
        const Factors& holder = of_lane<Factors>(column * 4 + row % 8 / 2);
        return element(holder.b[row / 8], row % 2);
    }
};

inline Pair pair_of(std::uint16_t first, std::uint16_t second) {
    return first | static_cast<Pair>(second) << 16U;
}
/// Element [row, column] of a matrix whose rows' addresses the lanes have offered.
inline std::uint16_t of_matrix(unsigned matrix, unsigned row, unsigned column) {
    return reinterpret_cast<const std::uint16_t*>(::emulated::offered_by(matrix * 8 + row))[column];
}
inline void offer_row(const void* row) {
    if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
        std::fputs("emulated CUDA: a row of ldmatrix is not aligned\n", stderr);
        std::abort();
    }
    static_cast<void>(::emulated::exchange(0xffffffffU, reinterpret_cast<std::uint64_t>(row), 0));
}

}  // namespace emulation

inline void multiply_add(float (&sums)[4], const Pair (&a)[4], Pair b0, Pair b1) {
    const emulation::Factors mine{{a[0], a[1], a[2], a[3]}, {b0, b1}};
    emulation::offer(mine);
    const unsigned first_row = emulation::lane() / 4, first_column = emulation::lane() % 4 * 2;
    float products[2][2] = {};
    for (unsigned inner = 0; inner < 16; ++inner) {
        for (unsigned column = 0; column < 2; ++column) {
            const float b = emulation::Factors::of_b(inner, first_column + column);
            for (unsigned half = 0; half < 2; ++half) {
                products[half][column] += emulation::Factors::of_a(first_row + 8 * half, inner) * b;
            }
        }
    }
    for (unsigned i = 0; i < 4; ++i) sums[i] += products[i / 2][i % 2];
    __syncwarp();  // until all lanes have read the factors
}

inline void load_matrices(Pair (&to)[4], const void* row) {
    emulation::offer_row(row);
    const unsigned lane = emulation::lane();
    for (unsigned m = 0; m < 4; ++m) {
        to[m] = emulation::pair_of(emulation::of_matrix(m, lane / 4, lane % 4 * 2),
                                   emulation::of_matrix(m, lane / 4, lane % 4 * 2 + 1));
    }
    __syncwarp();  // until all lanes have read the matrices
}

inline void load_transposed(Pair (&to)[4], const void* row) {
    emulation::offer_row(row);
    const unsigned lane = emulation::lane();
    for (unsigned m = 0; m < 4; ++m) {
        to[m] = emulation::pair_of(emulation::of_matrix(m, lane % 4 * 2, lane / 4),
                                   emulation::of_matrix(m, lane % 4 * 2 + 1, lane / 4));
    }
    __syncwarp();
}

inline void* dynamic_shared() {
    return ::emulated::dynamic_shared();
}

}  // namespace ptx
