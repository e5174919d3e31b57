// Factors from predicted to measured times, fitted over many instructions at once.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace orrery::sim {

/// Measured time of one instruction, and the terms of its predicted time, each with the index of its factor.
struct Observation {
    double measured_s = 0;                                    // > 0
    std::vector<std::pair<std::size_t, double>> predicted_s;  // > 0 each
};

/// Bounds of the factors: beyond them the measurement was of something else than the prediction.
inline constexpr double kSmallestFactor = 0.2;
inline constexpr double kLargestFactor = 5.0;
/// Weight of the prior factor 1, as a share of all seconds predicted under the factor.
inline constexpr double kPriorShare = 0.01;

/// The factors f[0, count) that minimise
///   sum over observations of (measured - sum_k f_k predicted_k)^2 / measured
///     + kPriorShare * sum_k (seconds predicted under k) (f_k - 1)^2
/// within the bounds, by coordinate descent, which converges to the only minimum of this convex sum. Dividing by the
/// measured time keeps both the longest instructions and the many short ones from dominating. A factor without
/// observations is 1.
[[nodiscard]] std::vector<double> fit_factors(std::size_t count, std::span<const Observation> observations);

}  // namespace orrery::sim
