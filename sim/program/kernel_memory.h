// Device memory that the executor's kernels for GPUs take beside the arena, all of it before the first step.
#pragma once

#include <cstdint>
#include <set>
#include <utility>

#include "sim/program/program.h"

namespace orrery::program {

struct KernelMemory {
    /// Of the GEMMs of linear layers on a stream.
    struct Products {
        bool any = false;               // cuBLAS has a workspace for each stream with products
        std::int64_t cut_elements = 0;  // of an fp32 factor that are cut into two bf16 numbers at a time
        bool operator==(const Products&) const = default;
    };
    PerStream<Products> products;
    /// Bytes on a stream, where one operator after the other overwrites them. The backward pass of attention in bf16
    /// has a float for each query of each head, that of the token embedding sorts its rows.
    PerStream<std::int64_t> scratch_bytes{};
    /// Tables of the cosines and sines of rotary positions: positions, and rotated elements of a head.
    std::set<std::pair<std::int64_t, std::int64_t>> rotary_tables;
    bool operator==(const KernelMemory&) const = default;

    /// For partial sums and lists of a few values.
    static constexpr std::int64_t kSmallBytes = std::int64_t{1} << 16;
    [[nodiscard]] std::int64_t bytes(std::int64_t compute_capability) const;
};
/// What the kernels need for the class's instructions.
[[nodiscard]] KernelMemory kernel_memory(const Program& program, const RankClass& rank_class);

/// Elements of an fp32 factor of a product with a bf16 factor that are cut at a time, at most: few enough for the
/// memory, enough to fill a GEMM.
inline constexpr std::int64_t kMostCutElements = std::int64_t{1} << 24;
/// Elements that are cut at a time from a factor with `outer` rows or columns of `inner` elements, over which the
/// product sums. At least one row.
[[nodiscard]] std::int64_t cut_elements(std::int64_t outer, std::int64_t inner, std::int64_t most = kMostCutElements);

/// To sort rows by token, in whole tiles of rows: twice each row with its token, its rank in the tile, and the tile's
/// counts of 256 digits (kernels/cuda/sort_rows.h).
[[nodiscard]] std::int64_t sort_bytes(std::int64_t rows);

/// cuBLAS's workspace, as PyTorch gives it (aten/src/ATen/cuda/CublasHandlePool.cpp). 90: compute capability 9.0.
[[nodiscard]] std::int64_t gemm_workspace_bytes(std::int64_t compute_capability);

}  // namespace orrery::program
