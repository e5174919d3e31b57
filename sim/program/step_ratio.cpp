#include "sim/program/step_ratio.h"

#include <cmath>
#include <map>
#include <string>

namespace orrery::program {

double step_ratio_sd(const PlanResult& a, const PlanResult& b, const RateSpread& spread) {
    if (a.plan == b.plan) return 0;
    std::map<std::string, double> difference = a.slopes;
    for (const auto& [name, slope] : b.slopes) difference[name] -= slope;
    std::map<std::string, double> sds = rate_sds(a.plan.rates, spread);
    sds.merge(rate_sds(b.plan.rates, spread));
    const double scale = kNormalQuantile90 / kStudentQuantile90;
    return std::hypot(scale * std::sqrt(rates_variance(difference, sds, spread)), std::sqrt(2.0) * spread.residual_sd);
}

std::optional<RatioToFirst> ratio_to_first(const PlanResult& result, const PlanResult& first,
                                           const RateSpread& spread) {
    if (!result.feasible || !first.feasible || result.slopes.empty() || first.slopes.empty()) return {};
    const double sd = step_ratio_sd(result, first, spread);
    const double ratio = result.step_time_s / first.step_time_s;
    const double factor = std::exp(kStudentQuantile90 * sd);
    return RatioToFirst{.ratio = ratio,
                        .low = ratio / factor,
                        .high = ratio * factor,
                        .faster_probability = sd > 0 ? student4_below(-std::log(ratio) / sd) : 0};
}

}  // namespace orrery::program
