// Kernels of one warp that call the functions of kernels/cuda/ptx once, for ptx_test.cpp. All memory is the device's.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace orrery::exec {

/// The registers of lane l: a[l * 4 …], b[l * 2 …], sums[l * 4 …].
void run_multiply_add(kernels::cuda::StreamHandle stream, const std::uint32_t* a, const std::uint32_t* b, float* sums);
/// `matrices`: 32 rows of 8 elements of 16 bits, of which lane l gives the address of row l; to[l * 4 …].
void run_load_matrices(kernels::cuda::StreamHandle stream, bool transposed, const std::uint32_t* matrices,
                       std::uint32_t* to);
/// Copies `bytes`, a multiple of 16 and more than 48 KiB, by way of dynamic shared memory.
void run_copy(kernels::cuda::StreamHandle stream, std::int64_t bytes, const std::uint32_t* from, std::uint32_t* to);

}  // namespace orrery::exec
