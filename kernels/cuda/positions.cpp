#include "kernels/cuda/positions.h"

#include <cstddef>

#include "core/error.h"

namespace orrery::kernels::cuda {

PositionRuns::PositionRuns(std::span<const PositionRun> runs) : count_(static_cast<std::int64_t>(runs.size())) {
    if (count_ > 0) even_ = runs[0];
    if (count_ > 1) odd_ = runs[1];
    if (count_ > 2) even_step_ = runs[2].first - even_.first;
    if (count_ > 3) odd_step_ = runs[3].first - odd_.first;
    for (std::size_t i = 0; i < runs.size(); ++i) {
        const PositionRun run = (*this)[static_cast<std::int64_t>(i)];
        ORRERY_CHECK(run.first == runs[i].first && run.count == runs[i].count,
                     "runs of positions on CUDA alternate between two regular series");
    }
}

}  // namespace orrery::kernels::cuda
