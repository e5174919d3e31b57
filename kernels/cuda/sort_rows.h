// A stable sort of rows by a key, for sums over rows with the same key that have a fixed order.
#pragma once

#include <cstdint>

#include "kernels/cuda/stream.h"

namespace orrery::kernels::cuda {

struct alignas(8) SortedRow {  // read and written in one access
    std::int32_t place = 0;    // the row's key - the first key
    std::int32_t row = 0;
};

/// What sort_rows() overwrites, in bytes: twice each row with its place, each row's rank among those with the same
/// digit in its tile of 2048 rows, and 256 counts for each tile, of rows or of none.
[[nodiscard]] std::int64_t sort_bytes(std::int64_t rows);

/// keys[rows] -> all rows by place, and those with the same place in their order. Keys outside of `places` keys from
/// `first_key` on have the place `places`, which is the last. Returns where the rows are in `scratch`, which has
/// sort_bytes(rows) bytes and the alignment of a block of device memory. The work is linear in rows, with three kernels
/// for every eight bits of a place.
[[nodiscard]] const SortedRow* sort_rows(StreamHandle stream, std::int64_t rows, const std::int32_t* keys,
                                         std::int64_t first_key, std::int64_t places, void* scratch);

}  // namespace orrery::kernels::cuda
