// Pipeline schedules: the order in which one stage computes, and nothing else. Transfers are added by the lowering.
#pragma once

#include <cstdint>
#include <vector>

#include "sim/program/plan.h"

namespace orrery::program {

struct ComputeTask {
    enum class Kind : std::uint8_t { forward, backward } kind{};
    std::int32_t micro_batch = 0;
    bool operator==(const ComputeTask&) const = default;
};

/// What stage `stage` of `stages` computes in one step with `micro_batches` micro-batches.
/// GPipe: F0..F(m-1), B0..B(m-1). 1F1B: w = min(p-1-r, m) forwards, then F(w+i), B(i), then the remaining backwards
/// (the orders of Huang et al. 2019 and of PipeDream-flush, Narayanan et al. 2021).
[[nodiscard]] std::vector<ComputeTask> compute_order(Schedule schedule, std::int64_t stages, std::int64_t stage,
                                                     std::int64_t micro_batches);

}  // namespace orrery::program
