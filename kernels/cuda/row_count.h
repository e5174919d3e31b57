// Numbers of rows that only the device knows.
#pragma once

#include <cstdint>

namespace orrery::kernels::cuda {

/// `most` rows, or, with counts in device memory, as many as their sum. Later rows are neither read nor written.
struct RowCount {
    std::int64_t most = 0;
    const std::int64_t* counts = nullptr;
    std::int64_t entries = 0;  // of counts
};

}  // namespace orrery::kernels::cuda
