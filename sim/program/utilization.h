// Model FLOPs utilization (MFU) and hardware FLOPs utilization (HFU).
#pragma once

#include <string>

#include "models/model_spec.h"
#include "sim/program/plan.h"

namespace orrery::program {

/// MFU: the model's FLOPs (forward and backward, without recomputation) / (step time x devices x dense peak of
/// `type`). HFU also counts recomputation. Fractions, 0 to 1.
struct Utilization {
    models::FlopsConvention convention{};
    double model_flops_per_s_per_device = 0;
    /// The type in which the GEMMs of a block read their operands: fp8 or fp4 with narrow GEMMs, otherwise
    /// Precision::compute.
    DType type = DType::fp32;
    double peak_flops_per_s = 0;  // 0: no figure for the type; then mfu and hfu are 0
    double mfu = 0, hfu = 0;
};
/// `step_time_s` > 0; `recomputed_flops`: of all ranks in a step, as from recomputed_flops(Program).
[[nodiscard]] Utilization utilization_of(const Plan& plan, double step_time_s, double recomputed_flops,
                                         models::FlopsConvention convention = models::FlopsConvention::palm);

}  // namespace orrery::program
