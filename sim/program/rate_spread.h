// The uncertainty of a predicted step time: the remaining uncertainty of the rates after a fit, propagated through the
// derivatives of the step time. And that of a predicted peak of device memory.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/program/sensitivity.h"

namespace orrery::program {

/// The uncertainty of a catalogue's fitted rates (`orrery.rate_spread/1`).
struct RateSpread {
    /// Standard deviation of log(predicted / measured) that no rate explains.
    double residual_sd = 0;
    /// The same for device memory, each published figure compared with the prediction of its kind. memory_sd is for
    /// stacks with too few published figures.
    double memory_sd = 0;
    std::map<std::string, double> memory_sd_of_stack;  // by Implementation::name
    /// Standard deviation of the logarithm of a rate that was not fitted, by RateRow::name, from how far the fitted
    /// rates of the key lie from their priors. Keys that are not listed have the sd of the prior.
    std::map<std::string, double> sd_of_key;
    std::vector<std::string> names;    // the fitted rates
    std::vector<double> correlations;  // of their logarithms; row i: with the i names before name i

    /// 1 if the names are equal; 0 if one of them is not in `names`.
    [[nodiscard]] double correlation(const std::string& a, const std::string& b) const;
    [[nodiscard]] double memory_sd_of(const std::string& implementation) const;
};

/// RateSpread::sd_of_key for a key whose fitted rates have these log(value / prior): their root mean square, with the
/// prior's sd counted as kPriorWeight further values.
inline constexpr double kPriorWeight = 4;
[[nodiscard]] double sd_of_key(double prior_sd, const std::vector<double>& fitted);

/// The spread of built_in_rates().
[[nodiscard]] const RateSpread& built_in_spread();
[[nodiscard]] RateSpread spread_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] std::string to_json_text(const RateSpread& spread);

/// d log(step time) / d log(rate), by the rates' full names. At 0.1, a rate that grows by 10% makes the step 1% longer.
[[nodiscard]] std::map<std::string, double> rate_slopes(const Plan& plan, const Sensitivity& sensitivity,
                                                        double step_time_s);

/// The standard deviation of each resolved rate's logarithm, by full name. A rate that was not fitted has that of its
/// key.
[[nodiscard]] std::map<std::string, double> rate_sds(const Rates& rates, const RateSpread& spread);
/// J S J': the variance of a logarithm with the slopes J by rates with these standard deviations.
[[nodiscard]] double rates_variance(const std::map<std::string, double>& slopes,
                                    const std::map<std::string, double>& sds, const RateSpread& spread);

/// 90% of a Student distribution with 4 degrees of freedom lie within this many scales. Errors of single runs have
/// heavy tails.
inline constexpr double kStudentQuantile90 = 2.13;

/// The same for a normal distribution, which is assumed for the logarithms of rates.
inline constexpr double kNormalQuantile90 = 1.645;

struct StepInterval {
    double low_s = 0, high_s = 0;
};
/// The scale of log(step time): sqrt(q^2 J S J' + residual^2). J: derivatives by the rates' logarithms. S: covariance
/// of these logarithms, with the variance sd^2 (1 - information) of each rate and the correlations between fitted
/// rates. The part of the rates is normal and the residual follows a Student distribution; with q = kNormalQuantile90 /
/// kStudentQuantile90, the interval of each part alone contains 90%. A rate that was not fitted has the spread of its
/// key, so that an unknown stack, device or fabric widens the interval.
[[nodiscard]] double step_time_sd(const Plan& plan, const Sensitivity& sensitivity, double step_time_s,
                                  const RateSpread& spread = built_in_spread());
/// step_time_s * exp(-+ kStudentQuantile90 * sd)
[[nodiscard]] StepInterval interval90(double step_time_s, double sd);

struct MemoryOutlook {
    double low_gib = 0, high_gib = 0;  // 90% interval
    double fit_probability = 1;        // probability that the peak stays within the device's memory
};
/// The outlook for a predicted peak of `in_use_gib` on a device of the plan. As for step times, log(measured /
/// predicted) follows a Student distribution with 4 degrees of freedom, whose scale is the spread of the plan's
/// implementation. The prediction alone decides whether a plan fits; this is its confidence. If the host computes, the
/// allocations are known exactly, and the interval has no width.
[[nodiscard]] MemoryOutlook memory_outlook(double in_use_gib, const Plan& plan,
                                           const RateSpread& spread = built_in_spread());

/// The cumulative distribution function of the Student distribution with 4 degrees of freedom.
[[nodiscard]] double student4_below(double t);

}  // namespace orrery::program
