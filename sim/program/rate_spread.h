// How sure a predicted step time is: what is left to be known of the rates after a fit, carried through the step's
// derivatives.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "sim/program/plan.h"
#include "sim/program/sensitivity.h"

namespace orrery::program {

/// `orrery.rate_spread/1`: of the fitted rates of a catalogue, together.
struct RateSpread {
    /// Of log(predicted / measured) where rates are as they should be: what no rate explains.
    double residual_sd = 0;
    /// The same of device memory, each published figure against its own kind: of a stack of which too few figures are
    /// published, and of those that have enough.
    double memory_sd = 0;
    std::map<std::string, double> memory_sd_of_stack;  // by Implementation::name
    /// Of a rate that nobody fitted, by RateRow::name: how far those of its kind that were fitted lie from their
    /// priors. A key that is not here has the prior's.
    std::map<std::string, double> sd_of_key;
    std::vector<std::string> names;    // of fitted rates
    std::vector<double> correlations;  // of their logarithms: row i holds those with the names before it, i of them

    /// 1 of a name with itself; 0 where either is not known.
    [[nodiscard]] double correlation(const std::string& a, const std::string& b) const;
    [[nodiscard]] double memory_sd_of(const std::string& implementation) const;
};

/// sd_of_key of a key, of whose rates these logarithms of value / prior were fitted: their root mean square and the
/// prior's sd, which weighs as much as kPriorWeight of them.
inline constexpr double kPriorWeight = 4;
[[nodiscard]] double sd_of_key(double prior_sd, const std::vector<double>& fitted);

/// The one that belongs to built_in_rates().
[[nodiscard]] const RateSpread& built_in_spread();
[[nodiscard]] RateSpread spread_from_json_text(const std::string& text, const std::string& file);
[[nodiscard]] std::string to_json_text(const RateSpread& spread);

/// d log(step) / d log(rate), by the rates' full names: at 0.1, a rate that grows by 10% makes the step 1% longer.
[[nodiscard]] std::map<std::string, double> rate_slopes(const Plan& plan, const Sensitivity& sensitivity,
                                                        double step_time_s);

/// Of a Student distribution with 4 degrees of freedom, 90% lie within so many of its scales: single runs have heavy
/// tails.
inline constexpr double kStudentQuantile90 = 2.13;

/// The same of a normal distribution, which the rates' logarithms are taken to have.
inline constexpr double kNormalQuantile90 = 1.645;

struct StepInterval {
    double low_s = 0, high_s = 0;
};
/// Scale of log(step): sqrt(q^2 J S J' + residual^2), where J are the step's derivatives in the rates' logarithms and S
/// is the covariance of those: of a rate sd^2 (1 - information), between fitted ones by their correlation. The rates'
/// part is normal, the residual a Student's: q = kNormalQuantile90 / kStudentQuantile90 makes each alone hold 90%. A
/// rate that nobody fitted has the spread of its key, so that a stack, device or fabric that was never seen makes the
/// interval wide.
[[nodiscard]] double step_time_sd(const Plan& plan, const Sensitivity& sensitivity, double step_time_s,
                                  const RateSpread& spread = built_in_spread());
/// step * exp(-+ kStudentQuantile90 sd)
[[nodiscard]] StepInterval interval90(double step_time_s, double sd);

}  // namespace orrery::program
