// How much of the devices' arithmetic a step uses.
#pragma once

#include <string>

#include "models/model_spec.h"
#include "sim/program/plan.h"

namespace orrery::program {

/// The type in which the products of a block are done: 8 or 4 bits where they are, tf32 where fp32 values are read so,
/// else that of the activations.
[[nodiscard]] DType product_type(const Precision& precision);

/// MFU: the model's FLOPs (forward and backward, nothing twice) over what the devices could do at the dense peak of
/// product_type in the time of the step. HFU: the same with what is recomputed. Fractions, 0 to 1.
struct Utilization {
    models::FlopsConvention convention{};
    double model_flops_per_s_per_device = 0;
    DType type = DType::fp32;
    double peak_flops_per_s = 0;  // 0: the device has no figure for the type, and the two below are 0
    double mfu = 0, hfu = 0;
};
/// step_time_s > 0 in seconds; recomputed_flops: of all ranks in a step (recomputed_flops(Program)).
[[nodiscard]] Utilization utilization_of(const Plan& plan, double step_time_s, double recomputed_flops,
                                         models::FlopsConvention convention = models::FlopsConvention::palm);

}  // namespace orrery::program
