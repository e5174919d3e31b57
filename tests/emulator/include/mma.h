// Products of 16 x 16 matrices by a warp, as far as Orrery's kernels use them; see cuda_runtime.h. Each lane holds
// whole factors, and eight elements of a sum: half a row.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <type_traits>

namespace nvcuda::wmma {

struct matrix_a;
struct matrix_b;
struct accumulator;
struct row_major;
struct col_major;
enum layout_t { mem_row_major, mem_col_major };

template <typename Use, int m, int n, int k, typename T, typename Layout = void>
struct fragment {
    static_assert(m == 16 && n == 16 && k == 16 && std::is_same_v<T, __nv_bfloat16>);
    float value[16][16];
};
template <int m, int n, int k>
struct fragment<accumulator, m, n, k, float> {
    static_assert(m == 16 && n == 16 && k == 16);
    float value[8];
};
using Accumulator = fragment<accumulator, 16, 16, 16, float>;

/// CUDA wants matrices at multiples of 32 bytes, and rows or columns at multiples of 16.
inline void check_matrix(const void* matrix, std::size_t bytes_of_line) {
    if (reinterpret_cast<std::uintptr_t>(matrix) % 32 == 0 && bytes_of_line % 16 == 0) return;
    std::fputs("emulated CUDA: a matrix of a warp is not aligned\n", stderr);
    std::abort();
}
inline unsigned lane() {
    return (threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z)) % 32;
}

inline void fill_fragment(Accumulator& sum, float value) {
    for (float& element : sum.value) element = value;
}

template <typename Use, typename Layout>
void load_matrix_sync(fragment<Use, 16, 16, 16, __nv_bfloat16, Layout>& factor, const __nv_bfloat16* from,
                      unsigned line) {
    check_matrix(from, line * sizeof *from);
    for (unsigned row = 0; row < 16; ++row) {
        for (unsigned column = 0; column < 16; ++column) {
            const unsigned at = std::is_same_v<Layout, row_major> ? row * line + column : column * line + row;
            factor.value[row][column] = __bfloat162float(from[at]);
        }
    }
    __syncwarp();
}

template <typename LayoutA, typename LayoutB>
void mma_sync(Accumulator& sum, const fragment<matrix_a, 16, 16, 16, __nv_bfloat16, LayoutA>& a,
              const fragment<matrix_b, 16, 16, 16, __nv_bfloat16, LayoutB>& b, const Accumulator& before) {
    for (unsigned i = 0; i < 8; ++i) {
        float total = before.value[i];
        for (unsigned inner = 0; inner < 16; ++inner) {
            total += a.value[lane() / 2][inner] * b.value[inner][lane() % 2 * 8 + i];
        }
        sum.value[i] = total;
    }
    __syncwarp();
}

inline void store_matrix_sync(float* to, const Accumulator& sum, unsigned line, layout_t layout) {
    check_matrix(to, line * sizeof *to);
    for (unsigned i = 0; i < 8; ++i) {
        const unsigned row = lane() / 2, column = lane() % 2 * 8 + i;
        to[layout == mem_row_major ? row * line + column : column * line + row] = sum.value[i];
    }
    __syncwarp();
}

}  // namespace nvcuda::wmma
