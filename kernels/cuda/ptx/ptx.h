// What kernels need and CUDA C++ has no function for: products of small matrices by a warp as instructions of PTX,
// where a kernel knows which thread holds which element, and the shared memory of a size that is given at launch. For
// compute capability 8.0 and up. tests/emulator/include has the same for CPUs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>

namespace ptx {

/// Two bf16 numbers, the first in the lower half.
using Pair = std::uint32_t;

/// sums += a b, of a[16, 16] and b[16, 8] (mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32). With group = lane / 4
/// and place = lane % 4 * 2, a lane holds the elements
///   a: [group, place], [group + 8, place], [group, place + 8], [group + 8, place + 8], each with its right neighbour,
///   b: [place, group], [place + 8, group], each with the neighbour below,
///   sums: [group, place], [group, place + 1], [group + 8, place], [group + 8, place + 1].
__device__ inline void multiply_add(float (&sums)[4], const Pair (&a)[4], Pair b0, Pair b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};\n"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

/// Reads four matrices of 8 x 8 from shared memory (ldmatrix.sync.aligned.m8n8.x4.shared.b16). Lane l gives the address
/// of row l % 8 of matrix l / 8, a multiple of 16 bytes, and gets of each matrix the elements [lane / 4, lane % 4 * 2]
/// and the right neighbour.
__device__ inline void load_matrices(Pair (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}

/// Like load_matrices(), but a lane gets the elements [lane % 4 * 2, lane / 4] and the neighbours below (.trans).
__device__ inline void load_transposed(Pair (&to)[4], const void* row) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(static_cast<unsigned>(__cvta_generic_to_shared(row)))
                 : "memory");
}

/// Of the running block: as many bytes as the kernel was launched with, at a multiple of 128.
__device__ inline void* dynamic_shared() {
    extern __shared__ __align__(128) char orrery_dynamic_shared[];
    return orrery_dynamic_shared;
}

}  // namespace ptx
