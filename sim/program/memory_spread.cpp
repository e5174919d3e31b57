#include "sim/program/memory_spread.h"

#include <cmath>

namespace orrery::program {

double student4_below(double t) {
    const double part = 1 + t * t / 4;
    return 0.5 + 0.375 * t / std::sqrt(part) * (1 - t * t / part / 12);
}

MemoryOutlook memory_outlook(double in_use_gib, const Plan& plan, const RateSpread& spread) {
    const topologies::DeviceProfile& device = plan.cluster.device;
    const double capacity_gib = device.memory_capacity_gib.value;
    const double sd = device.host_runs_compute ? 0 : spread.memory_sd_of(plan.implementation.name);
    if (sd == 0 || in_use_gib <= 0) return {in_use_gib, in_use_gib, in_use_gib <= capacity_gib ? 1.0 : 0.0};
    const double factor = std::exp(kStudentQuantile90 * sd);
    return {in_use_gib / factor, in_use_gib * factor, student4_below(std::log(capacity_gib / in_use_gib) / sd)};
}

}  // namespace orrery::program
