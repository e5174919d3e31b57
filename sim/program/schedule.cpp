#include "sim/program/schedule.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::program {

std::vector<ComputeTask> compute_order(Schedule schedule, std::int64_t stages, std::int64_t stage,
                                       std::int64_t micro_batches) {
    ORRERY_CHECK(stage >= 0 && stage < stages && micro_batches > 0, "a stage outside the pipeline, or no micro-batch");
    std::vector<ComputeTask> order;
    order.reserve(static_cast<std::size_t>(2 * micro_batches));
    const auto m = static_cast<std::int32_t>(micro_batches);
    const auto forward = [&](std::int32_t i) { order.push_back({ComputeTask::Kind::forward, i}); };
    const auto backward = [&](std::int32_t i) { order.push_back({ComputeTask::Kind::backward, i}); };
    switch (schedule) {
        case Schedule::gpipe: {
            for (std::int32_t i = 0; i < m; ++i) forward(i);
            for (std::int32_t i = 0; i < m; ++i) backward(i);
            return order;
        }
        case Schedule::one_f_one_b: {
            const auto warm_up = static_cast<std::int32_t>(std::min(stages - 1 - stage, micro_batches));
            for (std::int32_t i = 0; i < warm_up; ++i) forward(i);
            for (std::int32_t i = 0; i + warm_up < m; ++i) {
                forward(warm_up + i);
                backward(i);
            }
            for (std::int32_t i = m - warm_up; i < m; ++i) backward(i);
            return order;
        }
    }
    throw_bug(__FILE__, __LINE__, "Schedule", "unknown schedule");
}

}  // namespace orrery::program
