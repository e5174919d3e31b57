#include "sim/program/utilization.h"

#include <algorithm>

#include "core/error.h"

namespace orrery::program {

Utilization utilization_of(const Plan& plan, double step_time_s, double recomputed_flops,
                           models::FlopsConvention convention) {
    ORRERY_CHECK(step_time_s > 0, "the step time must be positive");
    const Precision& precision = plan.training.precision;
    const double device_seconds = step_time_s * static_cast<double>(plan.parallelism.world_size());
    const double model_flops = models::model_flops_per_sequence(plan.model, plan.training.sequence_length, convention) *
                               static_cast<double>(plan.training.global_batch_size);
    Utilization result{
        .convention = convention,
        .model_flops_per_s_per_device = model_flops / device_seconds,
        .type = precision.fp8 == Fp8Scaling::none ? precision.compute : models::operand_type(precision.fp8)};
    const auto& peaks = plan.cluster.device.peaks;
    if (std::none_of(peaks.begin(), peaks.end(), [&](const auto& peak) { return peak.dtype == result.type; })) {
        return result;
    }
    result.peak_flops_per_s = plan.cluster.device.peak_flops_per_s(result.type);
    result.mfu = model_flops / device_seconds / result.peak_flops_per_s;
    result.hfu = (model_flops + recomputed_flops) / device_seconds / result.peak_flops_per_s;
    return result;
}

}  // namespace orrery::program
